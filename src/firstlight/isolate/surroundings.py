"""What a trial gets of its own: a port that nobody listens on, and empty caches where that is asked for."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from firstlight.attempt import Traces
from firstlight.clock import Clock, Deadline
from firstlight.errors import FirstlightError, UsageError

PORT_S = 10.0
POLL_S = 0.2
CACHE_VARIABLES = (
    "VLLM_CACHE_ROOT",
    "SGLANG_CACHE_DIR",
    "FIRSTLIGHT_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "CUDA_CACHE_PATH",
    "TVM_FFI_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "AITER_JIT_DIR",
)
"""Where engines and compilers are told to keep what they build; models stay where they are."""


class NoPort(FirstlightError):
    """The kernel has no port to give."""

    exit_code = 4


def own_caches(folder: Path) -> dict[str, str]:
    """Variables that give a trial empty caches of its own."""
    places = {name: folder / name.lower() for name in CACHE_VARIABLES}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return {name: str(place) for name, place in places.items()}


def free_port() -> int:
    """A TCP port that nobody listens on now.

    Raises:
        FirstlightError: there is none.
    """
    try:
        with socket.socket() as trial:
            trial.bind(("", 0))
            return int(trial.getsockname()[1])
    except OSError as error:
        raise NoPort(
            f"no free port was found: {os.strerror(error.errno or 0)}",
            "Give the command one and use --keep-port.",
        ) from error


def await_port(port: int, environ: Mapping[str, str], clock: Clock) -> None:
    """Wait until a port that is kept is free again; 0 is none.

    Raises:
        UsageError: somebody goes on listening on it.
    """
    traces = Traces(clock, environ)
    deadline = Deadline(clock, PORT_S, "the port")
    while port and traces.listener(port) is not None:
        if deadline.passed:
            raise UsageError(
                f"port {port} is already taken, so no trial could listen on it",
                f"End whoever listens (`ss -ltnp sport = :{port}` shows it), or leave --keep-port out.",
            )
        clock.sleep(POLL_S)
