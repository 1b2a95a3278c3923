"""From how much on a change counts as work: for each signal its floor."""

from firstlight.core.record import Record

KIB = 1024


class Floors(Record):
    """Where work begins. Shares are of one core or in percent, the rest in bytes or counts.

    cpu: threads that poll ten times a second use 0.1 % to 3 % of a core, an idle vLLM engine 1 %; a loader that waits
    for a slow disk 20 % and more. `rest_cores_max` bounds what is forgiven as the process's own idle heartbeat.
    children: CPU of children that came and went. `until curl ...; do sleep 1; done` uses 1 to 2 %, a build far more.
    runnable: the main thread was found running or ready this often; true for one that computes on a crowded machine
    or under a CPU quota, and gets less than the floor. `nap_s` is the CPU from one wait to the next of a thread that
    only polls, and is always ready there too: loops that sleep for 50 µs come to as much again.
    stretch: CPU that the main thread used in one go, whatever it comes to over a window. Who only looks whether it is
    time goes back to wait after a few milliseconds.
    bytes: the slowest load worth waiting for brings 50 kB/s; reading /proc/meminfo and /proc/stat once a second, as
    monitoring threads do, 2 to 6 kB/s. disk: nobody reads storage to stay alive.
    socket: ZeroMQ heartbeats, TCPStore polls and keep-alives stay below 1 kB/s.
    growth: over a window (40 KiB/s) and beyond the peak of the minute before, so that a heap that breathes is no
    progress, and neither is a small leak, nor a hung server that is asked again and again (26 kB/s). Before Linux
    6.16 the kernel counts in steps of 256 KiB, each of which is then taken for growth. `thread_bytes` is taken off
    for every new thread: one that holds a buffer of 64 KiB costs 80 to 95 kB.
    faults: pages fetched from storage for a memory-mapped file.
    gpu: utilisation only says that a kernel is resident. A kernel that spins for its peer shows 100 % with no memory
    activity at a fifth of the power limit or less (70 W of 400, 22 W of 140).
    """

    window_s: float = 5.0
    cpu_cores: float = 0.10
    weak_cores: float = 0.01
    rest_cores_max: float = 0.05
    children_cores: float = 0.03
    runnable_share: float = 0.6
    nap_s: float = 0.001
    stretch_s: float = 0.05
    bytes_s: float = 8 * KIB
    disk_bytes_s: float = 1 * KIB
    socket_bytes_s: float = 2 * KIB
    growth_bytes: int = 200 * KIB
    thread_bytes: int = 128 * KIB
    growth_memory_s: float = 60.0
    faults_s: float = 2.0
    gpu_utilisation: float = 5.0
    gpu_memory_activity: float = 3.0
    gpu_power_share: float = 0.30
    gpu_growth_bytes: int = 8 * KIB * KIB
