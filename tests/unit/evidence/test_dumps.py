"""Stacks by signal: real interpreters that answer it, and every way in which one must not be asked."""

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.stacks import python_stacks, stacks_of
from firstlight.evidence.stacks.dumps import DUMP_BYTES_MAX, VARIABLE, dumped, injection, parse
from firstlight.evidence.stacks.python_stacks import PythonThread

CLOCK = SystemClock()
READY_S = 20.0

WEDGED = """
    import ctypes, threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    library = ctypes.PyDLL(None)  # calls that keep the interpreter lock
    never_posted = ctypes.create_string_buffer(32)
    library.sem_init(never_posted, 0, 0)

    def load_weights():
        print("ready", flush=True)
        library.sem_wait(never_posted)
        print("woken", flush=True)

    load_weights()
"""
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(600)"


class Launched:
    """Programs that run with the injection, or with what a test puts in its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dumps = folder / "dumps"
        self.environ = {**os.environ, **injection(self.dumps, os.environ)}
        self.started: list[subprocess.Popen[bytes]] = []

    def python(self, text: str, *options: str) -> ProcessId:
        path = self.folder / f"program{len(self.started)}.py"
        path.write_text(textwrap.dedent(text))
        argv = [sys.executable, *options, str(path)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, env=self.environ, start_new_session=True)
        self.started.append(child)
        assert self.says(child) == "ready"
        return procfs.stat(child.pid).id

    @staticmethod
    def says(child: "subprocess.Popen[bytes]", within_s: float = READY_S) -> str:
        assert child.stdout is not None
        assert select.select([child.stdout], [], [], within_s)[0], f"it said nothing for {within_s} s"
        return child.stdout.readline().decode().strip()

    def ask(self, identity: ProcessId, seconds: float = READY_S) -> tuple[PythonThread, ...] | Gap:
        return dumped(identity, self.dumps, CLOCK, Deadline(CLOCK, seconds, "a dump"))

    def close(self) -> None:
        for child in self.started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(READY_S)
            if child.stdout:
                child.stdout.close()


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    programs = Launched(tmp_path)
    yield programs
    programs.close()


def refused(answer: tuple[PythonThread, ...] | Gap, reason: GapReason = GapReason.NOT_SUPPORTED) -> str:
    assert isinstance(answer, Gap), answer
    assert answer.reason is reason
    return answer.detail


def functions(answer: tuple[PythonThread, ...] | Gap) -> list[list[str]]:
    assert not isinstance(answer, Gap), answer
    return [[frame.function for frame in thread.stack] for thread in answer]


def until_waiting(identity: ProcessId) -> None:
    """Until the main thread waits in a futex: it says that it is ready a moment before."""
    ends = CLOCK.monotonic() + READY_S
    while not procfs.wchan(identity.pid, identity.pid).startswith("futex"):
        assert CLOCK.monotonic() < ends
        CLOCK.sleep(0.01)


def test_a_thread_that_blocks_in_c_with_the_interpreter_lock_held_tells_its_stack(launched: Launched) -> None:
    identity = launched.python(WEDGED)
    until_waiting(identity)
    for _ in range(2):  # it can be asked again, and each answer is told apart
        answer = launched.ask(identity)
        assert not isinstance(answer, Gap), answer
        main = [thread for thread in answer if thread.name == "MainThread"]
        assert [frame.function for frame in main[0].stack] == ["load_weights", "<module>"]
        assert (main[0].tid, main[0].stack[0].line) == (identity.pid, 10)
        assert len(answer) == 2
    assert select.select([launched.started[0].stdout], [], [], 0.2)[0] == [], "asking woke it"


def test_stacks_come_by_signal_only_where_py_spy_may_not_read(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = tmp_path / "py-spy"
    refuses.write_text("#!/bin/sh\necho Permission denied >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setattr(python_stacks, "find_py_spy", lambda: refuses)
    identity = launched.python(WEDGED)
    deadline = Deadline(CLOCK, READY_S, "stacks")
    alone = stacks_of([identity], CLOCK, deadline)[identity.pid]
    assert isinstance(alone, Gap)
    assert alone.reason is GapReason.NO_PERMISSION
    asked = stacks_of([identity], CLOCK, deadline, dumps=launched.dumps)[identity.pid]
    assert not isinstance(asked, Gap), asked
    main = next(thread for thread in asked if thread.tid == identity.pid)
    assert [frame.code for frame in main.stack] == ["library.sem_wait(never_posted)", "load_weights()"]


def test_a_forked_child_has_a_file_of_its_own(launched: Launched) -> None:
    parent = launched.python("""
        import os, time
        def in_the_child():
            print("ready", flush=True)
            time.sleep(600)
        if os.fork() == 0:
            in_the_child()
        os.wait()
    """)
    child = procfs.stat(procfs.children(parent.pid)[0]).id
    assert functions(launched.ask(child))[0][0] == "in_the_child"
    assert "in_the_child" not in functions(launched.ask(parent))[0]


def still_there(launched: Launched, identity: ProcessId) -> bool:
    return procfs.stat(identity.pid).id == identity and launched.started[0].poll() is None


def test_without_the_handler_nobody_is_signalled(launched: Launched) -> None:
    isolated = launched.python(SLEEPS, "-I")
    assert "no handler" in refused(launched.ask(isolated))
    assert still_there(launched, isolated)


def test_a_process_that_dropped_the_handler_is_not_signalled(launched: Launched) -> None:
    identity = launched.python("""
        import faulthandler, signal, time
        faulthandler.unregister(signal.SIGUSR2)
        print("ready", flush=True)
        time.sleep(600)
    """)
    assert "no longer catches" in refused(launched.ask(identity))
    assert still_there(launched, identity)


def test_a_process_that_closed_or_reused_the_file_is_not_signalled(launched: Launched) -> None:
    identity = launched.python("""
        import os, time
        os.closerange(3, 100)
        for _ in range(97):
            os.open("/dev/null", os.O_WRONLY)
        print("ready", flush=True)
        time.sleep(600)
    """)
    assert "no longer open" in refused(launched.ask(identity))
    assert still_there(launched, identity)


def test_a_program_that_took_the_place_of_a_python_is_not_signalled(launched: Launched) -> None:
    """The file of the pid is there, and its start time is the same; only the handler is gone."""
    identity = launched.python("import os\nprint('ready', flush=True)\nos.execvp('sleep', ['sleep', '600'])")
    ends = CLOCK.monotonic() + READY_S
    while procfs.stat(identity.pid).comm != "sleep":
        assert CLOCK.monotonic() < ends
        CLOCK.sleep(0.01)
    refused(launched.ask(identity))
    assert still_there(launched, identity)


def test_a_pid_that_was_given_to_another_is_not_signalled(launched: Launched) -> None:
    identity = launched.python(SLEEPS)
    file = launched.dumps / f"{identity.pid}-{identity.started}"
    before = ProcessId(pid=identity.pid, started=identity.started - 1)
    file.rename(launched.dumps / f"{before.pid}-{before.started}")
    refused(launched.ask(before), GapReason.VANISHED)
    assert still_there(launched, identity)


def test_a_stopped_process_is_not_signalled(launched: Launched) -> None:
    identity = launched.python(SLEEPS)
    os.kill(identity.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, identity.pid, os.WSTOPPED | os.WNOWAIT)
    assert "state is T" in refused(launched.ask(identity))
    assert not int(procfs.status(identity.pid)["ShdPnd"], 16)


def test_one_that_does_not_answer_is_late(launched: Launched) -> None:
    identity = launched.python("""
        import signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        print("ready", flush=True)
        time.sleep(600)
    """)
    refused(launched.ask(identity, seconds=0.5), GapReason.TIMED_OUT)


def test_one_that_is_gone_is_a_gap(launched: Launched) -> None:
    identity = launched.python(SLEEPS)
    launched.started[0].kill()
    launched.started[0].wait(READY_S)
    refused(launched.ask(identity), GapReason.VANISHED)


SAYS_ITS_NAME = "print('other sitecustomize', flush=True)\n"


def with_another(launched: Launched, text: str) -> None:
    folder = launched.folder / "theirs"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    launched.environ |= injection(launched.dumps, {"PYTHONPATH": str(folder)})


def run(launched: Launched, text: str, python: str = sys.executable) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, "-c", text], env=launched.environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_servers_own_sitecustomize_runs_and_is_the_one_in_force(launched: Launched) -> None:
    with_another(launched, "here = 1\n" + SAYS_ITS_NAME)
    done = run(launched, "import sitecustomize, sys; print(sitecustomize.here, sys.path[1])")
    assert done.stdout.splitlines()[0] == "other sitecustomize"
    assert done.stdout.splitlines()[1].startswith("1 ")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(launched.dumps.iterdir()), "ours has run, too"


@pytest.mark.parametrize("text", ["raise ValueError('theirs')", "import no_such_module_at_all"])
def test_a_broken_sitecustomize_of_the_server_fails_as_it_would_without_ours(launched: Launched, text: str) -> None:
    with_another(launched, text)
    done = run(launched, "print('goes on')")
    alone = subprocess.run(
        [sys.executable, "-c", "print('goes on')"],
        env={**os.environ, "PYTHONPATH": str(launched.folder / "theirs")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all", "/proc", "\udcff", None])
def test_no_place_for_the_file_does_not_hurt_the_server(launched: Launched, folder: str | None) -> None:
    if folder is None:
        del launched.environ[VARIABLE]
    else:
        launched.environ[VARIABLE] = folder
    done = run(launched, "import sys; print(sys.modules['sitecustomize'].__file__)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "injected" in done.stdout


def test_a_python_path_of_the_server_stays_in_force_behind_ours(tmp_path: Path) -> None:
    assert re.fullmatch(r".*/injected:/a:/b", injection(tmp_path, {"PYTHONPATH": "/a:/b"})["PYTHONPATH"])
    assert injection(tmp_path, {})["PYTHONPATH"].endswith("/injected")


def test_dumps_of_other_pythons_are_read() -> None:
    text = (
        "Thread 0x00007f01 [worker one] (most recent call first):\n"
        '  File "/a b/x.py", line 3 in f\n'
        "  File ???, line ??? in ???\n"
        "  ...\n\n"
        "Current thread 0x00007f02 (most recent call first):\n"
        "  Garbage-collecting\n"
        '  File "/m.py", line 12 in <module>\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x48 [0x1]\n'
    )
    answer = parse(text, 7, 0x7F02)
    assert not isinstance(answer, Gap)
    worker, main = answer
    assert (worker.tid, worker.name, [(f.function, f.file, f.line) for f in worker.stack]) == (
        0,
        "worker one",
        [("f", "/a b/x.py", 3), ("???", "", 0)],
    )
    assert (main.tid, main.name, len(main.stack)) == (7, "MainThread", 1)


@pytest.mark.parametrize("text", ["", "nonsense\n", '  File "x.py", line 1 in f\n', "\ufffd" * 1000])
def test_nonsense_is_a_gap(text: str) -> None:
    refused(parse(text, 7, 1), GapReason.FAILED)


def test_a_dump_without_end_is_cut(launched: Launched) -> None:
    endless = "Thread 0x1 (most recent call first):\n" + '  File "x.py", line 1 in f\n' * 100_000
    answer = parse(endless[:DUMP_BYTES_MAX], 7, 1)
    assert not isinstance(answer, Gap)
    assert len(answer[0].stack) == 256
