"""Reports of processes that end without a word, or stay up and are of no use."""

from collections.abc import Iterable

from tests.corpus.case import Case
from tests.corpus.surroundings import FIRST_ALL_REDUCE, IDLE_WORKER, SCHEDULER_MAIN, scheduler, sglang, vllm, workers

from firstlight.core.bundle import Bundle
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    GB,
    bundle,
    ended,
    engine,
    front,
    gpus,
    host,
    line,
    ordinary_facts,
    process,
    rank,
)

SERVES = (
    "recv_requests (sglang/srt/managers/scheduler.py:1400)",
    "event_loop_normal (sglang/srt/managers/scheduler.py:900)",
)


def _executor(*exits: Exit) -> Bundle:
    stack = ("all_gather (mpi4py/util/pkl5.py:400)", *FIRST_ALL_REDUCE[2:])
    count = 3 if exits else 4
    return vllm(workers(count, stack), phase=Phase.SERVING, engine="generic", gpus=gpus(4), exits=exits, ranks=4)


def _after_idling(*exits: Exit) -> Bundle:
    there = [] if exits else workers(1, IDLE_WORKER)
    return vllm(there, phase=Phase.SERVING, nodes=2, gpus=gpus(1, name="NVIDIA GB10"), exits=exits, quiet_s=1800)


def _cold_load(exits: Iterable[Exit], *others: object) -> Bundle:
    return bundle(
        front(),
        *others,  # type: ignore[arg-type]
        phase=Phase.WEIGHTS,
        host=host(name="spark-1", cpu_arch="aarch64", memory_bytes=119 * GB, memory_free_bytes=GB),
        gpus=gpus(1, name="NVIDIA GB10", architecture="121", fabric="not supported"),
        exits=tuple(exits),
        log=[line("Engine core initialization failed. See root cause above. Failed core proc(s): {}", level="ERROR")],
    )


CASES = (
    Case(
        id="llamacpp-18337",
        url="https://github.com/ggml-org/llama.cpp/issues/18337",
        cause="cpu_spin",
        lacks="native frames of the thread that computes, at several looks",
        bundle=bundle(
            process(4100, "llama-fit-params", state="R", cpu=1.0, facts=ordinary_facts(libraries=()), memory=GB),
            phase=Phase.MODEL_INIT,
            engine="generic",
            gpus=gpus(5, name="NVIDIA GeForce RTX 3090", architecture="86", fabric="not supported"),
        ),
    ),
    Case(
        id="sglang-4730",
        url="https://github.com/sgl-project/sglang/issues/4730",
        cause="rank_died",
        lacks="that the scheduler ended: its process is still there, and waits for requests",
        bundle=sglang(
            scheduler(0, (*SERVES, SCHEDULER_MAIN), syscall="poll(0x7f41, 0x1, 0x64)"),
            phase=Phase.SERVING,
            version="0.4.1.post7",
            host=host(container="kubernetes"),
            gpus=gpus(1, memory_used_bytes=70 * GB),
            log=[
                line(
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.2 GiB.", level="ERROR", ago_s=900
                )
            ],
        ),
    ),
    Case(
        id="trtllm-16592",
        url="https://github.com/NVIDIA/TensorRT-LLM/pull/16592",
        cause="rank_died",
        bundle=_executor(ended(rank(3), code=1)),
        shows="a rank has ended, the others are in a collective",
        twin=_executor(),
    ),
    Case(
        id="vllm-42742",
        url="https://github.com/vllm-project/vllm/issues/42742",
        cause="rank_died",
        bundle=_after_idling(ended(rank(0), signal=6)),
        shows="the worker was ended by SIGABRT, after half an hour without work",
        twin=_after_idling(),
    ),
    Case(
        id="vllm-45179",
        url="https://github.com/vllm-project/vllm/pull/45179",
        cause="process_died",
        bundle=_cold_load([ended(engine(), signal=9, oom=True)]),
        shows="the engine was killed, and the kernel's counters tell of its OOM killer",
        twin=_cold_load([], engine()),
    ),
)
