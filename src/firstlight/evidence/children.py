"""Run a helper program with a deadline: its output bounded, and killed with its whole group when it is late."""

import os
import selectors
import signal
import subprocess
from contextlib import suppress
from typing import NamedTuple

from firstlight.clock import Deadline


class Late(Exception):
    """The program was still running at its deadline, or printed more than anybody can want; it has been killed."""


class Done(NamedTuple):
    """A finished program."""

    code: int
    output: bytes
    errors: bytes


def output_of(argv: list[str], deadline: Deadline, bytes_max: int) -> Done:
    """Run `argv` and return what it printed.

    Raises:
        Late: it did not end before the deadline, or printed more than `bytes_max`.
        OSError: it could not be started.
    """
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        output, errors = _drain(child, deadline, bytes_max)
        return Done(_wait(child, deadline), output, errors)
    except Late:
        _kill_group(child)
        raise
    finally:
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()


def _drain(child: "subprocess.Popen[bytes]", deadline: Deadline, bytes_max: int) -> tuple[bytes, bytes]:
    kept: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("out", child.stdout), ("err", child.stderr)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map():
            ready = selector.select(deadline.left)
            if not ready or deadline.passed:
                raise Late(f"not done within {deadline.seconds:.1f} s")
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                kept[key.data].extend(data)
                if not data:
                    selector.unregister(key.fileobj)
            if len(kept["out"]) + len(kept["err"]) > bytes_max:
                raise Late(f"more than {bytes_max} bytes of output")
    return bytes(kept["out"]), bytes(kept["err"])


def _wait(child: "subprocess.Popen[bytes]", deadline: Deadline) -> int:
    try:
        return child.wait(timeout=max(0.05, deadline.left))
    except subprocess.TimeoutExpired:
        raise Late(f"not done within {deadline.seconds:.1f} s") from None


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=1.0)
