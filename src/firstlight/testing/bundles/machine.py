"""The machine, its GPUs and folders in a bundle made by hand: in good health, but for what is given."""

from firstlight.core.gpu import Gpu
from firstlight.core.host import Host, Interface, Place, Topology
from firstlight.core.look import Folder
from firstlight.testing.bundles.facts import GB

NOW = 1_800_000_000.0


def folder(
    purpose: str, path: str, *, bytes_: int = 0, files: int = 0, grows: int = 0, newest_ago_s: float = 900
) -> tuple[Folder, int]:
    """A folder at the last look, and by how many bytes it grew since the first."""
    newest = NOW - (1 if grows else newest_ago_s)
    return Folder(purpose=purpose, path=path, files=files, bytes=bytes_, newest=newest), grows


def gpu(index: int, **more: object) -> Gpu:
    """An idle H100 in good health, but for what is given."""
    told: dict[str, object] = {
        "name": "NVIDIA H100 80GB HBM3",
        "architecture": "90",
        "utilisation": 0.0,
        "memory_activity": 0.0,
        "power_w": 115.0,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1980.0,
        "memory_used_bytes": 2 * GB,
        "memory_total_bytes": 80 * GB,
        "processes": (),
        "ecc_errors": 0,
        "fabric": "completed",
        "nvlinks_down": 0,
        "pci": f"0000:{0x10 + index:02x}:00.0",
        **more,
    }
    return Gpu(index=index, **told)  # type: ignore[arg-type]


def gpus(count: int, **more: object) -> tuple[Gpu, ...]:
    """GPUs 0 to `count` - 1, all alike."""
    return tuple(gpu(index, **more) for index in range(count))


def place(purpose: str, path: str, *, filesystem: str = "ext4", **more: object) -> Place:
    """A folder that the server uses, with room left in it."""
    told: dict[str, object] = {
        "free_bytes": 800 * GB,
        "total_bytes": 1800 * GB,
        "slow": filesystem.startswith(("nfs", "fuse", "lustre")),
        **more,
    }
    return Place(purpose=purpose, path=path, filesystem=filesystem, **told)  # type: ignore[arg-type]


def interface(name: str, *addresses: str, kind: str = "ethernet", up: bool = True) -> Interface:
    """A network interface."""
    return Interface(name=name, kind=kind, up=up, addresses=addresses)


def host(**more: object) -> Host:
    """A large GPU server that lacks nothing, but for what is given."""
    told: dict[str, object] = {
        "name": "gpu-a",
        "kernel": "6.8.0",
        "cpus": 64,
        "memory_bytes": 512 * GB,
        "memory_free_bytes": 400 * GB,
        "shm_bytes": 256 * GB,
        "shm_used_bytes": GB // 8,
        "may_ptrace": "any process",
        "cpu_arch": "x86_64",
        "swap_bytes": 0,
        "places": (
            place("weights", "/models/llm", needed_bytes=16 * GB),
            place("compile_cache", "/root/.cache/vllm"),
            place("extensions", "/root/.cache/torch_extensions"),
            place("home", "/root"),
        ),
        "interfaces": (interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.0.0.2")),
        "topology": Topology(iommu="off", acs=(), bar1_bytes=128 * GB),
        "driver": "570.172.08",
        "cuda": "12.8",
        "kernel_command": (),
        "preload": (),
        "numa_nodes": 2,
        "hugepages_bytes": 0,
        "clock_synchronised": True,
        **more,
    }
    return Host(**told)  # type: ignore[arg-type]
