"""Machines of the fourth lot: caches and weights in the wrong place."""

from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    vllm,
    worker,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    ended,
    file,
    host,
    line,
    place,
    process,
)


def shared_caches(*, stale: bool) -> Bundle:
    said = (
        "FileNotFoundError: [Errno 2] No such file or directory: '/cache/huggingface/triton/9f2/fused_moe.cubin.tmp'",
        "OSError: [Errno 116] Stale file handle: '/cache/huggingface/vllm-cache/torch_compile_cache/aa/rank_0_0'",
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN)
    kind = "nfs4" if stale else "ext4"
    return vllm(
        [] if stale else worker(1, waits),
        worker(0, waits, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMPILE,
        nodes=2,
        ranks=2,
        host=host(places=(place("compile_cache", "/cache/huggingface/vllm-cache", filesystem=kind),)),
        exits=[ended(worker(1, waits), code=1)] if stale else [],
        log=[line(one, source="Worker_TP1", number=1, level="ERROR", ago_s=41) for one in said] if stale else [],
    )


def numactl(*, cold: bool) -> Bundle:
    mapped = file("/opt/models/gpt-oss-120b-mxfp4.gguf", fd=-2, size=63 * GB)
    main = process(
        FRONT,
        "llama-server",
        state="D" if cold else "S",
        kernel=["folio_wait_bit_common", "filemap_fault", "do_fault"] if cold else (),
        syscall="none: it blocks outside of any system call" if cold else "futex(0x7f)",
        wchan="folio_wait_bit_common" if cold else "",
        moves=Moves(faults=40_000, memory_bytes=160 << 20) if cold else Moves(),
        files=[mapped],
        role=Role.FRONT,
        ppid=1,
        memory=9 * GB,
    )
    return bundle(
        main, engine="generic", phase=Phase.WEIGHTS, motion=Motion.SLOW, options={"numa": "numactl"},
        host=host(places=(place("weights", "/opt/models", needed_bytes=63 * GB),)),
    )  # fmt: skip
