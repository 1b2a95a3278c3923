"""A GPU at one moment: what its driver says of work, power, memory, faults and neighbours."""

from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason

NOT_TOLD = Gap(what="GPU", reason=GapReason.NOT_SUPPORTED, detail="the driver does not tell")


class GpuProcess(Record):
    """A process on a GPU, as the driver numbers it, and its memory.

    In a container the driver's numbers are often the host's. `here` is true if a process of this number can be seen
    from here and has a GPU's device file open; if it is not true, the number must not be joined with processes of the
    look, and a process that nobody here knows is no proof of a leftover: it may be a neighbour, or one of ours under
    its other number.
    """

    pid: int
    memory_bytes: int | Gap = NOT_TOLD
    here: bool | Gap = NOT_TOLD


class Gpu(Record):
    """One GPU. Shares in percent, power in watts, clocks in MHz, memory in bytes.

    `utilisation` says that a kernel is resident, not that it works: 100 % at idle power with no `memory_activity` is
    a spin. `architecture` is the compute capability as "90" or "120" (AMD: "gfx942"). `xid` are numbers of NVIDIA's
    error events that the kernel log or the driver reports for it, oldest first. `ecc_errors` are uncorrected ones.
    `peers` tells for other GPUs by index what the driver says of peer-to-peer access ("ok", "not supported", "chipset
    not supported"): "ok" is a claim and no proof. `pci` is its address as /sys has it ("0000:3b:00.0"). `fabric` is
    the state of the NVLink fabric ("completed", "completed with error 31", "in progress", "not started", "not
    supported"). `nvlinks` counts the links that the card has, `nvlinks_down` those that are not up: all of them on a
    card that is not bridged, which is no fault. `fault` is what the driver says where it gives the GPU up ("GPU is
    lost"), or that it never answered for it; empty if it did. `repair` tells whether broken memory waits for a reset
    to be replaced: "none", "pending", "failed". `bar1_bytes` is the window through which others reach its memory.
    """

    index: int
    name: str
    vendor: str = "nvidia"
    architecture: str = ""
    utilisation: float | Gap = NOT_TOLD
    memory_activity: float | Gap = NOT_TOLD
    power_w: float | Gap = NOT_TOLD
    power_limit_w: float | Gap = NOT_TOLD
    sm_clock_mhz: float | Gap = NOT_TOLD
    memory_used_bytes: int | Gap = NOT_TOLD
    memory_total_bytes: int | Gap = NOT_TOLD
    processes: tuple[GpuProcess, ...] | Gap = NOT_TOLD
    xid: tuple[int, ...] = ()
    ecc_errors: int | Gap = NOT_TOLD
    peers: tuple[tuple[int, str], ...] = ()
    fabric: str | Gap = NOT_TOLD
    nvlinks_down: int | Gap = NOT_TOLD
    pci: str = ""
    nvlinks: int | Gap = NOT_TOLD
    fault: str = ""
    repair: str | Gap = NOT_TOLD
    bar1_bytes: int | Gap = NOT_TOLD
