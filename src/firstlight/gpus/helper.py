"""Start and end the helper programs: NVML and its kin may block for ever in a sick driver, so they live elsewhere."""

import contextlib
import subprocess
import sys

END_WITHIN_S = 1.0


def start(program: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start `firstlight.gpus.PROGRAM`. It ends by itself when this process does.

    Raises:
        OSError: it could not be started.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", f"firstlight.gpus.{program}", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end(helper: "subprocess.Popen[bytes]", within_s: float = END_WITHIN_S) -> None:
    """Kill it. One that hangs in the driver is left to the kernel, which ends it with the call."""
    helper.kill()
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        helper.wait(within_s)
