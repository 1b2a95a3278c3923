"""A program of its own: asks the NVIDIA driver once for all it tells of its GPUs, one JSON object a line.

    python -m firstlight.gpus.nvidia_helper

It is a process because a call into a sick driver can block for ever, in a state that no signal ends. Before every
call it says which, so that whoever waits can name the one that did not come back; every GPU is told as soon as it is
known. A field that the driver refuses holds `{"refused": its words, "code": its number}`. The lines are private
between this program and `firstlight.gpus.asking`.

Written from NVML's documentation and the source of nvidia-ml-py 13; not yet measured on a GPU.
"""

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from firstlight.gpus.answering import answering

Say = Callable[[dict[str, Any]], None]

FUNCTION_NOT_FOUND = 13
GIVEN_UP = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: no other question about this GPU is worth the risk."""

SM_CLOCK = 1
UNCORRECTED = 1
SINCE_THE_DRIVER_LOADED = 0
NVLINKS_MAX = 18
READ, WRITE = 0, 1
"""NVML_P2P_CAPS_INDEX_*, written out: the constant of nvidia-ml-py for reading is a tuple by mistake."""

P2P_WORDS = (
    "ok",
    "chipset not supported",
    "GPU not supported",
    "topology not supported",
    "disabled by the driver's settings",
    "not supported",
)
FABRIC_WORDS = ("not supported", "not started", "in progress", "completed")
FABRIC_COMPLETED = 3


def main() -> int:
    """Say everything once."""
    say = answering()
    try:
        import pynvml
    except ImportError:
        say({"missing": "nvidia-ml-py"})
        return 0
    try:
        _tell_all(pynvml, say)
    except pynvml.NVMLError as error:
        say({"failed": str(error)})
    return 0


def _tell_all(nvml: ModuleType, say: Say) -> None:
    say({"asking": "nvmlInit"})
    nvml.nvmlInit()
    machine = _Card(nvml, say, -1)
    say(
        {
            "driver": _text(machine.ask("nvmlSystemGetDriverVersion")),
            "cuda": machine.ask("nvmlSystemGetCudaDriverVersion"),
        }
    )
    say({"asking": "nvmlDeviceGetCount"})
    count = nvml.nvmlDeviceGetCount()
    say({"count": count})
    cards = [_Card(nvml, say, index) for index in range(count)]
    for card in cards:
        say({"card": card.told(cards)})
    say({"end": True})


class _Card:
    """One GPU, and what the driver made of questions about it. The machine as a whole has the index -1."""

    def __init__(self, nvml: ModuleType, say: Say, index: int) -> None:
        self._nvml = nvml
        self._say = say
        self.index = index
        self._gone: dict[str, Any] | None = None
        self.handle = self.ask("nvmlDeviceGetHandleByIndex", index) if index >= 0 else None
        if _refused(self.handle):
            self._gone = self.handle

    def ask(self, call: str, *words: Any) -> Any:
        """The driver's answer, or how it refused."""
        if self._gone is not None:
            return self._gone
        self._say({"asking": call, "gpu": self.index})
        try:
            return getattr(self._nvml, call)(*words)
        except Exception as error:  # noqa: BLE001 - nvidia-ml-py raises more than its own NVMLError, see `_everybody`
            refusal = {"refused": str(error), "code": getattr(error, "value", FUNCTION_NOT_FOUND)}
        if refusal["code"] in GIVEN_UP:
            self._gone = refusal
        return refusal

    def told(self, all_cards: "list[_Card]") -> dict[str, Any]:
        """The GPU as one object."""
        rates = self.ask("nvmlDeviceGetUtilizationRates", self.handle)
        memory = self.ask("nvmlDeviceGetMemoryInfo", self.handle)
        nvlinks = self._nvlinks()
        return {
            "index": self.index,
            "name": _text(self.ask("nvmlDeviceGetName", self.handle)),
            "capability": self.ask("nvmlDeviceGetCudaComputeCapability", self.handle),
            "pci": _text(_part(self.ask("nvmlDeviceGetPciInfo", self.handle), "busId")),
            "utilisation": _part(rates, "gpu"),
            "memory_activity": _part(rates, "memory"),
            "power_mw": self.ask("nvmlDeviceGetPowerUsage", self.handle),
            "power_limit_mw": self.ask("nvmlDeviceGetEnforcedPowerLimit", self.handle),
            "sm_clock_mhz": self.ask("nvmlDeviceGetClockInfo", self.handle, SM_CLOCK),
            "memory_used": _part(memory, "used"),
            "memory_total": _part(memory, "total"),
            "bar1": _part(self.ask("nvmlDeviceGetBAR1MemoryInfo", self.handle), "bar1Total"),
            "processes": self._processes(),
            "ecc": self.ask("nvmlDeviceGetTotalEccErrors", self.handle, UNCORRECTED, SINCE_THE_DRIVER_LOADED),
            "repair": self._repair(),
            "fabric": self._fabric(),
            "nvlinks_up": nvlinks,
            "peers": [[other.index, self._peer(other)] for other in all_cards if other is not self],
        }

    def _processes(self) -> Any:
        """Pid and memory of everybody on it: those that compute, draw, or come through MPS."""
        compute = self._everybody("nvmlDeviceGetComputeRunningProcesses")
        if _refused(compute):
            return compute
        found: dict[int, int | None] = {}
        for call in ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
            more = self._everybody(call)
            found.update({} if _refused(more) else {one.pid: one.usedGpuMemory for one in more})
        found.update({one.pid: one.usedGpuMemory for one in compute})
        return [[pid, used] for pid, used in found.items()]

    def _everybody(self, call: str) -> Any:
        """A list of processes. A driver older than nvidia-ml-py may only know the version before of this question."""
        found = self.ask(call, self.handle)
        if not _refused(found):
            return found
        older = self.ask(f"{call}_v2", self.handle)
        return found if _refused(older) else older

    def _repair(self) -> Any:
        """Rows that wait to be remapped (Ampere and later), else pages that wait to be retired."""
        rows = self.ask("nvmlDeviceGetRemappedRows", self.handle)
        if not _refused(rows):
            _, _, pending, failed = rows
            return "failed" if failed else "pending" if pending else "none"
        pages = self.ask("nvmlDeviceGetRetiredPagesPendingStatus", self.handle)
        return pages if _refused(pages) else "pending" if pages else "none"

    def _fabric(self) -> Any:
        for call, structure in (
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
            ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
        ):
            if not hasattr(self._nvml, structure):
                continue
            info = getattr(self._nvml, structure)()
            refusal = self.ask(call, self.handle, ctypes.byref(info))
            if not _refused(refusal):
                return _fabric_word(info.state, info.status)
        return self._gone or {"refused": "the driver does not tell", "code": FUNCTION_NOT_FOUND}

    def _nvlinks(self) -> Any:
        """For every link whether it is up. A card answers only for links that it has."""
        answers = [
            self.ask("nvmlDeviceGetNvLinkState", self.handle, link)
            for link in range(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", NVLINKS_MAX))
        ]
        known = [bool(answer) for answer in answers if not _refused(answer)]
        return known or answers[0]

    def _peer(self, other: "_Card") -> Any:
        """What the driver says of reaching the other one's memory."""
        if _refused(other.handle):
            return other.handle
        words = []
        for way in (READ, WRITE):
            answer = self.ask("nvmlDeviceGetP2PStatus", self.handle, other.handle, way)
            if _refused(answer):
                return answer
            words.append(P2P_WORDS[answer] if answer < len(P2P_WORDS) else "unknown")
        read, write = words
        return read if read == write else f"reading {read}, writing {write}"


def _fabric_word(state: int, status: int) -> str:
    word = FABRIC_WORDS[state] if state < len(FABRIC_WORDS) else "unknown"
    return f"{word} with error {status}" if state == FABRIC_COMPLETED and status else word


def _refused(answer: Any) -> bool:
    return isinstance(answer, dict)


def _part(answer: Any, name: str) -> Any:
    return answer if _refused(answer) else getattr(answer, name)


def _text(answer: Any) -> Any:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


if __name__ == "__main__":
    sys.exit(main())
