"""How findings quote what they rest on. Pure."""

from collections.abc import Iterable, Sequence

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, ThreadLook
from firstlight.core.words import printable
from firstlight.diagnose import frames
from firstlight.diagnose.standing import Standing

QUOTE_MAX = 160
"""Characters of one line of evidence: it is read in a terminal, among others."""
QUOTED_FRAMES = 3
"""Frames that one line of evidence shows, from the one that matters outwards."""
_CODE_MAX = 60
_NAME_MAX = 40


def call(thread: ThreadLook | None) -> str:
    """The system call that a thread sits in, as it was seen."""
    if thread is None or isinstance(thread.syscall, Gap):
        return "a system call that may not be seen"
    return thread.syscall


def thread(of: ThreadLook) -> str:
    """The beginning of a line about a thread."""
    return f"thread {of.tid} ({printable(of.name, _NAME_MAX)}): "


def shortened(text: str) -> str:
    """A line of evidence that may come from anywhere, no longer than such lines should be."""
    return printable(text.strip(), QUOTE_MAX)


def outwards(words: Sequence[str], at: int) -> str:
    """Frames in words, from the one that was looked for outwards, with the one inside it before."""
    return " < ".join(filter(None, words[max(0, at - 1) : at + QUOTED_FRAMES]))


def stack(one: Standing) -> str:
    """Where a process stands, as one line of its stack, with the source text where it was read."""
    if one.place is None:
        return f"process {one.pid}: no Python stack was seen"
    return chain(f"process {one.pid}: ", one.place.frames)


def chain(begin: str, of: Iterable[Frame]) -> str:
    """Frames, innermost first, as far as a line of evidence goes; source text gives way to further callers last."""
    line = begin
    for at, frame in enumerate(of):
        joined = f"{line}{' < ' if at else ''}{frames.shown(frame)}"
        quoted = f"{joined}: {printable(frame.code, _CODE_MAX)}" if frame.code else joined
        fits = next((one for one in (quoted, joined) if len(one) <= QUOTE_MAX), None)
        if fits is None:
            return line if at else shortened(joined)
        line = fits
    return line
