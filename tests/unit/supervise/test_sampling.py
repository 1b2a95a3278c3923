"""Samples of real processes: what they read, write, compute and hold."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import HandClock, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.liveness.sampling import Sampler, sample_of

DEADLINE_S = 20
WORKER = """
import subprocess, sys, time
for command in sys.stdin:
    verb, argument = command.rstrip("\\n").split(" ", 1)
    if verb == "read":
        open(argument, "rb").read()
    elif verb == "write":
        open(argument, "wb").write(b"x" * 3_000_000)
    elif verb == "compute":
        until = time.process_time() + float(argument)
        while time.process_time() < until: pass
    elif verb == "hold":
        kept = bytearray(int(argument))
        for at in range(0, len(kept), 4096): kept[at] = 1
    elif verb == "run":
        subprocess.run([sys.executable, "-I", "-S", "-c", argument], check=True)
    print("done", flush=True)
"""


class Worker:
    """A process that does what it is told."""

    def __init__(self) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-I", "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.do("compute 0")
        identity = procfs.stat(self.running.pid).id
        self.process = Process(id=identity, ppid=os.getpid(), name="worker", cmdline=())

    def do(self, what: str) -> None:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(what + "\n")
        self.running.stdin.flush()
        assert self.running.stdout.readline() == "done\n"

    def end(self) -> None:
        self.running.kill()
        self.running.communicate(timeout=DEADLINE_S)


@pytest.fixture
def worker() -> Iterator[Worker]:
    started = Worker()
    yield started
    started.end()


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    made = Sampler(SystemClock())
    yield made
    made.close()


def test_what_a_process_does_shows_in_its_counters(worker: Worker, sampler: Sampler, tmp_path: Path) -> None:
    big = tmp_path / "weights"
    big.write_bytes(b"w" * 5_000_000)
    before = sampler.sample([worker.process]).samples[worker.process.id]
    for what in (f"read {big}", f"write {tmp_path / 'out'}", "compute 0.3", "hold 40000000"):
        worker.do(what)
    after = sampler.sample([worker.process]).samples[worker.process.id]
    assert 5_000_000 <= number(after.read_bytes) - number(before.read_bytes) < 5_200_000
    assert 3_000_000 <= number(after.write_bytes) - number(before.write_bytes) < 3_200_000
    assert after.cpu_s - before.cpu_s >= 0.25
    assert after.memory_bytes - before.memory_bytes > 35_000_000
    assert number(after.shared_bytes) > 0
    assert after.threads == 1


def test_what_the_main_thread_computes_in_one_go_shows(worker: Worker, sampler: Sampler) -> None:
    id_ = worker.process.id
    before = sampler.sample([worker.process]).main_threads[id_]
    worker.do("compute 0.3")
    after = sampler.sample([worker.process]).main_threads[id_]
    assert after.cpu_s - before.cpu_s >= 0.25
    assert after.waits - before.waits <= 5


def number(seen: int | Gap) -> int:
    assert not isinstance(seen, Gap)
    return seen


def test_measurements_say_how_far_apart_they_are(worker: Worker) -> None:
    clock = HandClock()
    sampler = Sampler(clock)
    assert sampler.sample([worker.process]).interval_s == 0.0
    clock.advance(2.5)
    measurement = sampler.sample([worker.process])
    assert (measurement.at, measurement.interval_s) == (1002.5, 2.5)
    assert measurement.gpus == ()
    sampler.close()


def test_programs_that_a_process_ran_count_once_they_have_ended(worker: Worker) -> None:
    before = sample_of(worker.process.id)
    worker.do("run import time; any(time.process_time() > 0.3 for _ in iter(int, 1))")
    after = sample_of(worker.process.id)
    assert before is not None
    assert after is not None
    assert after.children_cpu_s - before.children_cpu_s >= 0.25


def test_a_stopped_process_is_in_state_t(worker: Worker) -> None:
    os.kill(worker.running.pid, signal.SIGSTOP)
    _, status = os.waitpid(worker.running.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    sample = sample_of(worker.process.id)
    assert sample is not None
    assert sample.state == "T"


def test_a_process_that_is_gone_or_another_by_the_same_pid_is_left_out(worker: Worker, sampler: Sampler) -> None:
    other = Process(id=ProcessId(pid=worker.running.pid, started=1), ppid=1, name="another", cmdline=())
    worker_gone = worker.process
    assert set(sampler.sample([other, worker_gone]).samples) == {worker_gone.id}
    worker.end()
    assert sampler.sample([other, worker_gone]).samples == {}


def test_a_zombie_is_sampled_without_a_gap(sampler: Sampler) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    process = Process(id=procfs.stat(child.pid).id, ppid=os.getpid(), name="zombie", cmdline=())
    measurement = sampler.sample([process])
    assert measurement.samples[process.id].state == "Z"
    assert measurement.gaps == ()
    child.stdout.close()
    child.wait(DEADLINE_S)


def test_refused_files_are_gaps_said_once(sampler: Sampler) -> None:
    """Seen as a user without rights: a child that gives up root asks about its parent."""
    if os.geteuid() != 0:
        measurement = sampler.sample([_process(1)])
        assert [gap.reason for gap in measurement.gaps] == [GapReason.NO_PERMISSION]
        return
    told = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(os.getpid()), str(os.getppid())],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert told.stdout.split() == ["gap", "gap", "1", "NO_PERMISSION"]


def _process(pid: int) -> Process:
    return Process(id=procfs.stat(pid).id, ppid=0, name="other", cmdline=())


AS_NOBODY = """
import os, sys
from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.process import Process
from firstlight.supervise.liveness.sampling import Sampler
os.setgroups([]); os.setgid(65534); os.setuid(65534)
processes = [Process(id=procfs.stat(int(pid)).id, ppid=0, name="x", cmdline=()) for pid in sys.argv[1:]]
measurement = Sampler(SystemClock()).sample(processes)
for sample in measurement.samples.values():
    print("gap" if isinstance(sample.read_bytes, Gap) else sample.read_bytes)
print(len(measurement.gaps), measurement.gaps[0].reason.name)
"""
