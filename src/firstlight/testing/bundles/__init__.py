"""Bundles made by hand: a server, its machine and its log in a few lines, with only what matters spelled out.

    bundle(
        front(),
        rank(0, stack=["all_reduce (vllm/distributed/pynccl.py:150)"], cpu=1.0),
        rank(1, stack=["wait (threading.py:320)", "load (vllm/loader.py:88)"], syscall="futex(0x7f00)"),
        phase=Phase.WEIGHTS, host=host(shm_bytes=64 << 20), log=["loading", line("refused", level="ERROR")],
    )

Two looks are made, `apart_s` seconds apart, that differ by what each process `moves` and each folder `grows`.
"""

from firstlight.testing.bundles.facts import (
    GB,
    cuda_libraries,
    device,
    file,
    ordinary_cgroup,
    ordinary_facts,
    pipe,
    socket,
)
from firstlight.testing.bundles.machine import NOW, folder, gpu, gpus, host, interface, place
from firstlight.testing.bundles.processes import (
    ENGINE,
    FIRST_COMPILER,
    FIRST_HELPER,
    FIRST_RANK,
    FRONT,
    Made,
    Moves,
    compiler,
    engine,
    front,
    helper,
    process,
    rank,
    ranks,
)
from firstlight.testing.bundles.stacks import NO_PTRACE, PACKAGES, frame, native_frame, thread
from firstlight.testing.bundles.whole import bundle, ended, line, tails

__all__ = [
    "ENGINE",
    "FIRST_COMPILER",
    "FIRST_HELPER",
    "FIRST_RANK",
    "FRONT",
    "GB",
    "NOW",
    "NO_PTRACE",
    "PACKAGES",
    "Made",
    "Moves",
    "bundle",
    "compiler",
    "cuda_libraries",
    "device",
    "ended",
    "engine",
    "file",
    "folder",
    "frame",
    "front",
    "gpu",
    "gpus",
    "helper",
    "host",
    "interface",
    "line",
    "native_frame",
    "ordinary_cgroup",
    "ordinary_facts",
    "pipe",
    "place",
    "process",
    "rank",
    "ranks",
    "socket",
    "tails",
    "thread",
]
