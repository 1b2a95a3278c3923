"""Reading a Python stack: which frames are plumbing, which one says where the program is. Pure.

Stacks are innermost first. Plumbing is what a program waits *with* (threading, queue, multiprocessing, torch, zmq);
the innermost other frame is where it *is*, and the plumbing right below that is the operation it is in.
"""

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from firstlight.core.look import Frame, NativeFrame
from firstlight.core.words import printable

_STANDARD_LIBRARY = re.compile(r"/lib(64)?/(python|pypy)\d[\d.]*t?/(?!site-packages/|dist-packages/)|^<frozen ")
_PLUMBING_PACKAGES = re.compile(
    r"/(site|dist)-packages/(anyio|filelock|h11|httpcore|httptools|httpx|requests|starlette|torch|tqdm|urllib3|uvicorn"
    r"|uvloop|zmq)/"
)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_WRAPPERS = re.compile(r"(.*\.)?(_?wrapper|_?wrapped|inner|decorate_context|__call__|_call_impl|_wrapped_call_impl)")

_OF_ONE_RUN = re.compile(
    r"0x[0-9a-fA-F]+|\d{4,}|(?<![0-9a-zA-Z])(?=[0-9a-z]*\d[0-9a-z]*\d)[0-9a-z]{12,}(?![0-9a-zA-Z])"
)
"""Addresses, long numbers, and the hashes that compilers name their files by."""
_NAME_MAX = 120

OUTER_FRAMES = 2


class Place(NamedTuple):
    """Where a thread is. `leaf` is its innermost frame, `operation` the plumbing call that it is in, if any,
    `caller` the innermost frame of the program itself, if there is one, and `outer` who called that."""

    leaf: Frame
    operation: Frame | None
    caller: Frame | None
    outer: tuple[Frame, ...] = ()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames that say most, innermost first, each once."""
        inner = (frame for frame in (self.leaf, self.operation, self.caller) if frame)
        return tuple(dict.fromkeys([*inner, *self.outer]))


def is_plumbing(frame: Frame) -> bool:
    """True for code that a program waits with, rather than code that says what the program was at."""
    return _is_plumbing(frame.file)


@lru_cache(maxsize=8192)
def _is_plumbing(file: str) -> bool:
    return bool(_STANDARD_LIBRARY.search(file) or _PLUMBING_PACKAGES.search(file))


def place(stack: tuple[Frame, ...]) -> Place | None:
    """Where a stack stands; None for an empty one."""
    if not stack:
        return None
    at = _own(stack)
    named = [frame for frame in stack[:at] if not _WRAPPERS.fullmatch(frame.function) and not _starts_threads(frame)]
    operation = named[-1] if named else None
    if at is None:
        return Place(stack[0], operation, None)
    outer = (frame for frame in stack[at + 1 :] if not is_plumbing(frame))
    return Place(stack[0], operation, stack[at], tuple(islice(outer, OUTER_FRAMES)))


def _starts_threads(frame: Frame) -> bool:
    return basename(frame) == "threading.py" and bool(
        re.search(r"\b(_bootstrap|_bootstrap_inner|run)$", frame.function)
    )


def telling(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The stack without the frames that every Python thread begins with."""
    return tuple(frame for frame in stack if not _starts_threads(frame))


def _own(stack: tuple[Frame, ...]) -> int | None:
    return next((at for at, frame in enumerate(stack) if not is_plumbing(frame)), None)


@lru_cache(maxsize=8192)
def steady(name: str) -> str:
    """A name of a function or a file without what differs from run to run and from rank to rank."""
    return printable(_OF_ONE_RUN.sub("#", name), _NAME_MAX)


def basename(frame: Frame) -> str:
    """The file's name without its folders."""
    return frame.file.rsplit("/", 1)[-1]


def package(frame: Frame) -> str:
    """The installed package that a frame belongs to; empty if it is the program's own or the standard library's."""
    found = _PACKAGE.search(frame.file)
    return found[1] if found else ""


def shown(frame: Frame) -> str:
    """A frame as people write it: `load (weights.py:88)`."""
    return f"{frame.function} ({basename(frame)}:{frame.line})"


_C_LIBRARY = re.compile(r"(libc|libpthread|ld-linux\S*)[.-]")


def words_of(frame: Frame | NativeFrame) -> str:
    """A frame as "function (file:line)" or "function (library)"; empty for one that says nothing: a function without
    a name, of no library that is known or of the C library, through which every wait goes."""
    if not isinstance(frame, NativeFrame):
        return shown(frame)
    if not frame.function and (not frame.library or _C_LIBRARY.match(frame.library)):
        return ""
    return f"{frame.function or '??'} ({frame.library})" if frame.library else frame.function


def gathering(stack: tuple[Frame, ...]) -> tuple[tuple[str, str, int], ...]:
    """What makes two ranks stand in the same place: the program's own frames and the operation, outermost first.

    The line counts in every caller, since ranks that differ there are in different steps; in the innermost own frame
    and below it may be any line of a loop or of a library's retries.
    """
    own = own_frames(stack)
    here = place(stack)
    inner = [here.operation] if here and here.operation and here.caller else []
    lines = [frame.line for frame in own[:-1]] + [0] * (1 + len(inner))
    return tuple((frame.function, basename(frame), line) for frame, line in zip([*own, *inner], lines, strict=True))


def chain(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The operation and the program's own frames, innermost first, without plumbing between and around them."""
    here = place(stack)
    if here is None:
        return ()
    own = tuple(frame for frame in stack if not is_plumbing(frame))
    return (here.operation, *own) if here.operation else own or (here.leaf,)


def own_frames(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames without the plumbing at the inner end, outermost first; the whole stack if all of it is plumbing."""
    at = _own(stack)
    return (stack if at is None else stack[at:])[::-1]
