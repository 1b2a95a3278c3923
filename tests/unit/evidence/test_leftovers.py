"""What earlier runs left behind: real orphans under the titles of engines, and rows of the kernel for what hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import shared_memory

import pytest

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.look import Leftover
from firstlight.evidence import leftovers as module
from firstlight.evidence.leftovers import leftovers
from firstlight.procfs import Stat

ORPHAN = """
import mmap, os, socket, sys, time
child = os.fork()
if child:
    os._exit(0)
os.setsid()
if "port" in sys.argv:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
else:
    port = 0
if "shm" in sys.argv:
    with open(f"/dev/shm/{sys.argv[-1]}", "r+b") as file:
        area = mmap.mmap(file.fileno(), 0)
print(os.getpid(), port, flush=True)
time.sleep(120)
"""


@pytest.fixture
def orphans() -> Iterator["Orphans"]:
    made = Orphans()
    yield made
    made.close()


class Orphans:
    """Processes that have been handed to init, or to whoever adopts orphans here, called as a test wants."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._segments: list[shared_memory.SharedMemory] = []

    def make(self, title: str, *holds: str) -> tuple[int, int]:
        """The pid of an orphan with this title, and the port that it listens on."""
        argv = [title, "-c", ORPHAN, *holds]
        with subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid, port = map(int, parent.stdout.readline().split())
        self._pids.append(pid)
        return pid, port

    def segment(self) -> str:
        made = shared_memory.SharedMemory(create=True, size=4096)
        self._segments.append(made)
        return made.name

    def close(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        for segment in self._segments:
            segment.close()
            segment.unlink()


def seen(pid: int, own: tuple[int, ...] = ()) -> Leftover | None:
    clock = SystemClock()
    found = leftovers(own, clock, Deadline(clock, 10.0, "leftovers"))
    return next((one for one in found if one.pid == pid), None)


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "VLLM::Worker_TP3", "sglang::scheduler_TP1", "fl-worker-2"])
def test_an_orphan_of_an_engine_is_told_with_the_port_that_it_holds(orphans: Orphans, title: str) -> None:
    pid, port = orphans.make(title, "port")
    one = seen(pid)
    assert one is not None
    assert one.name.startswith(title)
    assert f"port {port}" in one.holds
    assert one.state in "RS"
    assert 0 <= one.age_s < 60
    assert not one.unseen


def test_shared_memory_in_its_hands_is_told(orphans: Orphans) -> None:
    name = orphans.segment()
    pid, _ = orphans.make("VLLM::EngineCore", "shm", name)
    one = seen(pid)
    assert one is not None
    assert one.holds == (f"/dev/shm/{name}",)


def test_what_is_ours_is_no_leftover(orphans: Orphans) -> None:
    pid, _ = orphans.make("VLLM::EngineCore")
    assert seen(pid) is not None
    assert seen(pid, own=(pid,)) is None


def test_a_program_of_somebody_else_is_none(orphans: Orphans) -> None:
    pid, _ = orphans.make("important-database", "port")
    assert seen(pid) is None


def test_a_worker_of_a_living_parent_is_none() -> None:
    worker = subprocess.Popen(["VLLM::Worker_TP0", "-c", "import time; time.sleep(60)"], executable=sys.executable)
    try:
        assert seen(worker.pid) is None
    finally:
        worker.kill()
        worker.wait()


def test_what_only_looks_like_one_counts_with_something_in_its_hands(orphans: Orphans) -> None:
    name = orphans.segment()
    empty, _ = orphans.make("python --multiprocessing-fork", "port")
    holding, _ = orphans.make("python --multiprocessing-fork", "shm", name)
    assert seen(empty) is None
    assert seen(holding) is not None


def test_a_secret_on_its_command_line_is_replaced(orphans: Orphans) -> None:
    pid, _ = orphans.make("vllm serve --api-key s3cr3ts3cr3t")
    one = seen(pid)
    assert one is not None
    assert "s3cr3t" not in one.name


def row(pid: int, comm: str, state: str, ppid: int, threads: int = 1) -> Stat:
    return Stat(pid, comm, state, ppid, pid, pid, 0, 1.0, threads, 100, 0, 0)


class Kernel:
    """What /proc would tell of a machine with processes that hang, which no test can make on purpose."""

    def __init__(self, rows: list[Stat], switches: dict[int, list[str]]) -> None:
        self._rows = {one.pid: one for one in rows}
        self._switches = switches

    def stat(self, pid: int) -> Stat:
        return self._rows[pid]

    def status(self, pid: int) -> dict[str, str]:
        count = self._switches[pid].pop(0)
        return {"State": "D (disk sleep)", "voluntary_ctxt_switches": count, "nonvoluntary_ctxt_switches": "0"}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(procfs, "pids", lambda: list(self._rows))
        monkeypatch.setattr(procfs, "stat", self.stat)
        monkeypatch.setattr(procfs, "status", self.status)
        monkeypatch.setattr(procfs, "cmdline", lambda pid: (self._rows[pid].comm,))
        monkeypatch.setattr(
            procfs, "fds", lambda pid: iter([procfs.FdLink(3, "/dev/nvidia0"), procfs.FdLink(4, "/dev/nvidia-uvm")])
        )


def test_who_hangs_in_the_kernel_is_told_and_who_only_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    far = 4_000_000
    rows = [
        row(1, "systemd", "S", 0),
        row(far, "VLLM::Worker_TP", "D", far + 9),
        row(far + 1, "VLLM::Worker_TP", "D", far + 9),
        row(far + 2, "nvidia-smi", "D", far + 9),
        row(far + 3, "postgres", "D", far + 9),
        row(far + 9, "bash", "S", 1),
    ]
    switches = {far: ["7", "7"], far + 1: ["7", "8"], far + 2: ["1", "1"], far + 3: ["1", "1"]}
    Kernel(rows, switches).install(monkeypatch)
    clock = SystemClock()
    found = leftovers((), clock, Deadline(clock, 5.0, "leftovers"))
    assert [(one.pid, one.state) for one in found] == [(far, "D"), (far + 2, "D")]
    assert found[0].holds == ("GPU 0", "/dev/nvidia-uvm")


def test_orphans_of_a_container_whose_first_process_is_the_engine_are_not_told_from_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = 4_000_000
    Kernel([row(1, "vllm serve m", "S", 0), row(far, "VLLM::EngineCore", "S", 1)], {}).install(monkeypatch)
    clock = SystemClock()
    assert leftovers((), clock, Deadline(clock, 5.0, "leftovers")) == ()


def test_zombies_hold_nothing_unless_threads_of_theirs_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    far = 4_000_000
    rows = [row(1, "init", "S", 0), row(far, "VLLM::EngineCor", "Z", 1), row(far + 1, "VLLM::EngineCor", "Z", 1, 9)]
    Kernel(rows, {}).install(monkeypatch)
    monkeypatch.setattr(procfs, "mapped", lambda pid, under: set[str]())
    clock = SystemClock()
    found = leftovers((), clock, Deadline(clock, 5.0, "leftovers"))
    assert [one.pid for one in found] == [far + 1]


def test_a_flood_of_orphans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    far = 4_000_000
    rows = [row(1, "init", "S", 0), *(row(far + n, "VLLM::EngineCor", "S", 1) for n in range(1000))]
    Kernel(rows, {}).install(monkeypatch)
    monkeypatch.setattr(procfs, "mapped", lambda pid, under: set[str]())
    clock = SystemClock()
    assert len(leftovers((), clock, Deadline(clock, 20.0, "leftovers"))) == module.LEFTOVERS_MAX
