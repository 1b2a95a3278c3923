"""Frames and threads of a bundle made by hand."""

import re
import sys
from collections.abc import Sequence

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, Futex, NativeFrame, ThreadLook
from firstlight.core.vocabulary import GapReason

STANDARD_LIBRARY = "/usr/lib/python3.11/"
PACKAGES = "/opt/venv/lib/python3.11/site-packages/"
NO_PTRACE = Gap(what="Python stacks", reason=GapReason.NO_PERMISSION, detail="give it SYS_PTRACE")


def frame(text: str) -> Frame:
    """ "function (file.py:12): source line" as a frame.

    A file without a leading slash is of the standard library if its first part names a module of it, else of an
    installed package ("vllm/worker.py").
    """
    found = re.fullmatch(r"(.+?) \(([^()]+?)(?::(\d+))?\)(?:: (.*))?", text)
    if not found:
        raise ValueError(f'a frame reads "function (file.py:12)", not {text!r}')
    function, file, number, code = found.groups()
    if not file.startswith(("/", "<")):
        standard = file.split("/")[0].removesuffix(".py") in sys.stdlib_module_names
        file = (STANDARD_LIBRARY if standard else PACKAGES) + file
    return Frame(function=function, file=file, line=int(number or 1), code=code or "")


def native_frame(text: str) -> NativeFrame:
    """ "ncclCommInitRank (libnccl.so.2)" as a native frame; "??" for one without a symbol."""
    function, _, library = text.partition(" (")
    return NativeFrame(function="" if function == "??" else function, library=library.removesuffix(")"))


def thread(
    stack: Sequence[str] | Gap = (),
    *,
    tid: int = 0,
    name: str = "MainThread",
    syscall: str | Gap = "futex(0x7f3a10, 0x80, 0x0)",
    native: Sequence[str] | Gap = (),
    kernel: Sequence[str] | Gap = (),
    state: str = "S",
    cpu_s: float = 0.1,
    wchan: str | Gap = "",
    fds: tuple[int, ...] = (),
    path: str = "",
    futex: Futex | None = None,
    owns_gil: bool = False,
) -> ThreadLook:
    """One thread, frames innermost first. `tid` 0 is given a number by its process."""
    return ThreadLook(
        tid=tid,
        name=name,
        state=state,
        cpu_s=cpu_s,
        wchan=wchan,
        syscall="running" if state == "R" else syscall,
        stack=stack if isinstance(stack, Gap) else tuple(map(frame, stack)),
        native=native if isinstance(native, Gap) else tuple(map(native_frame, native)),
        kernel=kernel if isinstance(kernel, Gap) else tuple(kernel),
        owns_gil=owns_gil,
        active=state == "R",
        fds=fds,
        path=path,
        futex=futex,
    )
