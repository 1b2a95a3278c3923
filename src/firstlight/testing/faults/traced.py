"""A worker is held by a debugger that has attached to it and gone to sleep."""

import ctypes
import os

from firstlight.testing.stage import options, say, start, wait_for_ever

_PTRACE_ATTACH = 16


def work() -> None:
    wait_for_ever()


def debug(pid: int) -> None:
    if ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)  # __WALL: the worker is no child of the debugger
    say("stuck")
    wait_for_ever()


def main() -> None:
    options(__doc__).parse_args()
    worker = start("worker_TP0", work)
    start("debugger", debug, worker.pid)
    worker.join()


if __name__ == "__main__":
    main()
