"""Machines of the twelfth lot that are like no others."""

from firstlight.core.gpu import Gpu
from firstlight.core.host import Host
from firstlight.testing.bundles import (
    GB,
    gpu,
    host,
    place,
)


def old(text: str, clock: str = "09:14:07") -> str:
    """A line of vLLM's log before it named who speaks."""
    return f"INFO 06-12 {clock} {text}"


def spark(**more: object) -> Gpu:
    """The GPU of a DGX Spark, which shares the machine's memory."""
    return gpu(
        0,
        **{
            "name": "NVIDIA GB10",
            "architecture": "121",
            "memory_total_bytes": 121 * GB,
            "memory_used_bytes": 70 * GB,
            "power_limit_w": 140.0,
            "power_w": 9.0,
            "fabric": "not supported",
            **more,
        },
    )


def spark_host(**more: object) -> Host:
    """Its machine."""
    return host(
        **{
            "cpus": 20,
            "cpu_arch": "aarch64",
            "memory_bytes": 121 * GB,
            "memory_free_bytes": 20 * GB,
            "numa_nodes": 1,
            "driver": "580.142",
            "cuda": "13.0",
            "kernel": "6.17.0-1008-nvidia",
            "places": (place("weights", "/models/llm", needed_bytes=60 * GB), place("home", "/root")),
            **more,
        }
    )
