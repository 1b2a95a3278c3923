"""Reports of which nobody knows the cause, about communicators, graphs and serving: firstlight must not guess."""

from tests.corpus.case import UNKNOWN, Case
from tests.corpus.surroundings import (
    FIRST_ALL_REDUCE,
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SGLANG_INIT,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    pcie_gpus,
    schedulers,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import NO_PTRACE, gpus, host, line, pipe, process, thread

IN_LIBNCCL = ("?? (libnccl.so.2)", "ncclCommInitRank (libnccl.so.2)")
P2P_CACHE = (
    "wait (subprocess.py:1264)",
    "gpu_p2p_access_check (vllm/distributed/device_communicators/custom_all_reduce_utils.py:250)",
    "__init__ (vllm/distributed/device_communicators/custom_all_reduce.py:140)",
    "init_device (vllm/v1/worker/gpu_worker.py:290)",
    WORKER_MAIN,
)
P2P_LINE = line(
    "generating GPU P2P access cache in /root/.cache/vllm/gpu_p2p_access_cache_for_0,1.json",
    source="Worker_TP0",
    number=0,
)

CASES = (
    Case(
        id="deepep-54",
        url="https://github.com/deepseek-ai/DeepEP/issues/54",
        cause=UNKNOWN,
        lacks="whether every rank came to sync(), and NVSHMEM's own trace",
        bundle=vllm(
            workers(
                8, ("sync (deep_ep/buffer.py:120)", "__init__ (deep_ep/buffer.py:110)", "test_loop (/srv/ll.py:150)")
            ),
            phase=Phase.COMM_INIT,
            engine="generic",
            gpus=gpus(8, name="NVIDIA H800"),
            log=[nccl_line("Connected all rings"), nccl_line("Connected all trees")],
        ),
    ),
    Case(
        id="homeops-13342",
        url="https://github.com/rwlove/home-ops/issues/13342",
        cause=UNKNOWN,
        lacks="any stack (no ptrace in that container), and which kernel is resident",
        bundle=vllm(
            workers(1, NO_PTRACE, threads=[thread(NO_PTRACE, name=f"worker-{at}") for at in range(12)]),
            phase=Phase.SERVING,
            host=host(container="kubernetes", may_ptrace="nobody", cpu_arch="aarch64"),
            gpus=gpus(1, name="NVIDIA GB10", architecture="121", utilisation=96.0, fabric="not supported"),
        ),
    ),
    Case(
        id="nccl-857",
        url="https://github.com/NVIDIA/nccl/issues/857",
        cause=UNKNOWN,
        lacks="the way between that GPU and the others: topology, P2P and SHM by pair",
        bundle=vllm(
            [worker(number, FIRST_ALL_REDUCE, native=SYNCS, state="R", cpu=1.0) for number in (0, 1, 2)],
            worker(3, IN_COMM_INIT, native=IN_LIBNCCL),
            phase=Phase.COMM_INIT,
            engine="generic",
            host=host(container="docker"),
            gpus=pcie_gpus(4, "NVIDIA GeForce RTX 3090", peers=()),
            log=[nccl_line("Using network Socket", number) for number in range(4)],
        ),
    ),
    Case(
        id="sglang-23265",
        url="https://github.com/sgl-project/sglang/issues/23265",
        cause=UNKNOWN,
        lacks="the phase that NCCL has reached on each rank, and whether its network plugin fits it",
        bundle=sglang(
            schedulers(8, SGLANG_INIT, native=IN_LIBNCCL),
            phase=Phase.COMM_INIT,
            host=host(container="kubernetes"),
            gpus=gpus(8),
            log=[nccl_line("Init START"), nccl_line("Bootstrap timings total 0.017 (create 0.0, send 0.0)")],
        ),
    ),
    Case(
        id="sglang-4054",
        url="https://github.com/sgl-project/sglang/issues/4054",
        cause=UNKNOWN,
        lacks="the size of /dev/shm, the bootstrap's interface, and the container's ipc mode",
        bundle=sglang(
            schedulers(8, SGLANG_INIT, native=IN_LIBNCCL),
            phase=Phase.COMM_INIT,
            host=host(container="docker"),
            gpus=pcie_gpus(8, "NVIDIA L40", peers=()),
            environment={"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"},
            log=[nccl_line("NET/Socket : Using [0]eth0:172.17.0.2<0>"), nccl_line("Init START")],
        ),
    ),
    Case(
        id="sglang-6496",
        url="https://github.com/sgl-project/sglang/issues/6496",
        cause=UNKNOWN,
        lacks="who holds the lock within libcuda, and whether a compiler works",
        bundle=sglang(
            schedulers(
                2,
                (
                    "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:640)",
                    "capture (sglang/srt/model_executor/cuda_graph_runner.py:500)",
                    SCHEDULER_MAIN,
                ),
                native=("sem_wait (libc.so.6)", "?? (libcuda.so.1)"),
            ),
            phase=Phase.GRAPH_CAPTURE,
            gpus=gpus(2),
            log=[line("Capture cuda graph begin. This can take up to several minutes.", source="TP0", number=0)],
        ),
    ),
    Case(
        id="sglang-7553",
        url="https://github.com/sgl-project/sglang/issues/7553",
        cause=UNKNOWN,
        lacks="stacks: py-spy was not there when it happened",
        bundle=sglang(
            schedulers(4, NO_PTRACE),
            phase=Phase.SERVING,
            gpus=gpus(4),
            options={"dp-size": "4", "tp-size": "8"},
            log=[
                line("Watchdog timeout (self.watchdog_timeout=300)", source="DP0 TP0", level="ERROR", ago_s=10),
                line("Pyspy failed to dump PID 4100. Error: py-spy: command not found", level="ERROR", ago_s=9),
            ],
        ),
    ),
    Case(
        id="sglang-9856",
        url="https://github.com/sgl-project/sglang/issues/9856",
        cause=UNKNOWN,
        lacks="the IMEX domain's state, NCCL_DEBUG's last line, NCCL_MNNVL_ENABLE=0 tried",
        bundle=sglang(
            schedulers(4, SGLANG_INIT),
            phase=Phase.COMM_INIT,
            nodes=2,
            host=host(cpu_arch="aarch64"),
            gpus=gpus(4, name="NVIDIA GB200", architecture="100", nvlinks=18),
            options={"nnodes": "2", "tp-size": "8"},
            log=[line("[Gloo] Rank 0 is connected to 7 peer ranks."), using_nccl("2.27.3", "TP0")],
        ),
    ),
    Case(
        id="trtllm-2560",
        url="https://github.com/NVIDIA/TensorRT-LLM/issues/2560",
        cause=UNKNOWN,
        lacks="which collective each rank is in",
        bundle=vllm(
            [worker(number, (), native=("?? (libnccl.so.2)", "?? (libtensorrt_llm.so)")) for number in (0, 1, 2)],
            worker(3, (), native=SYNCS),
            phase=Phase.SERVING,
            engine="generic",
            gpus=gpus(4),
        ),
    ),
    Case(
        id="vllm-12664",
        url="https://github.com/vllm-project/vllm/issues/12664",
        cause=UNKNOWN,
        lacks="what the run before had left on the GPUs: they were busy with no process until the reboot",
        bundle=vllm(
            workers(2, IN_COMM_INIT),
            phase=Phase.COMM_INIT,
            gpus=spinning(pcie_gpus(2, "NVIDIA GeForce RTX 3090", peers=(), power_limit_w=350.0), 115),
            log=[using_nccl("2.21.5")],
        ),
    ),
    Case(
        id="vllm-50430",
        url="https://github.com/vllm-project/vllm/issues/50430",
        cause=UNKNOWN,
        lacks="NCCL_DEBUG's last phase, native frames, the state of fabric manager and IMEX",
        bundle=vllm(
            workers(8, IN_COMM_INIT),
            phase=Phase.COMM_INIT,
            gpus=gpus(8, name="NVIDIA B200", architecture="100", nvlinks=18, power_w=140.0),
            log=[using_nccl("2.28.9")],
        ),
    ),
    Case(
        id="vllm-6895",
        url="https://github.com/vllm-project/vllm/issues/6895",
        cause=UNKNOWN,
        lacks="whether the child that tests peers is alive, and in which CUDA call",
        bundle=vllm(
            worker(0, P2P_CACHE, syscall="wait4(0x1068, 0x7f4000, 0x0)"),
            worker(1, ("barrier (torch/distributed/distributed_c10d.py:4100)", *P2P_CACHE[1:])),
            phase=Phase.COMM_INIT,
            version="0.5.3",
            gpus=pcie_gpus(2, "NVIDIA GeForce RTX 4090"),
            log=[using_nccl("2.20.5"), P2P_LINE],
        ),
    ),
    Case(
        id="vllm-8735",
        url="https://github.com/vllm-project/vllm/issues/8735",
        cause=UNKNOWN,
        lacks="the stack of the child that tests peers: in a CUDA call, or in the user's script again",
        bundle=vllm(
            worker(
                0,
                (
                    "_recv (multiprocessing/connection.py:395)",
                    "recv_bytes (multiprocessing/connection.py:216)",
                    *P2P_CACHE[1:],
                ),
                syscall="read(0x28, 0x7f4000, 0x4)",
                fds=(40,),
                files=[pipe(4105)],
            ),
            process(4105, "python", stack=NO_PTRACE, ppid=4100, files=[pipe(4100, access="w", fd=41)]),
            phase=Phase.COMM_INIT,
            version="0.6.1",
            gpus=pcie_gpus(2, "NVIDIA GeForce RTX 3090"),
            log=[using_nccl("2.20.5"), P2P_LINE],
        ),
    ),
)
