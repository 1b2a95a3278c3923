"""Machines of the fifth lot: caches and locks of compilers."""

from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    ended,
    gpus,
    host,
    line,
    place,
    rank,
)


def triton(*, stale: bool) -> Bundle:
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


def eight_polls(*, polls: bool) -> Bundle:
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
