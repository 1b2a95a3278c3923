"""Machines of the fifth lot: ports, memory and GPUs that are not to be had."""

from tests.corpus.surroundings import (
    SCHEDULER_MAIN,
    WORKER_MAIN,
    nccl_line,
    schedulers,
    sglang,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.look import Listener
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    ended,
    engine,
    front,
    gpus,
    host,
    line,
    process,
    rank,
)


def scheduler_port(*, said: bool) -> Bundle:
    stack = (
        "wait (threading.py:327)",
        "load_weight (sglang/srt/model_executor/model_runner.py:900)",
        SCHEDULER_MAIN,
    )
    message = "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5557')"
    return sglang(
        schedulers(2, stack),
        phase=Phase.WEIGHTS,
        host=host(container="docker"),
        log=[line(message, source="DP0 TP1", number=1, level="ERROR", ago_s=200)] if said else [],
    )


def old_store(*, taken: bool) -> Bundle:
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:199)",
        "init_process_group (torch/distributed/distributed_c10d.py:1752)",
        WORKER_MAIN,
    )
    said = "The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE"
    return vllm(
        [] if taken else workers(1, stack),
        phase=Phase.RENDEZVOUS,
        environment={"MASTER_PORT": "29500", "MASTER_ADDR": "10.0.0.2"},
        listeners=[Listener(host="0.0.0.0", port=29500, pid=2200)] if taken else [],
        exits=[ended(rank(0), code=1, ago_s=30)] if taken else [],
        log=[line(said, source="Worker_TP0", number=0, level="ERROR", ago_s=31)] if taken else [],
    )


def specs(*, waits: bool) -> Bundle:
    stack = ("get (ray/_private/worker.py:2700)", "_wait_until_pg_ready (vllm/executor/ray_utils.py:214)")
    said = "Waiting for creating a placement group of specs for 310 seconds. specs=[{'GPU': 1.0}, {'GPU': 1.0}]."
    return bundle(
        front(),
        engine(stack=stack if waits else ["select (selectors.py:468)"], syscall="futex(0x7f)"),
        phase=Phase.RENDEZVOUS,
        log=[line(said, source="EngineCore", ago_s=20)] if waits else [],
    )


def split(*, refused: bool) -> Bundle:
    said = nccl_line("Error while creating shared memory segment /dev/shm/nccl-Xk2 (size 33030528)", level="WARN")
    small = {"shm_bytes": 64 << 20, "shm_used_bytes": 60 << 20} if refused else {}
    main = process(
        FRONT, "llama-server", native=["ncclGroupEnd (libnccl.so.2)", "ggml_backend_cuda_comm (libggml-cuda.so)"],
        role=Role.FRONT, ppid=1,
    )  # fmt: skip
    return bundle(
        main, engine="generic", phase=Phase.WARMUP, host=host(container="docker", **small),
        log=[said] if refused else [],
    )  # fmt: skip


def no_manager(*, started: bool) -> Bundle:
    said = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
    return bundle(
        front(),
        engine(
            stack=[
                "_cuda_getDeviceCount (torch/cuda/__init__.py:140)",
                "current_platform (vllm/platforms/cuda.py:90)",
            ]
        ),
        phase=Phase.SPAWN,
        gpus=gpus(
            8, name="NVIDIA A800-SXM4-80GB", architecture="80", fabric="completed" if started else "not started"
        ),
        log=[] if started else [line(said, source="EngineCore", level="ERROR", ago_s=50)],
    )
