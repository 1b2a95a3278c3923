"""Whose GPUs this machine has, by the files that their drivers make."""

from pathlib import Path

NVIDIA = "nvidia"
AMD = "amd"

NVIDIA_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia")
AMD_FILE = "/dev/kfd"


def vendor() -> str:
    """NVIDIA, AMD, or empty. Beside NVIDIA's cards an AMD one is the processor's own graphics, and left alone."""
    if any(Path(path).exists() for path in NVIDIA_FILES):
        return NVIDIA
    return AMD if Path(AMD_FILE).exists() else ""
