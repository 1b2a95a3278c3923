"""Machines of the eleventh lot whose GPUs spin for a reason that nobody found, or that nobody could see."""

from msgspec.structs import replace
from tests.corpus.starts import (
    BARE,
    NO_NATIVE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    begun,
    core,
    detokenizer,
    listens,
    serves,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, scheduler, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.gpu import GpuProcess
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    front,
    gpus,
    helper,
    host,
    process,
    rank,
)

QUESTION = "no token within 60 s"


def one_idle() -> Bundle:
    """One of two nodes: every rank waits for its copy; three GPUs spin in an exchange, one is idle."""
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "process_batch_result_decode (sglang/srt/managers/scheduler_output_processor_mixin.py:310)",
        "event_loop_overlap (sglang/srt/managers/scheduler.py:1340)",
        SCHEDULER_MAIN,
    )
    names = [{"name": f"sglang::scheduler_TP{n}_EP{n}", "label": f"TP{n} EP{n}"} for n in range(4)]
    ranks = [scheduler(n, stack, state="R", cpu=1.0, native=NO_NATIVE, memory=11 * GB, **names[n]) for n in range(4)]
    log = [
        *(line.replace("TP0]", "TP0 EP0]") for line in serves(2) if " TP1]" not in line),
        at("TP0 EP0", "Decode batch, #running-req: 96, #token: 210110, cuda graph: True, gen throughput: 8110.2"),
    ]
    card = {"name": "NVIDIA GB200", "architecture": "100", "memory_total_bytes": 185 * GB, "power_limit_w": 1200.0}
    cards = gpus(4, memory_used_bytes=161 * GB, **card)
    return started(
        f"{SGLANG} --tp 8 --ep 8 --nnodes 2 --node-rank 0 --dist-init-addr 10.4.0.11:20000 --enable-memory-saver",
        listens(), detokenizer(), helper(), ranks, log=log, phase=Phase.SERVING, quiet_s=280, version="0.5.20",
        question=QUESTION, gpus=(*spinning(cards[:2], 231.0), cards[2], *spinning(cards[3:], 229.0)),
        host=host(cpu_arch="aarch64", cpus=144),
    )  # fmt: skip


def long_context() -> Bundle:
    """Eight H20 at 100 % with little power, at a single request of 245,000 tokens; the container forbids to look."""
    ranks = [
        rank(n, name=f"sglang::scheduler_TP{n}", label=f"TP{n}", ppid=FRONT, threads=idle_threads(), memory=12 * GB,
             **{**UNSEEN, "state": "R", "cpu": 1.0})
        for n in range(8)
    ]  # fmt: skip
    log = [
        *serves(8),
        at("TP0", "Decode batch, #running-req: 1, #full token: 245102, cuda graph: True, gen throughput: 41.70"),
    ]
    return started(
        f"{SGLANG} --tp 8 --attention-backend dsv4 --speculative-algorithm DSPARK --watchdog-timeout 600", listens(),
        detokenizer(), helper(), ranks, log=log, phase=Phase.SERVING, quiet_s=240, version="0.5.16",
        question=QUESTION,
        gpus=spinning(gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=90 * GB), 131.0),
        host=host(container="docker"),
    )  # fmt: skip


def one_b300() -> Bundle:
    """Under load a single B300 stays at 100 % and gives nothing more; its pod may not be looked into."""
    log = [
        *begun("/models/llm", "0.25.1"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        *[v("APIServer", "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
            "Running: 33 reqs, Waiting: 67 reqs", "loggers.py:259")] * 5,
    ]  # fmt: skip
    loop = front(
        stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"
    )
    card = gpus(1, name="NVIDIA B300 SXM6 AC", architecture="103", memory_total_bytes=275 * GB,
                memory_used_bytes=241 * GB, power_limit_w=1100.0)  # fmt: skip
    return started(
        "vllm serve /models/llm --max-num-seqs 128", loop, core(**{**UNSEEN, "state": "R", "cpu": 1.0}),  # type: ignore[arg-type]
        helper(), log=log, phase=Phase.SERVING, quiet_s=400, question=QUESTION, gpus=spinning(card, 344.0),
        host=host(container="kubernetes", driver="580.105.08", cuda="13.0"),
    )  # fmt: skip


def beside_onnx() -> Bundle:
    """TensorRT-LLM's two ranks do not come back from a step since another program computes on one of their GPUs."""
    told = {"native": NO_NATIVE, "state": "R", "cpu": 1.0, "memory": 11 * GB, "threads": idle_threads(),
            "stack": ("synchronize (torch/cuda/streams.py:95)",
                      "generate (tensorrt_llm/runtime/model_runner_cpp.py:510)",
                      "main (/app/examples/run.py:440)")}  # fmt: skip
    ranks = [rank(n, name="python3 run.py", label=f"rank {n}", ppid=FRONT, **told) for n in (0, 1)]
    main = process(
        FRONT, "mpirun", ppid=1, native=("poll (libc.so.6)",), facts=BARE, syscall="poll(0x55, 0x9, 0xffffffff)"
    )
    cards = spinning(gpus(2, memory_used_bytes=61 * GB), 139.0)
    other = GpuProcess(pid=9911, memory_bytes=GB, here=False)
    cards = (replace(cards[0], processes=(other,)), cards[1])
    return started(
        "mpirun -n 2 --allow-run-as-root python3 run.py --engine_dir /engines/mixtral --max_output_len 80", main,
        ranks,
        log=["[TensorRT-LLM] TensorRT-LLM version: 0.9.0", "[TensorRT-LLM][INFO] Rank 0 is using GPU 0",
             "[TensorRT-LLM][INFO] Rank 1 is using GPU 1"],
        phase=Phase.WARMUP, quiet_s=600, ranks=2, gpus=cards, host=host(container="docker"),
    )  # fmt: skip
