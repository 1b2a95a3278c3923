"""Pressure, memory and swapping of this machine; the kernel's log, recorded and real."""

import os
from pathlib import Path

from firstlight.clock import Deadline, HandClock, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.kernel_log import LINES_MAX, kernel_log, telling
from firstlight.evidence.pressure import pressure


def test_this_machine_has_free_memory_and_shares_between_nothing_and_all() -> None:
    here = pressure()
    assert isinstance(here.memory_free_bytes, int)
    assert here.memory_free_bytes > 0
    for share in (here.memory_some, here.memory_full, here.io_some, here.cpu_some):
        assert isinstance(share, Gap) or 0 <= share <= 100
    for pages in (here.swapped_in, here.swapped_out):
        assert isinstance(pages, Gap) or pages >= 0


XID = b"4,1201,90000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
HUNG = b"3,1202,95000000,-;INFO: task python:4711 blocked for more than 120 seconds.\n"
OOM = b"3,1203,96000000,-;Memory cgroup out of memory: Killed process 99 (python) total-vm:1kB\n"
NFS = b"5,1204,97000000,-;nfs: server fileserver not responding, still trying\n"
DISK = b"3,1205,98000000,-;I/O error, dev nvme0n1, sector 1234 op 0x0:(READ)\n"
TRACE = b"4,1203,96100000,-; oom_kill_process.cold+0x8/0x8a\n"
DULL = b"6,1206,98500000,-;eth0: link becomes ready\n"
BOOT = b"5,1,0,-;Kernel command line: nvidia.secret=1\n"


def test_telling_lines_since_a_time_oldest_first() -> None:
    found = telling(
        iter([BOOT, XID, HUNG, OOM, TRACE, NFS, DISK, DULL, b"garbage", b"", b";;;", b"1,2,x,-;NVRM"]), 92.0
    )
    assert [line.split()[0] for line in found] == ["INFO:", "Memory", "nfs:", "I/O"]
    assert telling(iter([BOOT, XID]), 0.0) == (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    )


def test_a_flood_is_cut_to_the_newest_lines() -> None:
    records = (b"3,%d,%d000000,-;NVRM: line %d %s\n" % (n, n, n, b"x" * 5000) for n in range(1000))
    found = telling(records, 0.0)
    assert len(found) == LINES_MAX
    assert found[-1].startswith("NVRM: line 999 ")
    assert max(map(len, found)) <= 500


def test_secrets_in_the_log_are_replaced() -> None:
    (line,) = telling(iter([b"3,1,1,-;NVRM: api_key=s3cr3ts3cr3t\n"]), 0.0)
    assert "s3cr3t" not in line


def test_the_log_of_this_machine_is_read_without_waiting_or_refused() -> None:
    clock = SystemClock()
    found = kernel_log(0.0, clock, Deadline(clock, 2.0, "the kernel's log"))
    if isinstance(found, Gap):
        assert found.reason in {GapReason.NO_PERMISSION, GapReason.NOT_SUPPORTED}
    else:
        assert len(found) <= LINES_MAX


def test_where_there_is_no_log_there_is_a_gap_with_a_way_out(tmp_path: Path) -> None:
    clock = HandClock()
    found = kernel_log(0.0, clock, Deadline(clock, 2.0, "log"), tmp_path / "kmsg")
    assert isinstance(found, Gap)
    assert found.reason is GapReason.NOT_SUPPORTED
    assert "dmesg" in found.detail


def test_wall_time_is_turned_into_the_kernels(tmp_path: Path) -> None:
    """The machine has been up for 1,000 s: what was logged at 95 s was logged 905 s ago."""
    device, clock = tmp_path / "kmsg", HandClock(start=1000.0)
    os.mkfifo(device)
    feeder = os.open(device, os.O_RDWR)
    for age_s, expected in ((1000.0, 1), (800.0, 0)):
        os.write(feeder, HUNG)
        found = kernel_log(clock.wall() - age_s, clock, Deadline(clock, 2.0, "log"), device)
        assert not isinstance(found, Gap)
        assert len(found) == expected
    os.close(feeder)
