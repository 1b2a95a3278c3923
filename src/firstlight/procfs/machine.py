"""What /proc says of the whole machine: memory, pressure, addresses, when and how the kernel was booted."""

from firstlight.procfs.reading import content


def boot_wall_time() -> float:
    """Unix time of the boot, from /proc/stat; turns a start time in ticks into wall time."""
    for line in content("/proc/stat").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0


def meminfo() -> dict[str, int]:
    """/proc/meminfo, in bytes; the few rows without a unit (HugePages_Total) are counts."""
    rows = (row.split() for row in content("/proc/meminfo").decode().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * (1024 if row[2:] else 1) for row in rows}


def vmstat() -> dict[str, int]:
    """/proc/vmstat: counts since boot, in pages where they count memory."""
    rows = (row.split() for row in content("/proc/vmstat").decode().splitlines())
    return {row[0]: int(row[1]) for row in rows}


def pressure(resource: str) -> dict[str, float]:
    """Stalls for want of "memory", "io" or "cpu", in percent of the last ten seconds: of "some" tasks, of "full".

    Not there without CONFIG_PSI, and refused (EOPNOTSUPP) where it is switched off.
    """
    rows = (row.split() for row in content(f"/proc/pressure/{resource}").decode().splitlines())
    return {row[0]: float(row[1].removeprefix("avg10=")) for row in rows}


def kernel_command() -> tuple[str, ...]:
    """The words that the kernel was booted with."""
    return tuple(content("/proc/cmdline").decode(errors="replace").split())


def nvidia_version() -> str:
    """What the NVIDIA kernel module says of itself, first line; not there without the module."""
    return content("/proc/driver/nvidia/version").decode(errors="replace").partition("\n")[0]


def ipv6_addresses() -> list[tuple[str, bytes]]:
    """Interfaces with their IPv6 addresses (16 bytes each); none on a machine without IPv6."""
    try:
        rows = [row.split() for row in content("/proc/net/if_inet6").decode().splitlines()]
    except FileNotFoundError:
        return []
    return [(row[5], bytes.fromhex(row[0])) for row in rows]
