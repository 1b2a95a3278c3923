"""Machines of the second lot: builds that fail."""

from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    vllm,
    worker,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    GB,
    compiler,
    ended,
    gpus,
    host,
    line,
)


def ninja(*, failed: bool) -> Bundle:
    waits = (
        "all_reduce (torch/distributed/distributed_c10d.py:2900)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:4400)",
        WORKER_MAIN,
    )
    said = (
        "RuntimeError: Ninja build failed. Ninja output: FAILED: batch_prefill_paged_kernel_mask_0.cuda.o "
        "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found ninja: build stopped: subcommand failed."
    )
    first = worker(0, waits)
    return vllm(
        [] if failed else [first],
        worker(1, waits, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.WARMUP,
        ranks=2,
        gpus=gpus(2, name="NVIDIA GeForce RTX 4090", architecture="89"),
        exits=[ended(first, code=1)] if failed else [],
        log=[line(said, source="Worker_TP0", number=0, level="ERROR", ago_s=41)] if failed else [],
    )


def cicc(*, killed: bool) -> Bundle:
    builds = (
        "wait (subprocess.py:2053)",
        "run (subprocess.py:552)",
        "run_ninja (flashinfer/jit/cpp_ext.py:340)",
        "build_and_load (flashinfer/jit/core.py:330)",
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)",
    )
    ninja = compiler("ninja", number=50, state="S", cpu=0.0)
    dead = [compiler("cicc", number=n) for n in range(3)]
    said = tuple(f"Out of memory: Killed process {4900 + n} (cicc) total-vm:9000000kB" for n in range(3))
    return vllm(
        worker(0, builds if killed else builds[4:], syscall="wait4(0x1356)"),
        [ninja, compiler("cicc", number=9)] if killed else [],
        phase=Phase.WARMUP,
        host=host(memory_bytes=61 * GB, memory_free_bytes=GB),
        exits=[ended(one, signal=9, oom=True, ago_s=60 * n + 5) for n, one in enumerate(dead)] if killed else [],
        kernel_log=said if killed else (),
    )
