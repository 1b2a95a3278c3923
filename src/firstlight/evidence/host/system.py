"""The kernel and what it runs in: driver, clock, container, memory layout, words of the boot.

Price: reads. No driver is asked for anything: versions are those that the kernel's modules publish.
"""

import ctypes
import errno
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.libraries import PRELOAD_FILE, preload_words

_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_TELLING_WORDS = re.compile(
    r"(iommu|intel_iommu|amd_iommu|pci|pcie_\w+|numa\w*|hugepages\w*|default_hugepagesz|transparent_hugepage|isolcpus"
    r"|nohz_full|cgroup\w*|systemd\.unified_cgroup_hierarchy|swiotlb|nvidia\S*|amdgpu\S*|mem|memmap|psi)([.=].*)?"
)
_CUDA_OF_DRIVER = {
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
}
"""The newest CUDA of each driver branch, from the CUDA toolkit's release notes."""
_WORD_CHARACTERS_MAX = 256
_DEVICES = (
    "infiniband",
    "nvidia-caps-imex-channels",
    "nvidia-fs0",
    "nvidia-modeset",
    "nvidia-nvswitchctl",
    "nvidia-uvm",
    "nvidiactl",
    "gdrdrv",
    "kfd",
    "dri",
    "knem",
    "xpmem",
)
_STA_UNSYNC = 0x0040
_TIMEX_BYTES, _TIMEX_STATUS_AT = 208, 40
"""struct timex of 64-bit Linux (linux/timex.h)."""


def driver(sys_root: Path = Path("/sys")) -> str | Gap:
    """The version of the GPU driver that the kernel has loaded; AMD's with its name before it."""
    with suppress(OSError):
        if found := _DRIVER.search(procfs.nvidia_version()):
            return found[1]
    for module, before in (("nvidia", ""), ("amdgpu", "amdgpu ")):
        with suppress(OSError):
            return before + (sys_root / "module" / module / "version").read_text(encoding="ascii").strip()[:64]
    detail = "neither NVIDIA's nor AMD's kernel module says which version it has; without a GPU here that is as it is"
    return Gap(what="GPU driver", reason=GapReason.NOT_SUPPORTED, detail=detail)


def newest_cuda(version: str | Gap) -> str | Gap:
    """The newest CUDA that a driver of NVIDIA's supports. Pure."""
    if isinstance(version, Gap):
        return version
    branch = version.partition(".")[0]
    known = _CUDA_OF_DRIVER.get(int(branch)) if branch.isdigit() else None
    detail = f"driver {version} is in no list that firstlight has; nvidia-smi shows it"
    return known or Gap(what="newest CUDA", reason=GapReason.NOT_SUPPORTED, detail=detail)


def telling_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a kernel's command line that may matter for a stall. Pure."""
    return tuple(word[:_WORD_CHARACTERS_MAX] for word in words if _TELLING_WORDS.fullmatch(word))


def kernel_command() -> tuple[str, ...]:
    """The words that this kernel was booted with; none where that is hidden."""
    try:
        return procfs.kernel_command()
    except OSError:
        return ()


def preload(root: Path = Path("/")) -> tuple[str, ...] | Gap:
    """What /etc/ld.so.preload puts into every program."""
    try:
        return tuple(preload_words(root / PRELOAD_FILE.lstrip("/")))
    except OSError as error:
        return procfs.gap_from(error, PRELOAD_FILE)


def numa_nodes(sys_root: Path = Path("/sys")) -> int | Gap:
    """How many NUMA nodes the machine has."""
    folder = sys_root / "devices" / "system" / "node"
    if nodes := len(list(folder.glob("node[0-9]*"))):
        return nodes
    return Gap(what="NUMA nodes", reason=GapReason.NOT_SUPPORTED, detail=f"{folder} is not there")


def hugepages_bytes(sys_root: Path = Path("/sys")) -> int | Gap:
    """Memory set aside for huge pages of any size."""
    folder = sys_root / "kernel" / "mm" / "hugepages"
    try:
        sizes = [(int(one.name[10:-2]), int((one / "nr_hugepages").read_text())) for one in folder.iterdir()]
    except (OSError, ValueError) as error:
        return Gap(what="huge pages", reason=GapReason.NOT_SUPPORTED, detail=str(error))
    return sum(kilobytes * 1024 * count for kilobytes, count in sizes)


def clock_synchronised() -> bool | Gap:
    """Whether the kernel thinks that somebody keeps its wall clock right (adjtimex(2), read only)."""
    libc, state = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(_TIMEX_BYTES)
    if libc.adjtimex(state) < 0:
        number = ctypes.get_errno()
        reason = GapReason.NO_PERMISSION if number == errno.EPERM else GapReason.NOT_SUPPORTED
        return Gap(what="synchronisation of the clock", reason=reason, detail=os.strerror(number))
    status = int.from_bytes(state.raw[_TIMEX_STATUS_AT : _TIMEX_STATUS_AT + 4], "little", signed=True)
    return not status & _STA_UNSYNC


def container(environ: Mapping[str, str], groups: str, root: Path = Path("/")) -> str:
    """What kind of container this is, empty for none that is known. `groups` is the text of /proc/self/cgroup."""
    if environ.get("KUBERNETES_SERVICE_HOST") or (root / "var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    if "kubepods" in groups:
        return "kubernetes"
    if (root / "run/.containerenv").exists() or environ.get("container") == "podman":
        return "podman"
    if (root / ".dockerenv").exists() or "/docker/" in groups or "/docker-" in groups:
        return "docker"
    return "lxc" if environ.get("container") == "lxc" or "/lxc/" in groups or "/lxc.payload" in groups else ""


def devices(dev: Path = Path("/dev")) -> tuple[str, ...] | Gap:
    """The nodes and folders of GPUs and of transports between them that are there; an empty folder is none."""
    try:
        numbered = sorted(one.name for one in dev.iterdir() if re.fullmatch(r"nvidia\d+", one.name))
    except OSError as error:
        return procfs.gap_from(error, "devices")
    there = (name for name in (*numbered, *_DEVICES) if _is_there(dev / name))
    return tuple(f"/dev/{name}" for name in there)


def _is_there(device: Path) -> bool:
    try:
        return any(device.iterdir()) if device.is_dir() else device.exists()
    except OSError:
        return True
