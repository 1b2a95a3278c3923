"""What surrounds a stall on real machines, so that causes face noise: idle threads, usual lines, other processes."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.log import LogLine
from firstlight.core.look import ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.testing.bundles import FRONT, Made, bundle, engine, front, gpu, helper, line, process, rank, thread

NO_LINKS = Gap(what="NVLinks", reason=GapReason.NOT_SUPPORTED, detail="this GPU has none")

WORKER_MAIN = "worker_main (vllm/v1/executor/multiproc_executor.py:720)"
IN_COMM_INIT = (
    "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)",
    "__init__ (vllm/distributed/device_communicators/pynccl.py:140)",
    "initialize_model_parallel (vllm/distributed/parallel_state.py:1210)",
    "init_device (vllm/v1/worker/gpu_worker.py:290)",
    WORKER_MAIN,
)
FIRST_ALL_REDUCE = (
    "synchronize (torch/cuda/streams.py:108)",
    "all_reduce (vllm/distributed/device_communicators/pynccl.py:168)",
    "__init__ (vllm/distributed/device_communicators/pynccl.py:146)",
    "init_device (vllm/v1/worker/gpu_worker.py:290)",
    WORKER_MAIN,
)
IDLE_WORKER = (
    "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:520)",
    "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:580)",
    "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:800)",
    WORKER_MAIN,
)
SCHEDULER_MAIN = "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)"
SGLANG_INIT = (
    "ncclCommInitRank (sglang/srt/distributed/device_communicators/pynccl_wrapper.py:360)",
    "__init__ (sglang/srt/distributed/device_communicators/pynccl.py:120)",
    "initialize_model_parallel (sglang/srt/distributed/parallel_state.py:1500)",
    "init_torch_distributed (sglang/srt/model_executor/model_runner.py:700)",
    SCHEDULER_MAIN,
)
SYNCS = ("cuStreamSynchronize (libcuda.so.1)", "cudaStreamSynchronize (libcudart.so.12)")
BROADCAST_LINE = line(
    "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are "
    "hanging",
    source="EngineCore",
    ago_s=40,
)


def idle_threads() -> tuple[ThreadLook, ...]:
    """Threads that every worker has and that mean nothing."""
    return (
        thread(
            ["wait (threading.py:331)", "run (tqdm/_monitor.py:60)"],
            name="Thread-1",
            syscall="futex(0x7f3b20, 0x189, 0x0, 0x7f3b00)",
        ),
        thread(name="pt_nccl_watchdg", syscall="clock_nanosleep(0x1, 0x0, 0x7f3b00)", native=[
            "clock_nanosleep (libc.so.6)", "c10d::ProcessGroupNCCL::Watchdog::runLoop() (libtorch_cuda.so)",
        ]),
        thread(name="ZMQbg/IO/0", syscall="epoll_wait(0x11, 0x7f3c00, 0x100, 0xffffffff)", native=[
            "epoll_wait (libc.so.6)", "zmq::epoll_t::loop() (libzmq.so.5)",
        ]),
        thread(name="cuda-EvtHandlr", syscall="poll(0x7f3d00, 0xa, 0x64)", native=[
            "poll (libc.so.6)", "?? (libcuda.so.1)",
        ]),
    )  # fmt: skip


def worker(number: int, stack: Sequence[str] | Gap, **more: object) -> Made:
    """A vLLM worker with its idle threads."""
    return rank(number, stack=stack, **{"threads": idle_threads(), **more})


def workers(count: int, stack: Sequence[str] | Gap, **more: object) -> tuple[Made, ...]:
    return tuple(worker(number, stack, **more) for number in range(count))


def scheduler(number: int, stack: Sequence[str] | Gap, **more: object) -> Made:
    """A rank of SGLang with its idle threads."""
    named = {"name": f"sglang::scheduler_TP{number}", "label": f"TP{number}", "ppid": FRONT}
    return rank(number, stack=stack, **{"threads": idle_threads(), **named, **more})


def schedulers(count: int, stack: Sequence[str] | Gap, **more: object) -> tuple[Made, ...]:
    return tuple(scheduler(number, stack, **more) for number in range(count))


def vllm(*workers_: Made | Iterable[Made], log: Iterable[LogLine] = (), **more: object) -> Bundle:
    """A vLLM server in the middle of things."""
    usual = (
        line("Initializing a V1 LLM engine with config: model='/models/llm'", source="EngineCore", ago_s=500),
        line("Failed to import from vllm._flashmla_C", source="Worker_TP0", number=0, level="WARNING", ago_s=480),
        line("rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0", source="Worker_TP0", number=0),
    )
    return bundle(front(), engine(), helper(), *workers_, log=(*usual, *log), **more)


def sglang(*ranks_: Made | Iterable[Made], log: Iterable[LogLine] = (), **more: object) -> Bundle:
    """An SGLang server in the middle of things."""
    main = front(
        stack=[
            "_poll (multiprocessing/connection.py:425)",
            "poll (multiprocessing/connection.py:257)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1500)",
            "launch_server (sglang/srt/entrypoints/http_server.py:1700)",
        ],
        label="",
    )
    detokenizer = process(
        4030,
        "sglang::detokenizer",
        stack=["recv (zmq/sugar/socket.py:1120)", "event_loop (sglang/srt/managers/detokenizer_manager.py:110)"],
        syscall="poll(0x7f3e00, 0x1, 0xffffffff)",
        role=helper().look.process.role,
        facts=helper().look.facts,
    )
    usual = (
        line("server_args=ServerArgs(model_path='/models/llm')", ago_s=500),
        line("Attention backend not specified. Use flashinfer backend by default.", ago_s=499),
        line("Init torch distributed begin.", source="TP0", number=0, ago_s=460),
    )
    return bundle(main, detokenizer, helper(), *ranks_, log=(*usual, *log), **{"engine": "sglang", **more})


def pcie_gpus(count: int, name: str = "NVIDIA GeForce RTX 5090", **more: object) -> tuple[Gpu, ...]:
    """GPUs that only PCIe connects, whose driver claims peer access."""
    told: Mapping[str, object] = {
        "name": name,
        "architecture": "120",
        "fabric": "not supported",
        "nvlinks": NO_LINKS,
        "nvlinks_down": NO_LINKS,
        "power_w": 28.0,
        "power_limit_w": 575.0,
        "memory_total_bytes": 32 << 30,
        "bar1_bytes": 32 << 30,
        **more,
    }
    return tuple(
        gpu(index, **{"peers": tuple((other, "ok") for other in range(count) if other != index), **told})
        for index in range(count)
    )


def spinning(cards: Iterable[Gpu], power_w: float, memory: float = 0.0) -> tuple[Gpu, ...]:
    """The same GPUs, busy without working."""
    return tuple(replace(card, utilisation=100.0, power_w=power_w, memory_activity=memory) for card in cards)


def nccl_line(text: str, number: int = 0, ago_s: float = 310, level: str = "INFO") -> LogLine:
    """A line of NCCL's own log."""
    said = f"node-a:{4100 + number}:{4100 + number} [{number}] NCCL {level} {text}"
    return line(
        said, source=f"Worker_TP{number}", number=number, ago_s=ago_s, level="WARNING" if level == "WARN" else ""
    )


def using_nccl(version: str = "2.27.5", source: str = "Worker_TP0") -> LogLine:
    """The famous last line, which tells nothing."""
    return line(f"is using nccl=={version}", source=source, number=0, ago_s=320)
