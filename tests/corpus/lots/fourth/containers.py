"""Machines of the fourth lot: what a container forbids, or puts in between."""

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    cuda_libraries,
    ended,
    front,
    gpus,
    helper,
    host,
    line,
    ordinary_facts,
    process,
    rank,
)


def no_threads(*, refused: bool) -> Bundle:
    said = "terminate called after throwing an instance of 'std::system_error'\n  what():  Operation not permitted"
    main = front(facts=ordinary_facts(libraries=(), capabilities=("chown",), seccomp=2))
    return bundle(
        [] if refused else [main],
        helper(facts=ordinary_facts(libraries=(), capabilities=("chown",), seccomp=2)),
        phase=Phase.SPAWN,
        host=host(container="docker"),
        exits=[ended(main, signal=6, ago_s=2)] if refused else [],
        log=[line(said, level="ERROR", ago_s=2)] if refused else [],
    )


def resolve(*, preloaded: bool) -> Bundle:
    shim = Library(path="/usr/local/vgpu/libvgpu.so", kind="preload", version="", preloaded=True)
    main = process(
        FRONT,
        "resolve",
        native=["futex_wait (libc.so.6)", "cuInit (libvgpu.so)", "cudaGetDeviceCount (libcudart.so.12)"]
        if preloaded
        else ["poll (libc.so.6)"],
        facts=ordinary_facts(libraries=(*cuda_libraries(driver="595.58"), *([shim] if preloaded else []))),
        ppid=1,
    )
    return bundle(
        main, engine="generic", phase=Phase.SPAWN, gpus=gpus(1, name="NVIDIA RTX A6000", architecture="86"),
        host=host(preload=("/usr/local/vgpu/libvgpu.so",) if preloaded else (), container="kubernetes"),
    )  # fmt: skip


def vader(*, refused: bool) -> Bundle:
    said = [line(f"Read -1, expected {size}, errno = 1", number=0, level="ERROR", ago_s=60) for size in (4128, 8196)]
    stack = ("Allreduce (mpi4py/MPI.py:1)", "<module> (bench.py:20)")
    return bundle(
        [
            rank(
                n,
                name="python",
                stack=stack,
                native=["mca_btl_vader_component_progress (libopen-pal.so.40)", "MPI_Allreduce (libmpi.so.40)"],
                state="R",
                cpu=1.0,
                facts=ordinary_facts(capabilities=("chown", "kill"), seccomp=2),
            )
            for n in range(2)
        ],
        engine="generic",
        phase=Phase.WARMUP,
        host=host(container="docker"),
        log=said if refused else [],
    )
