"""Machines of the first lot: shared memory, pinned memory, and the storage that weights come from."""

from tests.corpus.surroundings import (
    WORKER_MAIN,
    nccl_line,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    file,
    gpus,
    host,
    line,
    place,
    rank,
)


def horovod(*, refused: bool) -> Bundle:
    stack = ("init (horovod/common/basics.py:80)", "<module> (train.py:30)")
    said = [
        nccl_line("Ring 00 : 0[1a000] -> 1[1b000] via direct shared memory"),
        *[
            nccl_line("Call to posix_fallocate failed : No space left on device", 1, level="WARN")
            for _ in range(refused)
        ],
    ]
    small = {"shm_bytes": 64 << 20, "shm_used_bytes": 63 << 20} if refused else {}
    return bundle(
        [rank(n, name="python", stack=stack, native=["ncclAllReduce (libnccl.so.2)"]) for n in range(4)],
        engine="generic",
        phase=Phase.COMM_INIT,
        host=host(container="docker", **small),
        gpus=gpus(4, name="Tesla V100-SXM2-16GB", architecture="70"),
        log=said,
    )


def lmcache(*, pins: bool) -> Bundle:
    stack = (
        "_allocate_cpu_memory (lmcache/v1/memory_management.py:200)",
        "__init__ (lmcache/v1/memory_management.py:900)",
        "init_lmcache_engine (lmcache/integration/vllm/vllm_adapter.py:110)",
        WORKER_MAIN,
    )
    native = ("?? (libcuda.so.1)", "cudaHostAlloc (libcudart.so.12)") if pins else ()
    moves = Moves(memory_bytes=8 * GB, locked_bytes=8 * GB) if pins else Moves()
    return vllm(
        workers(4, stack, native=native, state="R" if pins else "S", cpu=0.9 * pins, moves=moves, memory=90 * GB),
        phase=Phase.KV_CACHE,
        host=host(memory_bytes=1800 * GB, memory_free_bytes=1300 * GB),
        gpus=gpus(4),
        log=[line("Creating LMCacheEngine instance vllm-instance", source="Worker_TP0", number=0)],
    )


def efs(*, network: bool) -> Bundle:
    kind = "nfs4" if network else "ext4"
    weights = "/mnt/cache/model-00042-of-00241.safetensors"
    stack = (
        "_get_tensor (vllm/model_executor/model_loader/weight_utils.py:700)",
        "load_weights (vllm/model_executor/models/qwen3_moe.py:520)",
        WORKER_MAIN,
    )
    moves = Moves(faults=900, memory_bytes=GB // 50, read_bytes=0) if network else Moves()
    return vllm(
        workers(
            8, stack, state="D" if network else "S", wchan="folio_wait_bit_common" if network else "", moves=moves,
            syscall="none: it blocks outside of any system call" if network else "futex(0x7f)",
            kernel=["folio_wait_bit_common", "filemap_fault"] if network else (),
            files=[file(weights, fd=-2, size=4 * GB, filesystem=kind)],
        ),
        phase=Phase.WEIGHTS,
        host=host(places=(place("weights", "/mnt/cache", filesystem=kind, needed_bytes=894 * GB),)),
        gpus=gpus(8, name="NVIDIA H200"),
        log=[line("Loading safetensors checkpoint shards:  17% Completed | 41/241", source="Worker_TP0", number=0)],
    )  # fmt: skip
