"""Recorded GPU drivers: this folder on the PYTHONPATH of a helper gives it `pynvml` and `amdsmi` that play back.

A recording is a JSON file, named by the variable FIRSTLIGHT_RECORDED_GPUS. `recorded` makes one, and the environment
that goes with it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "FIRSTLIGHT_RECORDED_GPUS"
FOLDER = Path(__file__).parent

HANGS = {"does": "hang"}
"""In place of an answer: the call never returns, and no signal that can be caught ends it."""
DIES = {"does": "die"}
MISMATCHES = {"does": "mismatch"}
"""In place of an answer: what nvidia-ml-py raises where the driver's library is older than itself, no NVMLError."""
RAMBLES = {"does": "ramble"}
"""In place of an answer: garbage on stdout, then silence."""


def refuses(code: int) -> dict[str, Any]:
    """In place of an answer: NVMLError with that number (3 not supported, 4 no permission, 15 GPU is lost)."""
    return {"does": "refuse", "code": code}


def recorded(folder: Path, gpus: Sequence[Mapping[str, Any]], **machine: Any) -> dict[str, str]:
    """Write a recording of `gpus`, each a mapping of calls to answers, and of calls about the `machine` as a whole.

    Returns the environment for a process that is to find it.
    """
    path = folder / "gpus.json"
    path.write_text(json.dumps({"gpus": list(gpus), "machine": machine}))
    return {"PYTHONPATH": str(FOLDER), VARIABLE: str(path)}


def nvidia(index: int = 0, count: int = 1, **instead: Any) -> dict[str, Any]:
    """An H200 as NVML tells it, one of `count`; `instead` replaces or adds answers."""
    others = {str(other): 0 for other in range(count) if other != index}
    return {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetCudaComputeCapability": [9, 0],
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:{0x1B + index:02X}:00.0"},
        "nvmlDeviceGetUtilizationRates": {"gpu": 100, "memory": 0},
        "nvmlDeviceGetPowerUsage": 118_250,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetMemoryInfo": {"total": 150_754_820_096, "used": 141_000_000_000, "free": 9_754_820_096},
        "nvmlDeviceGetBAR1MemoryInfo": {"bar1Total": 274_877_906_944, "bar1Used": 1, "bar1Free": 2},
        "nvmlDeviceGetComputeRunningProcesses": [{"pid": 4242 + index, "usedGpuMemory": 140_000_000_000}],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
        "nvmlDeviceGetGpuFabricInfoV": {"state": 3, "status": 0},
        "nvmlDeviceGetNvLinkState": [1] * 18,
        "nvmlDeviceGetP2PStatus": others,
        **instead,
    }


def amd(index: int = 0, count: int = 1, **instead: Any) -> dict[str, Any]:
    """An MI300X as amdsmi tells it, one of `count`; `instead` replaces or adds answers."""
    return {
        "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
        "amdsmi_get_gpu_activity": {"gfx_activity": 100, "umc_activity": 0, "mm_activity": "N/A"},
        "amdsmi_get_power_info": {"current_socket_power": 142, "average_socket_power": "N/A", "power_limit": 750},
        "amdsmi_get_clock_info": {"clk": 2100, "max_clk": 2100},
        "amdsmi_get_gpu_memory_usage": 180_000_000_000,
        "amdsmi_get_gpu_memory_total": 206_141_652_992,
        "amdsmi_get_gpu_process_list": [{"pid": 4242 + index, "memory_usage": {"vram_mem": 170_000_000_000}}],
        "amdsmi_get_gpu_device_bdf": f"0000:{0x05 + index:02x}:00.0",
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 3, "uncorrectable_count": 0},
        "amdsmi_is_P2P_accessible": {str(other): True for other in range(count) if other != index},
        **instead,
    }
