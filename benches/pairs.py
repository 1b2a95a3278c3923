"""Two things measured in turns, so that a busy machine slows both: the median ratio is what lasts, not the seconds.

Nothing here passes or fails. A number is printed with its spread and the machine it comes from.
"""

import os
import platform
import socket
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Measure = Callable[[], float]
"""Does the thing once, and returns what it took: seconds, or how many a second."""


class Pairs(NamedTuple):
    """What both took, one pair for each turn."""

    first: tuple[float, ...]
    second: tuple[float, ...]


def in_turns(first: Measure, second: Measure, times: int) -> Pairs:
    """Measure first, second, first, second …; the first pair warms the caches and is thrown away."""
    pairs = [(first(), second()) for _ in range(times + 1)][1:]
    return Pairs(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def compare(
    first_name: str, first: Measure, second_name: str, second: Measure, times: int, *, unit: str = " s"
) -> tuple[float, float]:
    """Print both medians and the median of second/first, each with its least and most; returns both medians."""
    print(machine())
    pairs = in_turns(first, second, times)
    print(f"  {first_name:<44} {spread(pairs.first, unit)}")
    print(f"  {second_name:<44} {spread(pairs.second, unit)}")
    ratios = [b / a for a, b in zip(*pairs, strict=True)]
    print(f"  {second_name} / {first_name}: {spread(ratios, ' x')}, {times} pairs\n", flush=True)
    return statistics.median(pairs.first), statistics.median(pairs.second)


def spread(numbers: Sequence[float], unit: str) -> str:
    return f"{statistics.median(numbers):7.3f}{unit} ({min(numbers):.3f} .. {max(numbers):.3f})"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def machine() -> str:
    return (
        f"on {os.cpu_count()} x {_processor()}, {_memory_gb():.0f} GB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
