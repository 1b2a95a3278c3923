"""Reading a Python stack: which frames are plumbing, which one says where the program is. Pure.

Stacks are innermost first. Plumbing is what a program waits *with* (threading, queue, multiprocessing, torch, zmq);
the innermost other frame is where it *is*, and the plumbing right below that is the operation it is in.
"""

import re
from typing import NamedTuple

from firstlight.core.bundle import Frame

_STANDARD_LIBRARY = re.compile(r"/lib(64)?/(python|pypy)\d[\d.]*t?/(?!site-packages/|dist-packages/)|^<frozen ")
_PLUMBING_PACKAGES = re.compile(
    r"/(site|dist)-packages/(anyio|filelock|h11|httpcore|httptools|httpx|requests|starlette|torch|tqdm|urllib3|uvicorn"
    r"|uvloop|zmq)/"
)
_WRAPPERS = re.compile(r"(.*\.)?(_?wrapper|_?wrapped|inner|decorate_context|__call__|_call_impl|_wrapped_call_impl)")


class Place(NamedTuple):
    """Where a thread is. `leaf` is its innermost frame, `operation` the plumbing call that it is in, if any, and
    `caller` the innermost frame of the program itself, if there is one."""

    leaf: Frame
    operation: Frame | None
    caller: Frame | None

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames that say most, innermost first, each once."""
        return tuple(dict.fromkeys(frame for frame in (self.leaf, self.operation, self.caller) if frame))


def is_plumbing(frame: Frame) -> bool:
    """True for code that a program waits with, rather than code that says what the program was at."""
    return bool(_STANDARD_LIBRARY.search(frame.file) or _PLUMBING_PACKAGES.search(frame.file))


def place(stack: tuple[Frame, ...]) -> Place | None:
    """Where a stack stands; None for an empty one."""
    if not stack:
        return None
    at = _own(stack)
    inner = stack[:at] if at is not None else stack
    named = [frame for frame in inner if not _WRAPPERS.fullmatch(frame.function)]
    operation = named[-1] if named and at is not None else None
    return Place(leaf=stack[0], operation=operation, caller=None if at is None else stack[at])


def _own(stack: tuple[Frame, ...]) -> int | None:
    return next((at for at, frame in enumerate(stack) if not is_plumbing(frame)), None)


def basename(frame: Frame) -> str:
    """The file's name without its folders."""
    return frame.file.rsplit("/", 1)[-1]


def shown(frame: Frame) -> str:
    """A frame as people write it: `load (weights.py:88)`."""
    return f"{frame.function} ({basename(frame)}:{frame.line})"


def signature(stack: tuple[Frame, ...]) -> tuple[tuple[str, str, int], ...]:
    """A stack made comparable, outermost first: function, file name, and the line only where it is not a loop's.

    The line of the innermost frame of the program itself, and of whatever it calls, moves with every turn of a loop
    that waits; it is left out.
    """
    loops = _own(stack) or 0
    return tuple(
        (frame.function, basename(frame), frame.line if depth > loops else 0) for depth, frame in enumerate(stack)
    )[::-1]


def own_frames(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames without the plumbing at the inner end, outermost first; the whole stack if all of it is plumbing."""
    at = _own(stack)
    return (stack if at is None else stack[at:])[::-1]
