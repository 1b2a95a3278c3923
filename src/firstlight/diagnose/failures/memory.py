"""What an out-of-memory error of torch tells: what was wanted, what there is, and whose it is. Pure."""

import re
from typing import NamedTuple

_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = r"(?P<{}>\d{{1,9}}(?:\.\d{{1,6}})?) (?P<{}_unit>[KMGT]?iB)"


def _size(name: str) -> str:
    return _SIZE.format(name, name)


_WANTED = re.compile(rf"Tried to allocate {_size('wanted')}")
_TOTALS = (
    re.compile(rf"total capac\w* of {_size('total')} of which {_size('free')} is free"),
    re.compile(rf"{_size('total')} total capacity; .{{0,80}}?{_size('free')} free"),
)
_OWN = (
    re.compile(rf"this process has {_size('own')} memory in use", re.IGNORECASE),
    re.compile(rf"{_size('own')} reserved in total by PyTorch"),
)
_OTHERS = re.compile(rf"\bProcess \d{{1,9}} has {_size('other')} memory in use")
_STARTS = re.compile(r"\((?P<free>\d{1,5}\.?\d{0,6})/(?P<total>\d{1,5}\.?\d{0,6}) GiB\) on startup")


class Memory(NamedTuple):
    """Bytes of one GPU when an allocation failed. `own` was held by whoever asked, `others` by anybody else."""

    wanted: int
    total: int
    free: int
    own: int
    others: int


def told(message: str) -> Memory | None:
    """The figures of an error; None if it has none, or not whose the memory is."""
    totals = next((found for one in _TOTALS if (found := one.search(message))), None)
    owned = next((found for one in _OWN if (found := one.search(message))), None)
    theirs = sum(_bytes(found, "other") for found in _OTHERS.finditer(message))
    if totals is None or (owned is None and not theirs):
        return None
    total, free = _bytes(totals, "total"), _bytes(totals, "free")
    own = _bytes(owned, "own") if owned else max(0, total - free - theirs)
    wanted = _WANTED.search(message)
    return Memory(_bytes(wanted, "wanted") if wanted else 0, total, free, own, max(0, total - free - own))


def at_start(message: str) -> Memory | None:
    """The figures of vLLM, which looks before it has taken any: all that is used is somebody else's."""
    found = _STARTS.search(message)
    if found is None:
        return None
    free, total = (int(float(found[name]) * (1 << 30)) for name in ("free", "total"))
    return Memory(0, total, free, 0, max(0, total - free))


def _bytes(found: "re.Match[str]", name: str) -> int:
    return int(float(found[name]) * _UNITS[found[f"{name}_unit"].lower()])
