"""When a call that waits ends by itself, whatever it waits for: from its arguments, for sleeps and polls. Pure.

Times lie in the caller's memory, as `struct timespec` or `struct timeval` of a 64-bit machine (two long each), or are
milliseconds in an argument. A length is given when the call begins, and is not counted down where it can be read.
Time-outs of futexes and sockets are left out: they say how long somebody is waited for, and no sleep is made of them.
"""

import struct
from typing import NamedTuple

from firstlight.evidence.futexes import Memory

_SLEEP = struct.Struct("=qq")
_MONOTONIC, _ABSOLUTE = 1, 1
_SIGN_BIT = 1 << 31
_MILLISECONDS_IN = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
_TIMESPEC_AT = {"nanosleep": 0, "ppoll": 2, "pselect6": 4, "epoll_pwait2": 3}


class Timeout(NamedTuple):
    """`seconds` from the beginning of the call, or, where `absolute`, by CLOCK_MONOTONIC."""

    seconds: float
    absolute: bool = False


def timeout_of(name: str, arguments: tuple[int, ...], memory: Memory) -> Timeout | None:
    """The time-out of a sleep, poll, select or epoll; None for other calls, and where there is none.

    None, too, for a sleep until a moment by another clock than CLOCK_MONOTONIC: such clocks can be set.

    Raises:
        OSError, struct.error: the arguments could not be read.
    """
    if name in _MILLISECONDS_IN:
        milliseconds = arguments[_MILLISECONDS_IN[name]] & 0xFFFFFFFF
        return None if milliseconds & _SIGN_BIT else Timeout(milliseconds / 1e3)
    if name in _TIMESPEC_AT:
        return _read(arguments[_TIMESPEC_AT[name]], memory, 1e9)
    if name == "select":
        return _read(arguments[4], memory, 1e6)
    if name == "clock_nanosleep":
        return _until(arguments, memory)
    return None


def _until(arguments: tuple[int, ...], memory: Memory) -> Timeout | None:
    """Python's time.sleep, since 3.11, names the moment at which it ends; a C program the length."""
    clock, flags, address = arguments[:3]
    found = _read(address, memory, 1e9)
    if not flags & _ABSOLUTE or found is None:
        return found
    return found._replace(absolute=True) if clock == _MONOTONIC else None


def _read(address: int, memory: Memory, parts: float) -> Timeout | None:
    if not address:
        return None
    whole, part = _SLEEP.unpack(memory(address, _SLEEP.size))
    return Timeout(whole + part / parts) if whole >= 0 and 0 <= part < parts else None
