"""One look at real stalls: what each probe tells of them, and that the look always returns."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Process, ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import look, processes
from firstlight.evidence.stacks import python_stacks


def main_thread(seen: ProcessLook) -> ThreadLook:
    return seen.threads[0]


def functions(thread: ThreadLook) -> list[str]:
    assert not isinstance(thread.stack, Gap), thread.stack
    return [frame.function for frame in thread.stack]


def file_of(seen: ProcessLook, kind: str) -> OpenFile:
    return next(one for one in seen.files if one.kind == kind)


def test_a_sleeping_process_is_seen_whole(programs: Programs, eyes: Eyes) -> None:
    process = programs.python("""
        import threading, time

        def load_weights(seconds):
            time.sleep(seconds)

        print("ready", flush=True)
        load_weights(600)
    """)
    seen = eyes.until_in("clock_nanosleep", process)
    thread = main_thread(seen)
    assert seen.process == process
    assert (seen.sample.state, seen.sample.threads, seen.gaps) == ("S", 1, ())
    assert thread.name == "MainThread"
    assert thread.wchan
    assert functions(thread)[0] == "load_weights"
    assert not isinstance(thread.stack, Gap)
    assert thread.stack[0].code == "time.sleep(seconds)"
    assert thread.stack[0].line == 5


def test_a_fifo_that_nobody_writes_is_named_by_the_open_that_waits(programs: Programs, eyes: Eyes) -> None:
    path = programs.folder / "model.safetensors"
    os.mkfifo(path)
    process = programs.python("import sys\nprint('ready', flush=True)\nopen(sys.argv[1], 'rb')", str(path))
    seen = eyes.until_in("openat", process)
    assert main_thread(seen).path == str(path)
    assert (seen.files[0].kind, seen.files[0].target, seen.files[0].peers) == ("fifo", str(path), ())


def test_a_relative_path_is_completed(programs: Programs, eyes: Eyes) -> None:
    os.mkfifo(programs.folder / "weights.bin")
    text = "import os, sys\nos.chdir(sys.argv[1])\nprint('ready', flush=True)\nopen('weights.bin', 'rb')"
    seen = eyes.until_in("openat", programs.python(text, str(programs.folder)))
    assert (seen.files[0].kind, seen.files[0].target) == ("fifo", str(programs.folder / "weights.bin"))


PARENT_AND_CHILD = """
    import multiprocessing, os, time

    def child(sending):
        {child}

    receiving, sending = multiprocessing.Pipe(duplex={duplex})
    one = multiprocessing.get_context("fork").Process(target=child, args=(sending,))
    one.start()
    {parent}
    print("ready", flush=True)
    receiving.recv()
"""


@pytest.mark.parametrize(("duplex", "kind"), [(False, "pipe"), (True, "socket")])
def test_who_holds_the_other_end_of_a_pipe_is_told(duplex: bool, kind: str, programs: Programs, eyes: Eyes) -> None:
    text = PARENT_AND_CHILD.format(duplex=duplex, child="time.sleep(600)", parent="sending.close()")
    process = programs.python(text)
    seen = eyes.until_in("read", process)
    awaited = next(one for one in seen.files if one.fd in main_thread(seen).fds)
    assert awaited.kind == kind
    assert awaited.peers == tuple(child.id.pid for child in programs.children(process))


@pytest.mark.parametrize("duplex", [False, True])
def test_a_reader_that_alone_holds_the_other_end_is_told(duplex: bool, programs: Programs, eyes: Eyes) -> None:
    text = PARENT_AND_CHILD.format(duplex=duplex, child="os._exit(1)", parent="one.join()")
    process = programs.python(text)
    seen = eyes.until_in("read", process)
    awaited = next(one for one in seen.files if one.fd in main_thread(seen).fds)
    assert awaited.peers == (process.id.pid,)


def test_both_ends_of_a_loopback_connection_are_told(programs: Programs, eyes: Eyes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = programs.python(
            "import socket, sys\none = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "print('ready', flush=True)\none.recv(1)",
            str(port),
        )
        ours, _ = server.accept()
        with ours:
            seen = eyes.until_in("recvfrom", process)
        awaited = file_of(seen, "socket")
        assert awaited.peers == (os.getpid(),)
        assert f"127.0.0.1:{port}, ESTABLISHED" in awaited.detail


def test_what_a_poll_waits_for_is_told(programs: Programs, eyes: Eyes) -> None:
    process = programs.python("""
        import multiprocessing.connection as connection, os
        pipes = [connection.Pipe(duplex=False) for _ in range(3)]
        print("ready", flush=True)
        connection.wait([reading for reading, _ in pipes])
    """)
    seen = eyes.until_in("poll", process)
    assert len(main_thread(seen).fds) == 3
    assert {one.kind for one in seen.files if one.fd in main_thread(seen).fds} == {"pipe"}


def test_what_an_event_loop_waits_for_is_told(programs: Programs, eyes: Eyes) -> None:
    process = programs.python("""
        import asyncio

        async def main():
            await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            print("ready", flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """)
    seen = eyes.until_in("epoll_wait", process)
    assert any("listens on 127.0.0.1" in one.detail for one in seen.files if one.fd in main_thread(seen).fds)


def test_a_flock_names_its_holder_and_who_waits(programs: Programs, eyes: Eyes) -> None:
    lock = programs.folder / "hub.lock"
    take = "import fcntl, sys, time\nfile = open(sys.argv[1], 'w')\n"
    holder = programs.python(take + "fcntl.flock(file, 2)\nprint('ready', flush=True)\ntime.sleep(600)", str(lock))
    waiter = programs.python(take + "print('ready', flush=True)\nfcntl.flock(file, 2)", str(lock))
    eyes.until_in("flock", waiter)
    seen = eyes.look(waiter)
    assert not isinstance(seen.locks, Gap)
    found = next(one for one in seen.locks if one.path == str(lock))
    assert (found.kind, found.holder, found.waiters) == ("flock", holder.id.pid, (waiter.id.pid,))
    assert found.holder_name.startswith("python")


def test_a_flock_that_a_dead_process_left_to_its_child_names_the_child(programs: Programs, eyes: Eyes) -> None:
    lock = programs.folder / "hub.lock"
    process = programs.python(
        """
        import fcntl, os, sys, time
        file = open(sys.argv[1], "w")
        if os.fork() == 0:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
        print("ready", flush=True)
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        """,
        str(lock),
    )
    eyes.until_in("flock", process)
    heir = next(pid for pid in procfs.pids() if holds(pid, lock) and pid != process.id.pid)
    seen = eyes.look(process, programs.process(heir))
    assert not isinstance(seen.locks, Gap)
    assert [one.holder for one in seen.locks if one.path == str(lock)] == [heir]


def holds(pid: int, path: Path) -> bool:
    try:
        return any(link.target == str(path) for link in procfs.fds(pid))
    except OSError:
        return False


def test_the_position_in_a_weights_file_is_told(programs: Programs, eyes: Eyes) -> None:
    path = programs.folder / "model-00001.safetensors"
    path.write_bytes(bytes(10_000))
    process = programs.python(
        """
        import sys, time
        file = open(sys.argv[1], "rb", buffering=0)
        file.read(4096)
        print("ready", flush=True)
        time.sleep(600)
        """,
        str(path),
    )
    seen = eyes.look(process).processes[0]
    file = next(one for one in seen.files if one.target == str(path))
    assert (file.kind, file.position, file.access) == ("file", 4096, "r")


def test_listening_ports_and_their_owners_are_told(programs: Programs, eyes: Eyes) -> None:
    process = programs.python("""
        import socket, time
        server = socket.create_server(("127.0.0.1", 0))
        print("ready", flush=True)
        time.sleep(600)
    """)
    seen = eyes.look(process)
    assert not isinstance(seen.listeners, Gap)
    assert [(one.host, one.pid) for one in seen.listeners] == [("127.0.0.1", process.id.pid)]


def test_a_stranger_on_the_wanted_port_is_told(programs: Programs, eyes: Eyes) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        seen = eyes.look(process, port=port)
    assert not isinstance(seen.listeners, Gap)
    assert [(one.port, one.pid) for one in seen.listeners] == [(port, os.getpid())]


def test_a_stopped_process_is_seen_and_stays_stopped(programs: Programs, eyes: Eyes) -> None:
    process = programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    os.kill(process.id.pid, signal.SIGSTOP)
    os.waitpid(process.id.pid, os.WUNTRACED)
    seen = eyes.look(process).processes[0]
    assert seen.sample.state == "T"
    assert functions(main_thread(seen)) == ["<module>"]
    assert procfs.stat(process.id.pid).state == "T"


def test_a_process_that_is_gone_is_a_gap(programs: Programs, eyes: Eyes) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    programs.kill(process)
    seen = eyes.look(process)
    assert seen.processes == ()
    assert [(gap.reason, gap.pid) for gap in seen.gaps] == [(GapReason.VANISHED, process.id.pid)]


def test_another_process_under_the_same_pid_is_a_gap(programs: Programs, eyes: Eyes) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    earlier = Process(
        id=ProcessId(pid=process.id.pid, started=process.id.started - 1), ppid=1, name="sleep", cmdline=("sleep",)
    )
    seen = eyes.look(earlier)
    assert seen.processes == ()
    assert [gap.reason for gap in seen.gaps] == [GapReason.VANISHED]


def test_a_zombie_is_seen_without_a_gap(programs: Programs, eyes: Eyes) -> None:
    process = programs.python(
        "import os, time\nos.fork() or os._exit(3)\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    child = programs.children(process)[0]
    ends = SystemClock().monotonic() + 20
    while procfs.stat(child.id.pid).state != "Z":
        assert SystemClock().monotonic() < ends
        SystemClock().sleep(0.01)
    seen = eyes.look(child)
    assert [one.sample.state for one in seen.processes] == ["Z"]


def test_threads_beyond_the_most_that_are_looked_at_are_a_gap(
    programs: Programs, eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "THREADS_MAX", 4)
    process = programs.python("""
        import threading, time
        for _ in range(9):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        print("ready", flush=True)
        time.sleep(600)
    """)
    seen = eyes.look(process).processes[0]
    assert len(seen.threads) == 4
    assert seen.threads[0].tid == process.id.pid
    assert any("10 threads" in gap.detail for gap in seen.gaps)


def test_a_process_that_may_not_be_read_is_a_gap_with_a_way_out(programs: Programs) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user to look from")
    process = programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    text = (
        "import os, sys, time\nfrom firstlight import procfs\nfrom firstlight.evidence import processes\n"
        "from firstlight.core.process import Process\nfrom firstlight.core.record import to_json\n"
        "os.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"
        f"stat = procfs.stat({process.id.pid})\n"
        "one = Process(id=stat.id, ppid=1, name='x', cmdline=())\n"
        "sys.stdout.buffer.write(to_json(processes.look_at(one, time.monotonic())))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = msgspec.json.decode(done.stdout, type=ProcessLook)
    assert seen.sample.state == "S"
    refused = [seen.sample.read_bytes, main_thread(seen).syscall]
    assert all(isinstance(one, Gap) and one.reason is GapReason.NO_PERMISSION and one.detail for one in refused)
    assert set(seen.gaps) == set(refused)


def test_a_hanging_py_spy_costs_the_stacks_and_nothing_else(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "py-spy"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(hanging.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(python_stacks, "find_py_spy", lambda: hanging)
    sleepers = [programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)") for _ in range(5)]
    seen = look(sleepers, clock=SystemClock(), deadline_s=2.0)
    assert len(seen.processes) == 5
    for one in seen.processes:
        stack = main_thread(one).stack
        assert isinstance(stack, Gap)
        assert stack.reason is GapReason.TIMED_OUT
        assert stack in one.gaps


def test_no_time_at_all_gives_gaps_and_still_an_answer(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    seen = look([process], clock=SystemClock(), deadline_s=0.0)
    assert seen.processes == () or seen.processes[0].process == process
    assert {gap.reason for gap in seen.gaps} <= {GapReason.TIMED_OUT}


def test_nobody_to_look_at_is_an_empty_look(eyes: Eyes) -> None:
    seen = eyes.look()
    assert (seen.processes, seen.gaps) == ((), ())


def test_secrets_of_a_command_line_are_not_kept(programs: Programs, eyes: Eyes) -> None:
    text = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    process = programs.python(text, "--api-key", "s3cr3tvalue")
    seen = eyes.look(process).processes[0]
    assert "s3cr3tvalue" in process.cmdline
    assert "s3cr3tvalue" not in seen.process.cmdline
