"""The package amdsmi as far as firstlight uses it, playing back a recording (see `firstlight.testing.drivers`).

Names are AMD's. A handle is the index of the GPU.
"""

import enum
from collections.abc import Callable
from typing import Any

import playback  # type: ignore[import-not-found]  # beside this file, on the helper's PYTHONPATH


class AmdSmiException(Exception):
    """The base of AMD's errors."""


class AmdSmiMemoryType(enum.IntEnum):
    VRAM = 0


class AmdSmiClkType(enum.IntEnum):
    GFX = 1


def amdsmi_init() -> None:
    if "amdsmi_init" in playback.RECORDING["machine"]:
        _answer(-1, "amdsmi_init")


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(playback.GPUS)))


def amdsmi_is_P2P_accessible(handle: int, other: int) -> Any:  # noqa: N802
    return _answer(handle, "amdsmi_is_P2P_accessible")[str(other)]


def __getattr__(name: str) -> Callable[..., Any]:
    """Every other call asks for one recorded answer."""
    if name.startswith("amdsmi_get_"):
        return lambda handle, *words: _answer(handle, name)
    raise AttributeError(name)


def _answer(index: int, call: str) -> Any:
    try:
        return playback.answer(index, call)
    except playback.RefusedError as error:
        words = "AMDSMI_STATUS_NOT_SUPPORTED" if error.code == playback.NOT_SUPPORTED else "AMDSMI_STATUS_API_FAILED"
        raise AmdSmiException(f"Error code:\n\t{error.code} | {words}") from None
