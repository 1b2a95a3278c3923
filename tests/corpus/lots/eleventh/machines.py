"""Machines of the eleventh lot that are like no others."""

from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.gpu import Gpu
from firstlight.core.host import Host
from firstlight.core.look import Look, OpenFile
from firstlight.testing.bundles import (
    GB,
    gpus,
    host,
)


def spark(**more: object) -> Host:
    """A DGX Spark: one chip, whose GPU shares the memory of the machine."""
    told = {"cpus": 20, "cpu_arch": "aarch64", "memory_bytes": 121 * GB, "memory_free_bytes": 14 * GB}
    return host(**{**told, "driver": "580.142", "cuda": "13.0", "numa_nodes": 1, **more})


def gb10(used: int = 88, **more: object) -> tuple[Gpu, ...]:
    """Its GPU."""
    told = {"name": "NVIDIA GB10", "architecture": "121", "memory_total_bytes": 121 * GB, "fabric": "not supported"}
    return gpus(1, **{**told, "memory_used_bytes": used * GB, **more})


def sends(made: Bundle, fd: int, grew: int, sent: int) -> Bundle:
    """The same, with what the peers of the sockets of this descriptor have confirmed, and how it grew."""

    def counted(look: Look, bytes_: int) -> Look:
        def of(one: OpenFile) -> OpenFile:
            if one.fd != fd or one.socket is None:
                return one
            return replace(one, socket=replace(one.socket, sent_bytes=bytes_, received_bytes=4096))

        changed = [replace(one, files=tuple(map(of, one.files))) for one in look.processes]
        return replace(look, processes=tuple(changed))

    first, last = made.looks
    return replace(made, looks=(counted(first, sent - grew), counted(last, sent)))
