"""How a process ended is known though it is nobody's child here: status, signal, order, OOM killer."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.cgroupfs import cgroup_mounts
from firstlight.clock import HandClock
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.vocabulary import GapReason, Role
from firstlight.supervise.processes.exits import PIDFDS_SHARE, ExitWatch, exit_of, status_by_pidfd, status_by_zombie
from firstlight.supervise.processes.oom import (
    GROWTH_COUNTS_S,
    OomWatch,
    counter_file,
    killed_pids,
    oom_kills,
)


@pytest.fixture
def watch(clock):
    exits = ExitWatch(clock)
    yield exits
    exits.close()


@pytest.fixture
def parent():
    """A parent with children that are not ours: `parent(source)` runs it, it prints their pids, one a line."""
    started = []

    def run(source):
        process = subprocess.Popen(["bash", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def child_of(process):
    return procfs.stat(int(process.stdout.readline())).id


def collect(watch, eventually, count=1):
    exits = []
    eventually(lambda: exits.extend(watch.poll()) or len(exits) >= count, f"{count} exits")
    return exits


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


KNOWS_REAPED = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
WAITING_CHILD = "exec 3<&0; (read <&3; {end}) & echo $!; wait; read"


@pytest.mark.parametrize(
    ("end", "known"),
    [
        pytest.param("exit 0", (0, None), id="exit 0"),
        pytest.param("exit 7", (7, None), id="exit 7"),
        pytest.param("kill -9 $BASHPID", (None, 9), id="SIGKILL"),
        pytest.param("ulimit -c 0; kill -ABRT $BASHPID", (None, 6), id="SIGABRT"),
    ],
)
def test_the_end_of_anothers_child_is_known_after_its_parent_reaped_it(watch, parent, eventually, end, known):
    process = parent(WAITING_CHILD.format(end=end))
    id_ = child_of(process)
    watch.watch(id_, Process(id=id_, ppid=0, name="python", cmdline=()))
    watch.watch(id_, Process(id=id_, ppid=0, name="worker", cmdline=(), role=Role.WORKER, label="TP1", rank=1))
    go(process)
    (exit_,) = collect(watch, eventually)
    assert (exit_.id, exit_.name, exit_.role, exit_.label, exit_.rank) == (id_, "worker", Role.WORKER, "TP1", 1)
    kernel_forgot = isinstance(exit_.code, Gap) and not KNOWS_REAPED
    assert kernel_forgot or (exit_.code, exit_.signal) == known


def test_a_zombie_tells_its_status_though_nobody_reaps_it(watch, eventually):
    process = subprocess.Popen(["bash", "-c", "read; exit 5"], stdin=subprocess.PIPE)
    id_ = procfs.stat(process.pid).id
    watch.watch(id_)
    process.stdin.close()
    (exit_,) = collect(watch, eventually)
    assert exit_.code == 5
    process.wait()


def test_exits_come_in_the_order_of_death(watch, eventually):
    processes = [subprocess.Popen(["sleep", "620"]) for _ in range(5)]
    ids = [procfs.stat(process.pid).id for process in processes]
    for id_ in ids:
        watch.watch(id_)
    order = [3, 0, 4, 1, 2]
    for number in order:
        processes[number].kill()
        processes[number].wait()
    exits = collect(watch, eventually, count=5)
    assert [exit_.id for exit_ in exits] == [ids[number] for number in order]
    assert [exit_.at for exit_ in exits] == sorted(exit_.at for exit_ in exits)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_more_processes_than_descriptors_are_watched_all_the_same(clock, parent, eventually):
    """Those without a pidfd are known to have died from the process tree, with the status that the guard tells."""
    few = descriptors() + 100  # the tests before this one may have left some open
    count = few // PIDFDS_SHARE + 20
    process = parent(f"for n in {{1..{count}}}; do sleep 624 & echo $!; done; wait; read")
    ids = [child_of(process) for _ in range(count)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        watch = ExitWatch(clock)
        before = descriptors()
        for id_ in ids:
            watch.watch(id_)
        assert descriptors() - before <= few // PIDFDS_SHARE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for id_ in ids:
        os.kill(id_.pid, signal.SIGKILL)
    go(process)
    eventually(lambda: not any(Path(f"/proc/{id_.pid}").exists() for id_ in ids), "the end of all")
    watch.told([Exit(id=id_, name="sleep", at=clock.wall(), signal=9) for id_ in ids])
    watch.gone(tuple(ids))
    exits = collect(watch, eventually, count=count)
    assert {exit_.id for exit_ in exits} == set(ids)
    assert {exit_.signal for exit_ in exits} == {9}
    watch.close()


def test_the_root_of_a_daemon_ends_and_the_end_of_the_daemon_is_told_later(watch, start, eventually):
    server = start.python(
        "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "print(os.getpid()); os.execlp('sleep', 'sleep', '625')"
    )
    eventually(lambda: start.log().endswith("\n"), "the daemon")
    daemon = procfs.stat(int(start.log())).id
    watch.watch(server.root)
    watch.watch(daemon)
    exits = []

    def told(count):
        watch.told(server.poll())
        exits.extend(exit_ for exit_ in watch.poll() if exit_.id in {server.root, daemon})
        return len(exits) == count

    eventually(lambda: told(1), "the root's end")
    os.kill(daemon.pid, signal.SIGKILL)
    eventually(lambda: told(2), "the daemon's end")
    assert [(exit_.id, exit_.code, exit_.signal) for exit_ in exits] == [(server.root, 0, None), (daemon, None, 9)]


def test_one_that_was_gone_before_it_was_watched_is_told_by_the_guard(watch, eventually):
    process = subprocess.Popen(["true"])
    process.wait()
    id_ = ProcessId(pid=process.pid, started=1)
    watch.watch(id_)
    watch.told([Exit(id=id_, name="true", at=0.0, code=4)])
    assert collect(watch, eventually)[0].code == 4


def test_a_death_that_only_the_guard_saw_is_told_and_none_is_told_twice(watch, eventually):
    process = subprocess.Popen(["sleep", "623"])
    id_ = procfs.stat(process.pid).id
    watch.watch(id_)
    process.kill()
    process.wait()
    assert [exit_.id for exit_ in collect(watch, eventually)] == [id_]
    unseen = Exit(id=ProcessId(pid=1, started=1), name="setsid", at=5.0, signal=15)
    watch.told([Exit(id=id_, name="sleep", at=6.0, signal=9), unseen])
    assert collect(watch, eventually) == [unseen]
    watch.told([unseen])
    assert watch.poll() == []


def test_one_that_was_gone_before_it_was_watched_is_a_gap_if_nobody_tells(watch, eventually):
    process = subprocess.Popen(["true"])
    process.wait()
    watch.watch(ProcessId(pid=process.pid, started=1))
    code = collect(watch, eventually)[0].code
    assert isinstance(code, Gap)
    assert code.reason == GapReason.VANISHED


def test_a_pid_that_changed_hands_is_not_mistaken_for_its_former_owner(watch, eventually):
    mine = procfs.stat(os.getpid()).id
    watch.watch(ProcessId(pid=mine.pid, started=mine.started + 1))
    assert isinstance(collect(watch, eventually)[0].code, Gap)


def test_the_living_have_no_status():
    process = subprocess.Popen(["sleep", "621"])
    pidfd = os.pidfd_open(process.pid)
    try:
        assert status_by_pidfd(pidfd) is None
        assert status_by_zombie(procfs.stat(process.pid).id) is None
    finally:
        os.close(pidfd)
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("status", "code", "killed_by"),
    [(0, 0, None), (0x0100, 1, None), (0xFF00, 255, None), (9, None, 9), (0x86, None, 6)],
)
def test_a_wait_status_is_taken_apart(status, code, killed_by):
    exit_ = exit_of(ProcessId(pid=2, started=1), "x", status, 0.0)
    assert (exit_.code, exit_.signal) == (code, killed_by)


V2_MOUNTS = "30 23 0:26 / {point} rw - cgroup2 cgroup2 rw"
V1_MOUNTS = (
    "35 31 0:32 {root} {point} rw - cgroup cgroup rw,memory\n36 31 0:33 / /elsewhere rw - cgroup cgroup rw,cpu"
)


def group(tmp_path, file, text):
    folder = tmp_path / file
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text(text)
    return folder


def test_the_counter_of_a_group_is_found_under_cgroup_v2(tmp_path):
    file = group(tmp_path, "kubepods/pod1/memory.events", "low 0\noom 1\noom_kill 3\n")
    mounts = cgroup_mounts(V2_MOUNTS.format(point=tmp_path))
    assert counter_file(mounts, "0::/kubepods/pod1\n") == file
    assert oom_kills(file.read_text()) == 3


def test_the_counter_of_a_group_is_found_under_cgroup_v1(tmp_path):
    file = group(tmp_path, "docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    mounts = cgroup_mounts(V1_MOUNTS.format(root="/", point=tmp_path))
    assert counter_file(mounts, "5:cpu:/x\n4:memory:/docker/abc\n0::/\n") == file
    assert oom_kills(file.read_text()) == 2


def test_in_a_container_the_mount_itself_is_the_group(tmp_path):
    file = group(tmp_path, "memory.oom_control", "oom_kill 0\n")
    mounts = cgroup_mounts(V1_MOUNTS.format(root="/docker/abc", point=tmp_path))
    assert counter_file(mounts, "4:memory:/docker/abc\n") == file


def test_without_a_memory_group_there_is_no_counter(tmp_path):
    assert counter_file(cgroup_mounts(V2_MOUNTS.format(point=tmp_path)), "0::/\n") is None
    assert counter_file([], "garbage") is None


def test_a_counter_of_an_older_kernel_counts_nothing():
    assert oom_kills("oom_kill_disable 0\nunder_oom 0\n") == 0


def test_the_kernels_log_names_whom_it_killed():
    record = b"3,1198,9913,-;Out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB\n"
    memcg = b"3,1199,9914,-;Memory cgroup out of memory: Killed process 815 (VLLM::Worker) total-vm:1kB"
    assert killed_pids(record + memcg) == {4711, 815}
    assert killed_pids(b"6,1,1,-;eth0: link up") == set()


def test_a_counter_that_has_just_grown_explains_a_kill_and_an_old_growth_does_not(tmp_path, monkeypatch):
    file = group(tmp_path, "pod/memory.events", "oom_kill 1\n")
    monkeypatch.setattr(procfs, "mountinfo", lambda: V2_MOUNTS.format(point=tmp_path))
    monkeypatch.setattr(procfs, "cgroup", lambda _: "0::/pod\n")
    clock = HandClock()
    first, second, third = (ProcessId(pid=pid, started=1) for pid in (1, 2, 3))
    oom = OomWatch(clock, read_kernel_log=lambda: b"")
    for id_ in (first, second, third):
        oom.watch(id_)
    assert not oom.blames(first)
    file.write_text("oom_kill 2\n")
    assert oom.blames(second)
    clock.advance(GROWTH_COUNTS_S + 1)
    assert not oom.blames(third)


def test_a_process_that_the_kernels_log_names_was_killed_for_memory():
    records = [b"Killed process 77 (x)", b""]
    oom = OomWatch(HandClock(), read_kernel_log=lambda: records.pop(0))
    assert oom.blames(ProcessId(pid=77, started=1))
    assert not oom.blames(ProcessId(pid=77, started=2))


def test_a_plain_sigkill_is_not_blamed_on_the_oom_killer(watch, eventually):
    process = subprocess.Popen(["sleep", "622"])
    watch.watch(procfs.stat(process.pid).id)
    os.kill(process.pid, signal.SIGKILL)
    (exit_,) = collect(watch, eventually)
    assert (exit_.signal, exit_.oom) == (9, False)
    process.wait()
