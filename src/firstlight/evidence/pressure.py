"""How short the machine is of memory, CPU and I/O: pressure stall information, free memory, swapping.

Price: reads. Documentation/accounting/psi.rst and proc(5).
"""

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import GapReason


def pressure() -> Pressure:
    """The machine's want of memory, CPU and I/O now. Never raises."""
    memory = _stalls("memory")
    return Pressure(
        memory_some=_share(memory, "some"),
        memory_full=_share(memory, "full"),
        io_some=_share(_stalls("io"), "some"),
        cpu_some=_share(_stalls("cpu"), "some"),
        memory_free_bytes=_free(),
        swapped_in=_swapped("pswpin"),
        swapped_out=_swapped("pswpout"),
    )


def _stalls(resource: str) -> dict[str, float] | Gap:
    try:
        return procfs.pressure(resource)
    except (OSError, ValueError, IndexError):
        return _unknown(f"pressure on {resource}", "this kernel does not measure it; boot with psi=1")


def _share(stalls: dict[str, float] | Gap, whom: str) -> float | Gap:
    if isinstance(stalls, Gap):
        return stalls
    return stalls.get(whom, _unknown(f"pressure on {whom} tasks", "this kernel does not tell"))


def _free() -> int | Gap:
    try:
        return procfs.meminfo()["MemAvailable"]
    except (OSError, ValueError, KeyError):
        return _unknown("free memory", "/proc/meminfo does not tell")


def _swapped(row: str) -> int | Gap:
    try:
        return procfs.vmstat()[row]
    except (OSError, ValueError, KeyError):
        return _unknown("swapping", "/proc/vmstat does not tell")


def _unknown(what: str, detail: str) -> Gap:
    return Gap(what=what, reason=GapReason.NOT_SUPPORTED, detail=detail)
