"""Numbers and names as people read them; the same everywhere, so that a report and a screen never disagree."""

import re
import signal
from datetime import datetime

from firstlight.core.gap import Gap
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Outcome

OUTCOME_WORDS = {
    Outcome.SERVING: "serving",
    Outcome.STALLED: "stalled",
    Outcome.EXITED: "exited",
    Outcome.DEADLINE: "deadline passed",
    Outcome.NOT_STARTED: "not started",
    Outcome.NOT_LOOKED: "not verified",
    Outcome.LOOKED: "looked at",
    Outcome.INTERRUPTED: "interrupted",
}

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 request", "2 requests", "3 processes"; `many` where an s is not enough."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def seconds(value: float) -> str:
    """A length of time: "0.4 s", "83 s", "12 min 05 s", "3 h 07 min", "2 d 4 h"."""
    if value < 10:
        return f"{max(0.0, value):.1f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(value: float) -> str:
    """Bytes in decimal units: "512 B", "12 kB", "3.2 GB"."""
    unit = 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value /= 1000
        unit += 1
    return f"{value:.1f} {_SIZES[unit]}" if unit and value < 9.95 else f"{value:.0f} {_SIZES[unit]}"


NO_TIME = "at no possible time"
"""What is said of a wall time that no calendar has; only a made-up or torn file holds one."""


def time_of_day(at: float) -> str:
    """A wall time as local "14:02:11"."""
    return _local(at, "%H:%M:%S")


def date_and_time(at: float) -> str:
    """A wall time as local "2026-11-29 14:02:11 +0100"."""
    return _local(at, "%Y-%m-%d %H:%M:%S %z")


def _local(at: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):
        return NO_TIME


def printable(text: str, most: int = 1000) -> str:
    """Text that is safe to show: on one line, no terminal escapes, no writing direction tricks, not endless.

    Names and log lines come from processes that may call themselves anything.
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else " " if char.isspace() else "�" for char in cut)


def exit_words(exit_: Exit) -> str:
    """How a process ended, as a clause that follows its name."""
    if exit_.signal is not None:
        oom = ", by the kernel because memory ran out" if exit_.oom else ""
        return f"was killed by signal {_signal_name(exit_.signal)}{oom}"
    if isinstance(exit_.code, int):
        return f"exited with code {exit_.code}"
    return "is gone; how it ended could not be seen"


def gap_words(gap: Gap) -> str:
    """What could not be seen, of whom, why, and how to close the gap."""
    whose = f" of process {gap.pid}" if gap.pid else ""
    detail = f" ({printable(gap.detail)})" if gap.detail else ""
    return f"{printable(gap.what)}{whose}: {gap.reason}{detail}"


def who(name: str, label: str, pid: int | str, rank: int) -> str:
    """A process by the engine's own word for it, its rank and its pid: "Worker_TP1 (rank 1, pid 4711)". A word that
    tells the rank in full ("worker rank=1") is not told it again.
    """
    word = printable(label or name, 60)
    told = re.search(rf"\brank[ =]?{rank}\b", word)
    return f"{word} ({f'rank {rank}, ' if rank >= 0 and not told else ''}pid {pid})"


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
