"""A program of its own: asks the AMD driver once for all it tells of its GPUs, in the lines of `nvidia_helper`.

    python -m firstlight.gpus.amd_helper

It needs the package amdsmi of the same release as the ROCm that is installed. Written from the documentation of
amdsmi 6.4 to 7.2 and the source of 7.0; not yet measured on a GPU.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from firstlight.gpus.answering import answering

Say = Callable[[dict[str, Any]], None]

NOT_SUPPORTED = 3
"""As `nvidia_helper` numbers it; amdsmi's own numbers differ from release to release."""
UNKNOWN = 999
NO_NUMBERS = (2**16 - 1, 2**32 - 1, 2**64 - 1)
WATT_MAX = 100_000
"""Some releases tell the power limit in microwatts, others in watts. No card draws 100 kW."""


def main() -> int:
    """Say everything once."""
    say = answering()
    try:
        import amdsmi
    except Exception:  # noqa: BLE001 - without its C library the package fails with whatever comes first
        say({"missing": "amdsmi"})
        return 0
    try:
        _tell_all(amdsmi, say)
    except amdsmi.AmdSmiException as error:
        say({"failed": " ".join(str(error).split())})
    return 0


def _tell_all(smi: ModuleType, say: Say) -> None:
    say({"asking": "amdsmi_init"})
    smi.amdsmi_init()
    say({"asking": "amdsmi_get_processor_handles"})
    handles = smi.amdsmi_get_processor_handles()
    say({"count": len(handles)})
    for index, handle in enumerate(handles):
        say({"card": _Card(smi, say, index, handle).told(handles)})
    say({"end": True})


class _Card:
    """One GPU, and what the driver made of questions about it."""

    def __init__(self, smi: ModuleType, say: Say, index: int, handle: Any) -> None:
        self._smi = smi
        self._say = say
        self._index = index
        self._handle = handle

    def ask(self, call: str, *words: Any) -> Any:
        """The driver's answer, or how it refused."""
        self._say({"asking": call, "gpu": self._index})
        try:
            return getattr(self._smi, call)(self._handle, *words)
        except Exception as error:  # noqa: BLE001 - beside its own errors it stumbles over what it does not expect
            words_of_it = " ".join(str(error).split()) or repr(error)
            return {"refused": words_of_it, "code": NOT_SUPPORTED if "NOT_SUPPORTED" in words_of_it else UNKNOWN}

    def told(self, handles: list[Any]) -> dict[str, Any]:
        """The GPU as one object, with the fields that AMD has."""
        chip = self.ask("amdsmi_get_gpu_asic_info")
        activity = self.ask("amdsmi_get_gpu_activity")
        power = self.ask("amdsmi_get_power_info")
        vram = self._smi.AmdSmiMemoryType.VRAM
        return {
            "index": self._index,
            "name": _part(chip, "market_name"),
            "architecture": _part(chip, "target_graphics_version"),
            "pci": self.ask("amdsmi_get_gpu_device_bdf"),
            "utilisation": _part(activity, "gfx_activity"),
            "memory_activity": _part(activity, "umc_activity"),
            "power_mw": _milliwatts(_first(power, "current_socket_power", "average_socket_power")),
            "power_limit_mw": _milliwatts(_part(power, "power_limit")),
            "sm_clock_mhz": _part(self.ask("amdsmi_get_clock_info", self._smi.AmdSmiClkType.GFX), "clk"),
            "memory_used": self.ask("amdsmi_get_gpu_memory_usage", vram),
            "memory_total": self.ask("amdsmi_get_gpu_memory_total", vram),
            "processes": self._processes(),
            "ecc": _part(self.ask("amdsmi_get_gpu_total_ecc_count"), "uncorrectable_count"),
            "peers": [[index, self._peer(other)] for index, other in enumerate(handles) if index != self._index],
        }

    def _processes(self) -> Any:
        found = self.ask("amdsmi_get_gpu_process_list")
        if _refused(found):
            return found
        return [[one["pid"], _number(one["memory_usage"]["vram_mem"])] for one in found]

    def _peer(self, other: Any) -> Any:
        accessible = self.ask("amdsmi_is_P2P_accessible", other)
        return accessible if _refused(accessible) else "ok" if accessible else "not supported"


def _refused(answer: Any) -> bool:
    return isinstance(answer, dict) and "refused" in answer


def _part(answer: Any, name: str) -> Any:
    """A member of an answer. For one that the card does not have amdsmi says "N/A", or the greatest number."""
    if _refused(answer):
        return answer
    value = answer.get(name, "N/A")
    return {"refused": "N/A", "code": NOT_SUPPORTED} if value == "N/A" or value in NO_NUMBERS else value


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value not in NO_NUMBERS else None


def _first(answer: Any, *names: str) -> Any:
    """The first of these that the card has: newer cards tell the power of now, older ones an average."""
    parts = [_part(answer, name) for name in names]
    return next((part for part in parts if not _refused(part) and part), parts[-1])


def _milliwatts(watts: Any) -> Any:
    if _refused(watts):
        return watts
    return watts / 1000 if watts > WATT_MAX else watts * 1000


if __name__ == "__main__":
    sys.exit(main())
