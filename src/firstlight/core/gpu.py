"""A GPU at one moment: what its driver says of work, power, memory, faults and neighbours."""

from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason

NOT_TOLD = Gap(what="GPU", reason=GapReason.NOT_SUPPORTED, detail="the driver does not tell")


class GpuProcess(Record):
    """A process on a GPU, as the driver numbers it (in a container often by the host's pids), and its memory."""

    pid: int
    memory_bytes: int | Gap = NOT_TOLD


class Gpu(Record):
    """One GPU. Shares in percent, power in watts, clocks in MHz, memory in bytes.

    `utilisation` says that a kernel is resident, not that it works: 100 % at idle power with no `memory_activity`
    is a spin. `architecture` is the compute capability as "90" or "120" (AMD: "gfx942"). `xid` are numbers of
    NVIDIA's error events that the kernel log or the driver reports for it, oldest first. `ecc_errors` are
    uncorrected ones. `peers` tells for other GPUs by index what the driver says of peer-to-peer access ("ok", "not
    supported", "chipset not supported"): "ok" is a claim and no proof. `fabric` is the state of the NVLink fabric
    ("completed", "in progress", "not supported"), `nvlinks_down` counts links that are not up.
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
