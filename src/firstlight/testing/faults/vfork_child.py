"""A worker is in the kernel, in an uninterruptible wait (state D): its vforked child never calls exec."""

import ctypes
import ctypes.util

from firstlight.testing.stage import options, say, start

_SYS_VFORK = 58


def work() -> None:
    say("stuck")
    # A raw vfork from Python shares the stack with the child, which may only pause.
    ctypes.CDLL(None).syscall(_SYS_VFORK)
    ctypes.CDLL(None).pause()


def main() -> None:
    options(__doc__).parse_args()
    start("worker_TP0", work).join()


if __name__ == "__main__":
    main()
