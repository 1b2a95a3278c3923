"""A program of its own: asks the NVIDIA driver for its numbers, one JSON object a line, until nobody reads them.

    python -m firstlight.gpus.watch_helper SECONDS

It is a process because a call into a sick driver can block for ever, in a state that no signal ends; then only this
process is lost. It needs the package nvidia-ml-py, and says so if it is missing. A number that a card does not have
is null (unified-memory machines report no memory, some laptops no power).
"""

import sys
import time
from collections.abc import Callable
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
    card = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except nvml.NVMLError:
            return None

    rates = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(card))
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(card))
    return {
        "index": index,
        "name": _text(ask(lambda: nvml.nvmlDeviceGetName(card))),
        "utilisation": rates and rates.gpu,
        "memory_activity": rates and rates.memory,
        "power_mw": ask(lambda: nvml.nvmlDeviceGetPowerUsage(card)),
        "power_limit_mw": ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(card)),
        "memory_bytes": memory and memory.used,
        "pids": [process.pid for process in ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(card)) or ()],
    }


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


if __name__ == "__main__":
    sys.exit(main())
