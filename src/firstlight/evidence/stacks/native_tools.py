"""What eu-stack (elfutils), pystack, py-spy and gdb print of native stacks, read into frames. Pure.

Innermost first, whatever the tool's order. A function without a name is empty, an address is no name. Versions read:
elfutils 0.188, pystack 1.7, py-spy 0.4, gdb 13.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

import msgspec

from firstlight.core.look import NativeFrame

FRAMES_MAX = 256
THREADS_MAX = 2048
NAME_MAX = 400
ROW_MAX = 4096

Stacks: TypeAlias = dict[int, tuple[NativeFrame, ...]]
"""The native frames of threads, by thread id."""


class Tool(NamedTuple):
    """A program that can tell native stacks. `python_only` for one that refuses what is no Python."""

    name: str
    python_only: bool
    arguments: Callable[[int], list[str]]
    read: Callable[[str], Stacks]


def frame(function: str, library: str) -> NativeFrame:
    """A frame in short form; a raw address or a row of question marks is no name."""
    unnamed = re.fullmatch(r"(0x)?[0-9a-fA-F]{6,16}|\?+", function)
    return NativeFrame(function="" if unnamed else function[:NAME_MAX], library=PurePath(library).name[:NAME_MAX])


class _Gathering:
    """Stacks in the making: bounded, in the order in which they are printed."""

    def __init__(self) -> None:
        self.stacks: dict[int, list[NativeFrame]] = {}
        self._frames: list[NativeFrame] | None = None

    def thread(self, tid: str) -> None:
        self._frames = self.stacks.setdefault(int(tid), []) if len(self.stacks) < THREADS_MAX else None

    def add(self, function: str, library: str) -> None:
        if self._frames is not None and len(self._frames) < FRAMES_MAX:
            self._frames.append(frame(function, library))


Named: TypeAlias = Callable[["re.Match[str]"], tuple[str, str]]
"""The function and the library in a line that shows a frame."""


def _told(text: str, thread: "re.Pattern[str]", frame: "re.Pattern[str]", named: Named) -> Stacks:
    """Stacks from lines that each begin a thread (its id is the first group) or show a frame.

    The longest lines are left out: names in them are the target's, and patterns are slow on endless ones.
    """
    gathered = _Gathering()
    for row in text.splitlines():
        if len(row) > ROW_MAX:
            continue
        if found := thread.fullmatch(row):
            gathered.thread(found[1])
        elif found := frame.fullmatch(row):
            gathered.add(*named(found))
    return _whole(gathered)


def _whole(gathered: _Gathering) -> Stacks:
    return {tid: tuple(frames) for tid, frames in gathered.stacks.items() if frames}


def _unversioned(symbol: str) -> str:
    """A symbol without its version: "sem_wait@@GLIBC_2.34"."""
    return symbol.partition("@@")[0]


_EU_THREAD = re.compile(r"TID (\d{1,9}):")
_EU_FRAME = re.compile(r"#\d+ +0x[0-9a-f]+(?: - 1)?(?: (?!- )(.*?))?(?: - (/.*|\[.*))?")


def read_eu_stack(text: str) -> Stacks:
    """`eu-stack -m`: "#3  0x… [- 1] [function] - /path/of/library" below "TID 7:"."""
    return _told(text, _EU_THREAD, _EU_FRAME, lambda found: (_unversioned(found[1] or ""), found[2] or ""))


_PYSTACK_THREAD = re.compile(r"Traceback for thread (\d{1,9}) .*")
_PYSTACK_FRAME = re.compile(r' +\(C\) File ".*?", line \d+, in (.*?)(?: \(inlined\))? \((/.*|\[.*)\)')


def read_pystack(text: str) -> Stacks:
    """`pystack remote --native-all`: outermost first; frames of Python are left out."""
    stacks = _told(text, _PYSTACK_THREAD, _PYSTACK_FRAME, lambda found: (_unversioned(found[1]), found[2]))
    return {tid: frames[::-1] for tid, frames in stacks.items()}


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str = ""
    module: str | None = None


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]
    os_thread_id: int | None = None


_spy = msgspec.json.Decoder(list[_SpyThread])


def read_py_spy(text: str) -> Stacks:
    """`py-spy dump --native --json`: a frame with a module is native, one without is Python's and left out.

    Raises:
        ValueError: this is not what py-spy prints.
    """
    gathered = _Gathering()
    for thread in _spy.decode(text):
        if thread.os_thread_id:
            gathered.thread(str(thread.os_thread_id))
            for one in thread.frames:
                if one.module:
                    gathered.add(one.name, one.module)
    return _whole(gathered)


_GDB_THREAD = re.compile(r"Thread \d+ \(.*?LWP (\d{1,9})\b.*")
_GDB_FRAME = re.compile(r"#\d+ +(?:0x[0-9a-f]+ in )?(.+?) \(.*?(?:\) from (\S+))?")


def read_gdb(text: str) -> Stacks:
    """`thread apply all bt`: "#1  0x… in function (arguments) from /library", without arguments and addresses."""
    return _told(text, _GDB_THREAD, _GDB_FRAME, lambda found: (found[1], found[2] or ""))


EU_STACK = Tool("eu-stack", False, lambda pid: ["-m", "-n", str(FRAMES_MAX), "-p", str(pid)], read_eu_stack)
PYSTACK = Tool("pystack", True, lambda pid: ["remote", "--no-color", "--native-all", str(pid)], read_pystack)
PY_SPY = Tool("py-spy", True, lambda pid: ["dump", "--json", "--native", "--pid", str(pid)], read_py_spy)
GDB = Tool(
    "gdb",
    False,
    lambda pid: [
        *("-nx", "-batch", "-p", str(pid), "-iex", "set debuginfod enabled off"),
        *("-iex", "set auto-load off", "-ex", "set print frame-arguments none", "-ex", "set print address on"),
        *("-ex", f"thread apply all bt {FRAMES_MAX}"),
    ],
    read_gdb,
)

BY_PAUSE: tuple[Tool, ...] = (EU_STACK, PYSTACK, PY_SPY, GDB)
"""Those that show every thread first, the gentlest of them foremost. Measured on a Python with torch and 60 threads:
eu-stack stops one thread at a time, for 6 to 14 ms; pystack stops all for 0.2 to 0.3 s; py-spy for 40 ms, but it
shows no thread that runs no Python; gdb for 5 to 8 s, most of it reading symbols."""
INSTALL: Mapping[str, str] = {
    "eu-stack": "apt install elfutils, or dnf install elfutils",
    "pystack": "pip install pystack, or pip install 'firstlight[native]'",
}
