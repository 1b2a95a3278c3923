"""Real programs that really hang, looked at for real and judged: the right process, the right finding."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.diagnose.conftest import bundle

from firstlight import evidence, procfs
from firstlight.clock import SystemClock
from firstlight.core.process import Process
from firstlight.diagnose import Change, Statement, compare, state
from firstlight.testing.launcher import command

CLOCK = SystemClock()
WAIT_S = 60.0
APART_S = 0.7


@dataclass(frozen=True)
class Running:
    """A program of the zoo that was started."""

    server: "subprocess.Popen[bytes]"

    def processes(self) -> list[Process]:
        return [self._process(pid) for pid in self._tree(self.server.pid)]

    def _tree(self, pid: int) -> list[int]:
        return [pid, *(below for child in procfs.children(pid) for below in self._tree(child))]

    def _process(self, pid: int) -> Process:
        stat = procfs.stat(pid)
        return Process(id=stat.id, ppid=stat.ppid, name=stat.comm, cmdline=procfs.cmdline(pid))

    def pid_of(self, name: str) -> int:
        return next(one.id.pid for one in self.processes() if one.name == name)

    def judged(self) -> tuple[Statement, Change]:
        """Two looks at it as it is now."""
        processes = self.processes()
        first = evidence.look(processes, clock=CLOCK)
        CLOCK.sleep(APART_S)
        second = evidence.look(processes, clock=CLOCK)
        return state(bundle(first, second), stalled=False), compare(first, second).change

    def until(self, finding: str) -> tuple[Statement, Change]:
        """Judged again and again until it has come to its stall, which `finding` tells."""
        ends = CLOCK.monotonic() + WAIT_S
        while CLOCK.monotonic() < ends:
            statement, change = self.judged()
            if finding in {one.id for one in statement.findings} and change is not Change.MOVING:
                return statement, change
        raise AssertionError(f"never found {finding}; the last word was {statement}")


class Zoo:
    def __init__(self) -> None:
        self._running: list[Running] = []

    def __call__(self, program: str, *options: str | int) -> Running:
        server = subprocess.Popen(command(program, *options), stdout=subprocess.DEVNULL, start_new_session=True)
        self._running.append(Running(server))
        return self._running[-1]

    def close(self) -> None:
        for one in self._running:
            os.killpg(one.server.pid, signal.SIGKILL)
            one.server.wait(WAIT_S)


@pytest.fixture
def zoo() -> Iterator[Zoo]:
    opened = Zoo()
    yield opened
    opened.close()


def test_a_stopped_worker(zoo: Zoo) -> None:
    running = zoo("sigstop_worker")
    statement, change = running.until("stopped_process")
    worker = running.pid_of("worker_TP0")
    assert statement.suspects[0] == worker
    assert f"worker_TP0 (pid {worker}) is stopped by a signal" in statement.headline
    assert statement.headline.endswith("waits for it")
    assert change is Change.STILL


def test_a_weights_file_that_is_a_fifo(zoo: Zoo, tmp_path: Path) -> None:
    running = zoo("fifo_weights", "--folder", str(tmp_path))
    statement, change = running.until("fifo_without_writer")
    assert statement.findings[0].verdict == "established"
    assert statement.suspects[0] == running.pid_of("worker_TP0")
    assert str(tmp_path / "model.safetensors") in statement.headline
    assert change is Change.STILL


def test_two_locks_in_opposite_order(zoo: Zoo) -> None:
    statement, _ = zoo("lock_inversion").until("deadlock")
    told = " ".join(statement.findings[0].evidence)
    assert "allocate (lock_inversion.py" in told
    assert "evict (lock_inversion.py" in told
    assert "with cache:" in told


def test_a_child_that_died_without_a_word(zoo: Zoo) -> None:
    running = zoo("pipe_child_died")
    statement, change = running.until("dead_pipe_peer")
    assert statement.suspects[0] == running.server.pid
    assert f"worker_TP0 (pid {running.pid_of('worker_TP0')})" in " ".join(statement.findings[0].evidence)
    assert change is Change.STILL


def test_a_queue_that_is_never_drained(zoo: Zoo) -> None:
    running = zoo("queue_never_drained")
    statement, _ = running.until("queue_full")
    worker = running.pid_of("worker_TP0")
    assert statement.findings[0].pids == (worker, running.server.pid)
    doing = {one.pid: one.doing for one in statement.processes}
    assert f"waits for worker_TP0 (pid {worker}) to end" in doing[running.server.pid]


def test_a_lock_file_that_was_left_behind(zoo: Zoo, tmp_path: Path) -> None:
    running = zoo("stale_extension_lock", "--folder", str(tmp_path))
    statement, _ = running.until("stale_jit_lock")
    lock = tmp_path / "torch_extensions" / "py311_cpu" / "fused_rotary" / "lock"
    assert str(lock) in statement.headline
    assert statement.suspects[0] == running.pid_of("worker_TP0")


def test_a_rank_that_spins_for_a_dead_one(zoo: Zoo) -> None:
    running = zoo("spinning_rank")
    statement, change = running.until("cpu_spin")
    assert {"rank_died", "cpu_spin"} == {one.id for one in statement.findings}
    assert "wait_for_flag" in next(one.doing for one in statement.processes if one.state == "R")
    assert change is Change.SPINNING


def test_a_dead_rank_of_three(zoo: Zoo) -> None:
    running = zoo("rank_dies", "--how", "killed")
    statement, _ = running.until("rank_died")
    assert f"worker_TP1 (pid {running.pid_of('worker_TP1')})" in statement.headline


@pytest.mark.parametrize("program", ["trickle_load", "slow_download"])
def test_a_slow_load_moves(program: str, zoo: Zoo) -> None:
    running = zoo(program, "--seconds", 600)
    ends = CLOCK.monotonic() + WAIT_S
    while running.judged()[1] is not Change.MOVING or len(running.processes()) < 2:
        assert CLOCK.monotonic() < ends
    for _ in range(3):
        statement, change = running.judged()
        assert change is Change.MOVING, statement
        assert statement.headline.startswith("still moving")


def test_a_long_computation_is_no_stall_of_any_known_kind(zoo: Zoo) -> None:
    running = zoo("compile_inside", "--seconds", 120)
    ends = CLOCK.monotonic() + WAIT_S
    while (judged := running.judged())[1] is not Change.SPINNING:
        assert CLOCK.monotonic() < ends, judged
    assert judged[0].findings == ()
