"""The machine, as far as a stall may depend on it."""

from firstlight.core.facts import Cgroup, Limit
from firstlight.core.gap import Gap, Seen
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason

NOT_ASKED = Gap(what="facts of the machine", reason=GapReason.NOT_SUPPORTED, detail="this bundle left them out")


class Place(Record):
    """A folder that the server uses, and the file system that it lies on.

    `purpose`: weights, hub_cache, engine_cache, compile_cache, extensions, home, tmp, shm. `filesystem` is the
    kernel's word ("ext4", "nfs4", "fuse.s3fs", "lustre", "overlay", "tmpfs"); `slow` is true for one that is known to
    be a network or user-space file system. Sizes in bytes. `needed_bytes` is what is to be read from it (the model's
    weight files), 0 if not known. `there` is false if the path does not exist (yet); the rest is then of the folder
    around it.
    """

    purpose: str
    path: str
    filesystem: str
    free_bytes: int | Gap
    total_bytes: int | Gap
    slow: bool = False
    writable: bool = True
    needed_bytes: int = 0
    there: bool = True


class Interface(Record):
    """A network interface. `kind`: loopback, ethernet, infiniband, bridge, tunnel, virtual, other."""

    name: str
    kind: str
    up: bool
    addresses: tuple[str, ...] = ()


class Resolved(Record):
    """What the machine makes of a host name that the server was told: its addresses, or why there are none."""

    name: str
    addresses: tuple[str, ...] | Gap


class Topology(Record):
    """What decides whether GPUs can reach each other over PCIe.

    `iommu`: "off", "passthrough", "on" or a gap. `acs` lists the PCIe bridges above GPUs that redirect peer traffic
    upwards (ACSCtl with SrcValid or ReqRedir set). `bar1_bytes` is the smallest BAR1 window of any GPU.
    """

    iommu: Seen[str] = NOT_ASKED
    acs: tuple[str, ...] | Gap = NOT_ASKED
    bar1_bytes: int | Gap = NOT_ASKED


class Coverage(Record):
    """Which GPU architectures a library of kernels has machine code for, read from the fatbin sections of its ELF
    file.

    `machine_code` and `ptx` list compute capabilities as "90", "100a", "120" (AMD: "gfx942"). `missing` lists the
    capabilities of GPUs in this machine that it has no machine code for; if no PTX fits either, its kernels cannot
    run there at all. `runs_from_ptx` is true if PTX fits all of these: the driver then compiles it at first use.
    `unread` tells what kept the file from being read whole; then nothing is said to be missing.
    """

    library: str
    machine_code: tuple[str, ...]
    ptx: tuple[str, ...]
    missing: tuple[str, ...] = ()
    runs_from_ptx: bool = False
    unread: tuple[Gap, ...] = ()


class Host(Record):
    """The machine.

    `cpus` are those that firstlight may use, `cpu_arch` is uname's ("x86_64", "aarch64"). `driver` and `cuda` are
    the versions of the NVIDIA driver and the newest CUDA that it supports. `kernel_command` are the words of
    /proc/cmdline that matter (iommu, pci, numa …). `preload` is /etc/ld.so.preload. `hugepages_bytes` is what is
    reserved for them. `clock_synchronised` speaks of the wall clock. `container` is "docker", "kubernetes",
    "podman", "lxc" or empty. `limits` and `cgroup` are those of firstlight itself, which a server that it starts
    inherits. `devices` are the nodes and folders under /dev that matter for transports between GPUs and are there
    ("/dev/infiniband", "/dev/nvidia-caps-imex-channels", "/dev/gdrdrv", "/dev/kfd").
    """

    name: str
    kernel: str
    cpus: int
    memory_bytes: int
    shm_bytes: int | Gap
    shm_used_bytes: int | Gap
    may_ptrace: str
    cpu_arch: str = ""
    memory_free_bytes: int | Gap = NOT_ASKED
    swap_bytes: int | Gap = NOT_ASKED
    places: tuple[Place, ...] = ()
    interfaces: tuple[Interface, ...] | Gap = NOT_ASKED
    resolved: tuple[Resolved, ...] = ()
    topology: Topology = Topology()
    coverage: tuple[Coverage, ...] = ()
    driver: Seen[str] = NOT_ASKED
    cuda: Seen[str] = NOT_ASKED
    kernel_command: tuple[str, ...] = ()
    preload: tuple[str, ...] | Gap = NOT_ASKED
    numa_nodes: int | Gap = NOT_ASKED
    hugepages_bytes: int | Gap = NOT_ASKED
    page_bytes: int = 4096
    clock_synchronised: Seen[bool] = NOT_ASKED
    container: str = ""
    limits: tuple[Limit, ...] | Gap = NOT_ASKED
    cgroup: Cgroup = Cgroup()
    devices: tuple[str, ...] | Gap = NOT_ASKED

    def place(self, purpose: str) -> Place | None:
        """The first place of that purpose; None if the bundle has none."""
        return next((one for one in self.places if one.purpose == purpose), None)
