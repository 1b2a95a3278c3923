"""Where the threads of a process wait: in which system call, in which function of the kernel, where in their code."""

import os
from typing import NamedTuple

from firstlight.procfs.reading import content


def tids(pid: int) -> list[int]:
    """The threads of a process."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208


def wchan(pid: int, tid: int) -> str:
    """The kernel function a thread sleeps in; empty when it runs or when it may not be seen (both read "0")."""
    name = content(f"/proc/{pid}/task/{tid}/wchan").decode(errors="replace").strip()
    return "" if name == "0" else name


def syscall(pid: int, tid: int) -> tuple[int, tuple[int, ...]] | None:
    """The system call a thread blocks in, with its six arguments; None while it runs.

    The number is -1 for a thread that blocks outside of any system call (a page fault).
    """
    parts = content(f"/proc/{pid}/task/{tid}/syscall").split()
    if not parts or parts[0] == b"running":
        return None
    return int(parts[0]), tuple(int(p, 16) for p in parts[1:7])


class Position(NamedTuple):
    """Where a thread that waits stands in its own code: its registers as it entered the kernel."""

    stack_pointer: int
    program_counter: int


def position(pid: int, tid: int) -> Position | None:
    """The same file as `syscall`, its last two columns; None while the thread runs."""
    parts = content(f"/proc/{pid}/task/{tid}/syscall").split()
    return Position(int(parts[-2], 16), int(parts[-1], 16)) if len(parts) > 2 else None


def kernel_stack(pid: int, tid: int) -> tuple[str, ...]:
    """The kernel functions that a thread is in, innermost first, from lines like "[<0>] futex_wait+0x67/0x120".

    Needs CAP_SYS_ADMIN outside of any user namespace, that is root on the machine itself, and a kernel with
    CONFIG_STACKTRACE. Takes the target's exec lock, so it may block.
    """
    rows = (row.split() for row in content(f"/proc/{pid}/task/{tid}/stack").decode(errors="replace").splitlines())
    return tuple(row[1].partition("+")[0] for row in rows if len(row) > 1)
