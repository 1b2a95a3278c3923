"""Plays a recording back: answers, refusals, and the ways in which a driver fails to answer at all."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

RECORDING: dict[str, Any] = json.loads(Path(os.environ["FIRSTLIGHT_RECORDED_GPUS"]).read_text())
GPUS: list[dict[str, Any]] = RECORDING["gpus"]
NOT_SUPPORTED = 3


class RefusedError(Exception):
    """The recording has a refusal here."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def answer(index: int, call: str) -> Any:
    """What GPU `index` (the machine: -1) answers to `call`.

    Raises:
        RefusedError: it refuses, or the recording does not know the call.
    """
    known = RECORDING["machine"] if index < 0 else GPUS[index]
    return played(known.get(call, {"does": "refuse", "code": NOT_SUPPORTED}))


def played(recorded: Any) -> Any:
    """The answer itself, or what the recording does in its place."""
    deed = recorded.get("does") if isinstance(recorded, dict) else None
    if deed == "refuse":
        raise RefusedError(recorded["code"])
    if deed == "mismatch":
        raise RuntimeError("the package does not match the version of the driver's library")
    if deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "ramble":
        os.write(_answers(), b"\x00\xff}{ this is no answer\n")
    if deed in ("hang", "ramble"):
        _never_return()
    return recorded


def _answers() -> int:
    """The highest pipe that is open: the helper's own way to its parent."""
    return max(int(name) for name in os.listdir("/proc/self/fd") if _is_pipe(name))  # noqa: PTH208


def _is_pipe(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")  # noqa: PTH115
    except FileNotFoundError:
        return False


def _never_return() -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(3600)
