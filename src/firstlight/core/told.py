"""An end that a line of a log tells of, where nobody saw the exit itself. Pure."""

import re
from signal import SIGHUP, SIGINT, SIGTERM, Signals
from typing import NamedTuple

LOOKED_AT = 300
"""Characters of a line that are looked at."""

_STATUS = re.compile(
    r"(?:[Ee]xit(?:ed|s)?|EXIT(?:ED)?)(?:[ _-]?| with (?:an? )?(?:non-zero )?(?:exit )?)"
    r"(?:code|status|value)\s{0,4}[:=]?\s{0,8}(?P<code>-?\d{1,10})\b"
)
_ENDS = (
    r"(?:[Dd]ied|[Kk]illed|[Tt]erminated|[Ee]nded|[Ee]xited|[Cc]rashed|[Aa]borted|shutdown) "
    r"(?:with|by|on|from|due to)"
)
_SIGNAL = re.compile(
    rf"{_ENDS} (?:a )?(?:signal:? )?(?:<Signals\.)?(?P<name>SIG[A-Z]{{2,6}})\b"
    rf"|(?:{_ENDS} (?:a )?|[Cc]aught |[Rr]eceived )signal:? (?P<number>\d{{1,2}})\b"
    r"|\bSignal (?P<told>\d{1,2}) \(SIG[A-Z]{2,6}\) received|\bSignal: [A-Z][\w ]{2,40} \((?P<mpi>\d{1,2})\)"
)
_SHELL = re.compile(
    r"(?:[^:]{1,80}+: (?:line \d+: +\d+ )?)?(?P<words>Killed|killed|Segmentation fault|segmentation fault|Bus error"
    r"|bus error|Aborted|Illegal instruction|illegal hardware instruction|Trace/breakpoint trap"
    r"|Floating point exception|Terminated|Hangup|已杀死|段错误|总线错误|非法指令|已放弃)(?: *$| ?\((?:core|核心)|  )"
)
"""What bash, dash and zsh say of a child that a signal ended; the command may follow. Chinese is met often."""
_SHELL_SIGNALS = {
    "killed": 9,
    "segmentation fault": 11,
    "bus error": 7,
    "aborted": 6,
    "illegal instruction": 4,
    "illegal hardware instruction": 4,
    "trace/breakpoint trap": 5,
    "floating point exception": 8,
    "terminated": 15,
    "hangup": 1,
    "已杀死": 9,
    "段错误": 11,
    "总线错误": 7,
    "非法指令": 4,
    "已放弃": 6,
}
_PID = re.compile(r"\b(?:pid|PID)(?:: ?|=| )(?P<pid>\d{1,10})\b")
_SUPPOSED = re.compile(
    r"\b(?:potential|possible|common) (?:root )?causes\b|\b(?:[Ii]f|[Ww]hen|[Mm]ight|[Mm]ay|[Cc]ould)\b"
)
"""What follows is what may have been, or would be."""
_ASKED = frozenset(
    {0, *(-number for number in (SIGHUP, SIGINT, SIGTERM)), *(128 + n for n in (SIGHUP, SIGINT, SIGTERM))}
)


class ToldEnd(NamedTuple):
    """How a process is said to have ended: its exit code, or minus the signal, as Python's subprocess has it.

    `pid` is 0 where the line names none.
    """

    code: int
    pid: int = 0

    @property
    def asked(self) -> bool:
        """True for the end of work, and for one that somebody asked for."""
        return self.code in _ASKED


def told_end(text: str) -> ToldEnd | None:
    """The end that a line tells of; None if it tells of none, or does not say how."""
    beginning = text[:LOOKED_AT]
    code = _code(beginning)
    if code is None:
        return None
    named = _PID.search(beginning)
    return ToldEnd(code, int(named["pid"]) if named else 0)


def _code(text: str) -> int | None:
    """Plain text is looked for first: every line of a log passes through here."""
    if "xit" in text or "XIT" in text or "SIG" in text or "ignal" in text:
        said = text[: supposed.start()] if (supposed := _SUPPOSED.search(text)) else text
        if status := _STATUS.search(said):
            return int(status["code"])
        if signal := _SIGNAL.search(said):
            return _minus(signal["name"] or signal["number"] or signal["told"] or signal["mpi"])
    if shell := _SHELL.match(text):
        return -_SHELL_SIGNALS[shell["words"].lower()]
    return None


def _minus(signal: str) -> int | None:
    try:
        return -(Signals(int(signal)) if signal.isdecimal() else Signals[signal])
    except (ValueError, KeyError):
        return None
