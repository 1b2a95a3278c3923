"""Reports whose cases were written before anybody looked at how their causes are found: the fifth ones, when the
causes had been mended by the first four."""

from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    IDLE_WORKER,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    schedulers,
    sglang,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    bundle,
    ended,
    engine,
    front,
    gpus,
    host,
    line,
    ordinary_facts,
    place,
    process,
    rank,
)

STUCK_DRIVER = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="the driver did not answer within 5 s")


def _triton(*, stale: bool) -> Bundle:
    said = (
        "OSError: [Errno 116] Stale file handle: '/root/.triton/cache/7QX/cuda_utils.cpython-310-x86_64-linux-gnu.so'"
    )
    kind = "nfs" if stale else "xfs"
    return vllm(
        worker(0, ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN), native=SYNCS),
        phase=Phase.COMPILE,
        ranks=2,
        host=host(places=(place("compile_cache", "/root/.triton/cache", filesystem=kind), place("home", "/root"))),
        exits=[ended(rank(1), code=1)] if stale else [],
        log=[line(said, source="Worker_TP1", number=1, level="ERROR", ago_s=44)] if stale else [],
    )


def _three_of_four(*, missing: bool) -> Bundle:
    there = [0, 1, 3] if missing else [0, 1, 2, 3]
    return vllm(
        [worker(n, IDLE_WORKER) for n in there],
        phase=Phase.SERVING,
        ranks=4,
        gpus=gpus(4),
        question="no token within 60 s",
    )


def _one_after_the_other(*, crashed: bool) -> Bundle:
    gone = (
        ended(rank(0), signal=11, ago_s=20),
        ended(rank(1), signal=11, ago_s=20),
        ended(engine(), code=1, ago_s=19),
        ended(front(), code=0, ago_s=18),
    )
    said = "Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
    if crashed:
        return bundle(phase=Phase.SERVING, exits=gone, log=[line(said, source="EngineCore", level="ERROR", ago_s=20)])
    return vllm(workers(2, IDLE_WORKER), phase=Phase.SERVING)


def _scheduler_port(*, said: bool) -> Bundle:
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


def _old_store(*, taken: bool) -> Bundle:
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


def _specs(*, waits: bool) -> Bundle:
    stack = ("get (ray/_private/worker.py:2700)", "_wait_until_pg_ready (vllm/executor/ray_utils.py:214)")
    said = "Waiting for creating a placement group of specs for 310 seconds. specs=[{'GPU': 1.0}, {'GPU': 1.0}]."
    return bundle(
        front(),
        engine(stack=stack if waits else ["select (selectors.py:468)"], syscall="futex(0x7f)"),
        phase=Phase.RENDEZVOUS,
        log=[line(said, source="EngineCore", ago_s=20)] if waits else [],
    )


def _split(*, refused: bool) -> Bundle:
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


def _no_manager(*, started: bool) -> Bundle:
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


def _bootstrapping(*, told: bool) -> Bundle:
    said = (
        "RuntimeError: An attempt has been made to start a new process before the current process has finished its "
        "bootstrapping phase."
    )
    main = process(FRONT, "python", stack=["poll (zmq/sugar/poll.py:106)", "<module> (judge_tldr.py:96)"], ppid=1)
    return bundle(
        main,
        [] if told else [engine()],
        phase=Phase.SPAWN,
        exits=[ended(engine(), code=1, ago_s=100)] if told else [],
        log=[line(said, source="EngineCore", level="ERROR", ago_s=101)] if told else [],
    )


def _host_memory(*, killed: bool) -> Bundle:
    main = process(FRONT, "python3", stack=["load_weights (ktransformers/util/utils.py:90)"], memory=990 * GB, ppid=1)
    said = "Out of memory: Killed process 4000 (python3) total-vm:1100000000kB, anon-rss:1058000000kB"
    return bundle(
        [] if killed else [main],
        engine="generic",
        phase=Phase.WEIGHTS,
        exits=[ended(main, signal=9, oom=killed)] if killed else [],
        kernel_log=[said] if killed else [],
        host=host(container="docker", memory_bytes=1024 * GB, memory_free_bytes=GB if killed else 30 * GB),
    )


def _eight_polls(*, polls: bool) -> Bundle:
    stack = (
        "wait (torch/utils/file_baton.py:50): time.sleep(self.wait_seconds)",
        "_jit_compile (torch/utils/cpp_extension.py:2156)",
        "load (torch/utils/cpp_extension.py:1681)",
        "load_cuda_ops (flashinfer/jit/core.py:280)",
        "__init__ (vllm/v1/attention/backends/flashinfer.py:300)",
        WORKER_MAIN,
    )
    return vllm(
        workers(8, stack if polls else stack[4:], syscall="clock_nanosleep(0x0, 0x0)"),
        phase=Phase.WARMUP,
        gpus=gpus(8),
        locks=Gap(what="locks", reason=GapReason.NO_PERMISSION, detail="another user's processes"),
    )


def _frozen() -> Bundle:
    stuck = {"state": "D", "kernel": ("rwsem_down_read_slowpath", "down_read", "do_user_addr_fault")}
    return vllm(
        workers(2, NO_PTRACE, syscall=NO_PTRACE, wchan="rwsem_down_read_slowpath", **stuck),
        phase=Phase.WEIGHTS,
        gpus=STUCK_DRIVER,
    )


FIRST_RUN = FirstRun(established=7, supported=2, missed=2, undecided=5, false=1)

CASES = (
    Case(
        id="pytorch-173679",
        url="https://github.com/pytorch/pytorch/issues/173679",
        cause="nfs_cache",
        shows="a rank ended over a stale file handle in Triton's cache, which lies on NFS",
        bundle=_triton(stale=True),
        twin=_triton(stale=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="vllm-11996",
        url="https://github.com/vllm-project/vllm/issues/11996",
        cause="rank_died",
        shows="one of four workers is not there, the front answers its health check",
        bundle=_three_of_four(missing=True),
        twin=_three_of_four(missing=False),
    ),
    Case(
        id="vllm-48966",
        url="https://github.com/vllm-project/vllm/issues/48966",
        cause="rank_died",
        shows="two workers crashed, then the engine failed and the front ended with 0",
        bundle=_one_after_the_other(crashed=True),
        twin=_one_after_the_other(crashed=False),
    ),
    Case(
        id="sglang-17402",
        url="https://github.com/sgl-project/sglang/issues/17402",
        cause="port_in_use",
        shows="a rank says that an address is in use",
        bundle=_scheduler_port(said=True),
        twin=_scheduler_port(said=False),
    ),
    Case(
        id="skyrl-284",
        url="https://github.com/NovaSky-AI/SkyRL/issues/284",
        cause="port_in_use",
        shows="the port of the meeting belongs to another process, a rank says so and ended",
        bundle=_old_store(taken=True),
        twin=_old_store(taken=False),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="vllm-13909",
        url="https://github.com/vllm-project/vllm/issues/13909",
        cause="resource_wait",
        shows="the engine waits for its placement group, and says so",
        bundle=_specs(waits=True),
        twin=_specs(waits=False),
    ),
    Case(
        id="llamacpp-23523",
        url="https://github.com/ggml-org/llama.cpp/issues/23523",
        cause="shm_too_small",
        shows="NCCL was refused shared memory, and /dev/shm of 64 MiB is nearly full",
        bundle=_split(refused=True),
        twin=_split(refused=False),
    ),
    Case(
        id="gpustack-4154",
        url="https://github.com/gpustack/gpustack/issues/4154",
        cause="fabric_not_ready",
        shows="the fabric was not started, and the start of CUDA is refused with 802",
        bundle=_no_manager(started=False),
        twin=_no_manager(started=True),
    ),
    Case(
        id="trl-3932",
        url="https://github.com/huggingface/trl/pull/3932",
        cause="missing_main_guard",
        shows="a child ended with Python's own words for a script without a guard",
        bundle=_bootstrapping(told=True),
        twin=_bootstrapping(told=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="ktransformers-637",
        url="https://github.com/kvcache-ai/ktransformers/issues/637",
        cause="process_died",
        shows="the kernel tells that it killed the server for memory",
        bundle=_host_memory(killed=True),
        twin=_host_memory(killed=False),
    ),
    Case(
        id="flashinfer-2262",
        url="https://github.com/flashinfer-ai/flashinfer/issues/2262",
        cause="stale_jit_lock",
        shows="all ranks poll in FileBaton, and no compiler is there; locks could not be seen",
        bundle=_eight_polls(polls=True),
        twin=_eight_polls(polls=False),
    ),
    Case(
        id="nccl-426",
        url="https://github.com/NVIDIA/nccl/issues/426",
        cause="unknown",
        lacks="counters and addresses of the network cards of both nodes",
        companions=frozenset({"nccl_transport_bug"}),
        bundle=vllm(
            worker(0, ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN), native=SYNCS),
            phase=Phase.WARMUP,
            nodes=2,
            gpus=gpus(1),
            log=[nccl_line("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", level="WARN")],
        ),
    ),
    Case(
        id="gpustack-3908",
        url="https://github.com/gpustack/gpustack/issues/3908",
        cause="unknown",
        lacks="who holds the lock of the address space, inside the kernel",
        bundle=_frozen(),
    ),
    Case(
        id="vllm-20851",
        url="https://github.com/vllm-project/vllm/issues/20851",
        cause="unknown",
        lacks="who ended, and with what",
        bundle=bundle(
            front(),
            [process(4050 + n, "VLLM::EngineCore", stack=NO_PTRACE, role=Role.ENGINE, ppid=FRONT) for n in range(4)],
            phase=Phase.MODEL_INIT,
            options={"data-parallel-size": "4"},
            gpus=gpus(8),
        ),
    ),
    Case(
        id="tgi-771",
        url="https://github.com/huggingface/text-generation-inference/issues/771",
        cause="unknown",
        lacks="what the shard does, and where its weights lie",
        bundle=bundle(
            process(FRONT, "text-generation", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=())),
            rank(0, name="text-generation-server", stack=NO_PTRACE, syscall=NO_PTRACE, ppid=FRONT),
            engine="generic",
            phase=Phase.WEIGHTS,
            gpus=gpus(1),
            log=[line("Waiting for shard to be ready... rank=0", ago_s=6)],
        ),
    ),
    Case(
        id="vllm-6876",
        url="https://github.com/vllm-project/vllm/issues/6876",
        cause="unknown",
        lacks="the rate at which the weights come, and the file system that they lie on",
        bundle=bundle(
            front(),
            engine(stack=["load_model (vllm/model_executor/model_loader/loader.py:300)"], facts=ordinary_facts()),
            phase=Phase.WEIGHTS,
            gpus=gpus(1),
            log=[line("Starting to load model /models/llm...", source="EngineCore", ago_s=900)],
        ),
    ),
)
