"""Machines of the fifth lot: processes that ended, or never began."""

from tests.corpus.surroundings import (
    IDLE_WORKER,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
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


def three_of_four(*, missing: bool) -> Bundle:
    there = [0, 1, 3] if missing else [0, 1, 2, 3]
    return vllm(
        [worker(n, IDLE_WORKER) for n in there],
        phase=Phase.SERVING,
        ranks=4,
        gpus=gpus(4),
        question="no token within 60 s",
    )


def one_after_the_other(*, crashed: bool) -> Bundle:
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


def bootstrapping(*, told: bool) -> Bundle:
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


def host_memory(*, killed: bool) -> Bundle:
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
