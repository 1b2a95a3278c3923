"""A program of its own: asks the NVIDIA driver for its numbers, one JSON object a line, until nobody reads them.

    python -m firstlight.gpus.watch_helper SECONDS

It is a process because a call into a sick driver can block for ever, in a state that no signal ends; then only this
process is lost. It needs the package nvidia-ml-py, and says so if it is missing. A number that a card does not have
is null (unified-memory machines report no memory, some laptops no power).
"""

import sys
import time
from types import ModuleType
from typing import Any

from firstlight.gpus.answering import answering


def main() -> int:
    """Print one line now and one every so many seconds."""
    every_s = float(sys.argv[1])
    say = answering()
    try:
        import pynvml
    except ImportError:
        say({"missing": "nvidia-ml-py"})
        return 0
    try:
        pynvml.nvmlInit()
        while True:
            say({"gpus": [_read(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]})
            time.sleep(every_s)
    except pynvml.NVMLError as error:
        say({"failed": str(error)})
    except BrokenPipeError:
        pass
    return 0


def _read(nvml: ModuleType, index: int) -> dict[str, Any]:
    card = _asked(nvml, "nvmlDeviceGetHandleByIndex", index)

    def ask(call: str) -> Any:
        return None if card is None else _asked(nvml, call, card)

    rates = ask("nvmlDeviceGetUtilizationRates")
    memory = ask("nvmlDeviceGetMemoryInfo")
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    if processes is None:  # a driver older than nvidia-ml-py knows only the version before of this question
        processes = ask("nvmlDeviceGetComputeRunningProcesses_v2")
    return {
        "index": index,
        "name": _text(ask("nvmlDeviceGetName")),
        "utilisation": rates and rates.gpu,
        "memory_activity": rates and rates.memory,
        "power_mw": ask("nvmlDeviceGetPowerUsage"),
        "power_limit_mw": ask("nvmlDeviceGetEnforcedPowerLimit"),
        "memory_bytes": memory and memory.used,
        "pids": [process.pid for process in processes or ()],
    }


def _asked(nvml: ModuleType, call: str, *words: Any) -> Any:
    """The driver's answer; None for whatever it does not answer, a GPU that it has lost included."""
    try:
        return getattr(nvml, call)(*words)
    except Exception:  # noqa: BLE001 - nvidia-ml-py raises more than its own NVMLError
        return None


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


if __name__ == "__main__":
    sys.exit(main())
