"""Reports about NCCL itself, and about libraries between the program and CUDA."""

from collections.abc import Sequence

from tests.corpus.case import Case
from tests.corpus.surroundings import (
    BROADCAST_LINE,
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SGLANG_INIT,
    SYNCS,
    WORKER_MAIN,
    idle_threads,
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

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.log import LogLine
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    cuda_libraries,
    gpus,
    host,
    line,
    ordinary_facts,
    rank,
    socket,
    thread,
)

GATHERS = (
    "synchronize (torch/cuda/streams.py:108)",
    "all_gather (vllm/distributed/parallel_state.py:560)",
    "forward (vllm/model_executor/models/llama.py:410)",
    "execute_model (vllm/v1/worker/gpu_worker.py:600)",
    WORKER_MAIN,
)
CAPTURES = (
    "_capture_one_stream (sglang/srt/model_executor/cuda_graph_runner.py:600)",
    "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:640)",
    "capture (sglang/srt/model_executor/cuda_graph_runner.py:500)",
    SCHEDULER_MAIN,
)
VGPU = Library(path="/usr/local/vgpu/libvgpu.so", kind="profiler", preloaded=True)
JEMALLOC = Library(path="/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", kind="preload", preloaded=True)
INSTRUMENT = Library(path="/opt/tools/nvbit/tools/opcode_hist/opcode_hist.so", kind="profiler", preloaded=True)


def _append(version: str) -> Bundle:
    facts = ordinary_facts(libraries=cuda_libraries(nccl=version))
    stuck = ("pthread_cond_wait (libc.so.6)", "ncclLocalOpAppend (libnccl.so.2)", "ncclProxySaveOp (libnccl.so.2)")
    return vllm(
        worker(0, GATHERS, native=stuck, facts=facts),
        [worker(number, GATHERS, native=SYNCS, facts=facts, state="R", cpu=1.0) for number in (1, 2, 3)],
        phase=Phase.SERVING,
        engine="generic",
        nodes=128,
        host=host(cpu_arch="aarch64", numa_nodes=4),
        gpus=spinning(gpus(4, name="NVIDIA GB200", architecture="100", nvlinks=18, power_limit_w=1200.0), 310),
    )


def _capture(version: str) -> Bundle:
    return sglang(
        schedulers(4, CAPTURES, facts=ordinary_facts(libraries=cuda_libraries(nccl=version)), native=SYNCS),
        phase=Phase.GRAPH_CAPTURE,
        gpus=gpus(4),
        options={"disaggregation-mode": "decode", "enable-two-batch-overlap": ()},
        log=[line("Capture cuda graph begin. This can take up to several minutes.", source="TP0", number=0)],
    )


def _shim(native: Sequence[str], library: Library) -> Bundle:
    facts = ordinary_facts(libraries=(*cuda_libraries(nccl="2.28.9"), library))
    return vllm(
        workers(4, IN_COMM_INIT, native=native, facts=facts),
        phase=Phase.COMM_INIT,
        host=host(container="kubernetes", preload=(library.path,)),
        gpus=pcie_gpus(4, "NVIDIA RTX PRO 6000 Blackwell"),
        log=[using_nccl("2.28.9")],
    )


def _before_nccl(library: Library) -> Bundle:
    stack = ("_cuda_init (torch/cuda/__init__.py:400)", "init_device (vllm/v1/worker/gpu_worker.py:260)", WORKER_MAIN)
    return vllm(
        workers(2, stack, facts=ordinary_facts(libraries=(*cuda_libraries(), library))),
        phase=Phase.COMM_INIT,
        host=host(container="kubernetes"),
        gpus=pcie_gpus(2),
        environment={"NCCL_SOCKET_IFNAME": "lo"},
        log=[line("Waiting for 1 local, 0 remote core engine proc(s) to start.", level="DEBUG")],
    )


def _instrumented(library: Library) -> Bundle:
    return sglang(
        schedulers(2, SGLANG_INIT, facts=ordinary_facts(libraries=(*cuda_libraries(nccl="2.21.5"), library))),
        phase=Phase.COMM_INIT,
        gpus=pcie_gpus(2, "NVIDIA RTX A6000"),
        log=[using_nccl("2.21.5", "TP0")],
    )


def _two_toolkits(second: Sequence[Library]) -> Bundle:
    facts = ordinary_facts(libraries=(*cuda_libraries(), *second))
    return vllm(
        workers(2, IN_COMM_INIT, facts=facts),
        phase=Phase.COMM_INIT,
        host=host(container="docker", cuda="13.0", driver="580.65.06"),
        gpus=gpus(2),
        log=[using_nccl("2.27.5")],
    )


def _after_silence(*said: LogLine) -> Bundle:
    progress = thread(name="NCCL Progress", syscall="poll(0x7f4000, 0x1, 0x64)")
    made = [socket("10.2.0.11:41822", "10.2.4.7:36001", fd=71)]
    return vllm(
        rank(0, stack=GATHERS, threads=(*idle_threads(), progress), files=made),
        phase=Phase.SERVING,
        engine="generic",
        nodes=2,
        host=host(container="kubernetes"),
        gpus=gpus(1),
        log=said,
    )


CASES = (
    Case(
        id="marin-7344",
        url="https://github.com/marin-community/marin/issues/7344",
        cause="nccl_version",
        bundle=_append("2.28.9"),
        shows="one rank waits in ncclLocalOpAppend, on aarch64, with NCCL 2.28.9",
        twin=_append("2.30.7"),
    ),
    Case(
        id="sglang-7602",
        url="https://github.com/sgl-project/sglang/issues/7602",
        cause="nccl_version",
        bundle=_capture("2.21.5"),
        shows="ranks capture graphs with NCCL 2.21.5",
        twin=_capture("2.26.2"),
    ),
    Case(
        id="vllm-42354",
        url="https://github.com/vllm-project/vllm/issues/42354",
        cause="nccl_version",
        lacks="an A/B with the system's libnccl: both ranks map the same file, whose version string tells nothing",
        bundle=vllm(
            worker(0, ("ncclAllReduce (vllm/distributed/device_communicators/pynccl_wrapper.py:480)", *GATHERS[1:])),
            phase=Phase.SERVING,
            nodes=2,
            host=host(cpu_arch="aarch64"),
            gpus=gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported", power_limit_w=140.0),
            log=[
                line("Watchdog caught collective operation timeout: WorkNCCL(OpType=_ALLGATHER_BASE)", level="ERROR"),
                BROADCAST_LINE,
            ],
        ),
    ),
    Case(
        id="nccl-2334",
        url="https://github.com/NVIDIA/nccl/issues/2334",
        cause="nccl_transport_bug",
        lacks="the request slots of NCCL's IB transport, from a debugger, with several versions of NCCL",
        bundle=vllm(
            worker(0, GATHERS, native=SYNCS, state="R", cpu=1.0),
            phase=Phase.SERVING,
            nodes=4,
            gpus=gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported", power_limit_w=140.0),
            environment={"NCCL_CROSS_NIC": "1"},
            log=[
                line("timed out on _ALLGATHER_BASE (SeqNum=90211, Timeout(ms)=600000)", level="ERROR", ago_s=20),
            ],
        ),
    ),
    Case(
        id="nccl-1619",
        url="https://github.com/NVIDIA/nccl/issues/1619",
        cause="idle_connection_drop",
        bundle=_after_silence(
            nccl_line("socketProgress: recv from 10.2.4.7 failed : Connection timed out", level="WARN")
        ),
        shows="reading from a connection that was made timed out, and a rank waits for what should come over it",
        twin=_after_silence(),
    ),
    Case(
        id="hami-2641",
        url="https://github.com/Project-HAMi/HAMi/issues/2641",
        cause="preload_shim",
        bundle=_shim(
            (
                "futex_wait (libc.so.6)",
                "cuMemCreate (libvgpu.so)",
                "ncclCuMemHostEnable (libnccl.so.2)",
                "ncclCommInitRank (libnccl.so.2)",
            ),
            VGPU,
        ),
        shows="native frames: the preloaded libvgpu.so waits in its own cuMemCreate",
        twin=_shim(("futex_wait (libc.so.6)", "?? (libnccl.so.2)", "ncclCommInitRank (libnccl.so.2)"), JEMALLOC),
    ),
    Case(
        id="hamicore-261",
        url="https://github.com/Project-HAMi/HAMi-core/issues/261",
        cause="preload_shim",
        bundle=_before_nccl(VGPU),
        shows="libvgpu.so is preloaded into ranks that stand in the start of CUDA",
        twin=_before_nccl(JEMALLOC),
    ),
    Case(
        id="nvbit-151",
        url="https://github.com/NVlabs/NVBit/issues/151",
        cause="preload_shim",
        bundle=_instrumented(INSTRUMENT),
        shows="an instrumentation library is loaded into ranks in ncclCommInitRank",
        twin=_instrumented(JEMALLOC),
    ),
    Case(
        id="vllm-28283",
        url="https://github.com/vllm-project/vllm/issues/28283",
        cause="driver_toolkit_mismatch",
        bundle=_two_toolkits(
            [Library(path="/usr/local/cuda-13.0/lib64/libcudart.so.13", kind="cuda_runtime", version="13.0")]
        ),
        shows="ranks in ncclCommInitRank map CUDA runtimes 12 and 13",
        twin=_two_toolkits([]),
    ),
)
