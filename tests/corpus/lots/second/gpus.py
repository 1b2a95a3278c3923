"""Machines of the second lot: GPUs that are stuck or taken."""

from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gpu import GpuProcess
from firstlight.core.look import Leftover
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    GB,
    NO_PTRACE,
    bundle,
    ended,
    engine,
    front,
    gpus,
    line,
    ordinary_facts,
    rank,
)


def wedged(*, kernel: bool) -> Bundle:
    frames = ("uvm_spin_loop", "uvm_tracker_wait", "uvm_api_map_external_allocation", "uvm_ioctl")
    core = engine(
        stack=NO_PTRACE, state="R", cpu=1.0, kernel=frames if kernel else (), facts=ordinary_facts(), memory=30 * GB
    )
    return bundle(front(), core, phase=Phase.SERVING, gpus=gpus(1, memory_used_bytes=48 * GB), question="no token")


def uvm_lock(*, told: bool) -> Bundle:
    said = (
        "INFO: task python3.11:15277 blocked for more than 120 seconds.",
        "uvm_api_alloc_semaphore_pool+0x19c/0x2f0 [nvidia_uvm]",
        "NVRM: GPU at PCI:0000:1b:00: GPU-5f, RPC time-out",
    )
    kernel = ("mutex_lock", "uvm_page_tree_get_ptes_async", "uvm_mem_map_gpu_kernel", "uvm_ioctl")
    stuck = {"state": "D", "kernel": kernel, "wchan": "uvm_page_tree_get_ptes_async"} if told else {}
    return bundle(
        [
            rank(
                n,
                name="python3.11",
                stack=["_lazy_init (torch/cuda/__init__.py:300)", "<module> (rnn.py:4)"],
                **stuck,
            )
            for n in range(4)
        ],
        engine="generic",
        phase=Phase.COMM_INIT,
        kernel_log=said[:2] if told else (),
    )


def orphans(*, there: bool) -> Bundle:
    card = replace(
        gpus(1, name="NVIDIA L40S", architecture="89", memory_total_bytes=48 * GB)[0],
        memory_used_bytes=23 * GB if there else GB,
        processes=(GpuProcess(pid=2211, memory_bytes=22 * GB, here=True),) if there else (),
    )
    old = Leftover(pid=2211, name="VLLM::Worker", state="S", age_s=8000, holds=("GPU 0",))
    said = "ValueError: Free memory on device (24.9/48.0 GiB) on startup is less than desired (0.9, 43.2 GiB)."
    return bundle(
        front(),
        phase=Phase.MODEL_INIT,
        gpus=(card,),
        leftovers=[old] if there else [],
        log=[line(said, source="EngineCore", level="ERROR")] if there else [],
        exits=[ended(engine(), code=1)] if there else [],
    )
