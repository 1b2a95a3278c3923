"""The package nvidia-ml-py as far as firstlight uses it, playing back a recording (see `firstlight.testing.drivers`).

Names are NVIDIA's. A handle is the index of the GPU.
"""
# ruff: noqa: N801, N802

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import playback  # type: ignore[import-not-found]  # beside this file, on the helper's PYTHONPATH

_WORDS = {3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded", 15: "GPU is lost"}
NVML_NVLINK_MAX_LINKS = 18


class NVMLError(Exception):
    """As NVIDIA's: `value` is the number of the error."""

    def __init__(self, value: int) -> None:
        super().__init__(_WORDS.get(value, f"Unknown Error {value}"))
        self.value = value


class c_nvmlGpuFabricInfo_v2_t(ctypes.Structure):
    """Filled in by nvmlDeviceGetGpuFabricInfoV."""

    _fields_ = (("state", ctypes.c_uint), ("status", ctypes.c_uint))


def nvmlInit() -> None:
    if "nvmlInit" in playback.RECORDING["machine"]:
        _answer(-1, "nvmlInit")


def nvmlDeviceGetCount() -> int:
    return len(playback.GPUS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if "nvmlDeviceGetHandleByIndex" in playback.GPUS[index]:
        _answer(index, "nvmlDeviceGetHandleByIndex")
    return index


def nvmlDeviceGetGpuFabricInfoV(handle: int, reference: Any) -> int:
    told = _answer(handle, "nvmlDeviceGetGpuFabricInfoV")
    reference._obj.state, reference._obj.status = told.state, told.status
    return 0


def nvmlDeviceGetNvLinkState(handle: int, link: int) -> Any:
    states = _answer(handle, "nvmlDeviceGetNvLinkState")
    if link >= len(states):
        raise NVMLError(2)
    return states[link]


def nvmlDeviceGetP2PStatus(handle: int, other: int, way: int) -> Any:
    status = vars(_answer(handle, "nvmlDeviceGetP2PStatus"))[str(other)]
    return status[way] if isinstance(status, list) else status


def __getattr__(name: str) -> Callable[..., Any]:
    """Every other call asks for one recorded answer."""
    if name.startswith("nvmlDeviceGet"):
        return lambda handle, *words: _answer(handle, name)
    if name.startswith("nvmlSystemGet"):
        return lambda: _answer(-1, name)
    raise AttributeError(name)


def _answer(index: int, call: str) -> Any:
    try:
        return _shaped(playback.answer(index, call))
    except playback.RefusedError as error:
        raise NVMLError(error.code) from None


def _shaped(told: Any) -> Any:
    """A recorded object as a structure with members."""
    if isinstance(told, dict):
        return SimpleNamespace(**told)
    return [_shaped(one) for one in told] if isinstance(told, list) else told
