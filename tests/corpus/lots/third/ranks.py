"""Machines of the third lot: ranks that do not reach each other."""

from tests.corpus.surroundings import (
    IN_COMM_INIT,
    WORKER_MAIN,
    nccl_line,
    vllm,
    worker,
)

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    NO_PTRACE,
    bundle,
    cuda_libraries,
    gpus,
    host,
    interface,
    line,
    ordinary_facts,
    process,
    socket,
)

THINKS = (
    "synchronize (torch/cuda/streams.py:231)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:3300)",
    WORKER_MAIN,
)


def slots(*, native: bool) -> Bundle:
    appends = ("sched_yield (libc.so.6)", "ncclLocalOpAppend (libnccl.so.2)", "SaveProxy (libnccl.so.2)")
    stack = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *THINKS[1:])
    return vllm(
        worker(0, stack, native=appends if native else NO_PTRACE, state="R", cpu=1.0,
               facts=ordinary_facts(libraries=cuda_libraries(nccl="2.28.9"))),
        phase=Phase.SERVING,
        nodes=2,
        gpus=gpus(1, name="NVIDIA GB10", architecture="121"),
        host=host(cpu_arch="aarch64"),
    )  # fmt: skip


def two_amd(*, bridge: bool) -> Bundle:
    nics = (interface("lo", "127.0.0.1", kind="loopback"), interface("enp6s0", "192.168.8.20"))
    taken = interface("docker0", "172.17.0.1", kind="bridge")
    return vllm(
        worker(
            0,
            IN_COMM_INIT if bridge else THINKS[1:],
            native=["poll (libc.so.6)", "ncclSocketAccept (librccl.so.1)", "bootstrapInit (librccl.so.1)"],
            files=[socket("172.17.0.1:41233", state="LISTEN", fd=50)] if bridge else [],
        ),
        phase=Phase.COMM_INIT,
        nodes=2,
        gpus=gpus(1, name="Radeon RX 9070 XT", vendor="amd", architecture="gfx1201"),
        host=host(interfaces=(*nics, taken) if bridge else nics),
        log=[nccl_line("Bootstrap : Using docker0:172.17.0.1<0>")] if bridge else [],
    )


def store(*, knocks: bool) -> Bundle:
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "init_process_group (torch/distributed/distributed_c10d.py:1200)",
        "init_distributed_environment (vllm/distributed/parallel_state.py:840)",
        WORKER_MAIN,
    )
    said = "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to "
    return vllm(
        worker(
            1,
            stack,
            syscall="connect(0x20)",
            files=[socket("192.168.41.80:50122", "192.168.41.79:29502", state="SYN_SENT", fd=32)] if knocks else [],
        ),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        node=1,
        environment={"MASTER_ADDR": "192.168.41.79", "MASTER_PORT": "29502"},
        log=[line(f"{said}(192.168.41.79, 29502).", source="Worker_TP1", number=1, level="ERROR")] if knocks else [],
    )


def two_mpis(*, both: bool) -> Bundle:
    own = Library(path="/opt/conda/envs/trt/lib/libmpi.so.12", kind="mpi", version="12", build="m1")
    theirs = Library(path="/usr/lib/x86_64-linux-gnu/libmpi.so.40", kind="mpi", version="40", build="o1")
    main = process(
        FRONT,
        "python",
        stack=["<module> (mpi4py/MPI.py:1)", "<module> (tensorrt_llm/_utils.py:30)", "<module> (run.py:1)"],
        native=["poll (libc.so.6)", "MPIDU_Sock_wait (libmpi.so.12)", "MPI_Init_thread (libmpi.so.12)"],
        ppid=1,
        facts=ordinary_facts(libraries=(*cuda_libraries(), own, *([theirs] if both else []))),
    )
    return bundle(main, engine="generic", phase=Phase.IMPORT, gpus=gpus(8))
