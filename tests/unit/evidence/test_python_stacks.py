"""py-spy of real processes, and py-spys that hang, babble, refuse or leave the target stopped."""

import os
import signal
import stat
from pathlib import Path

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.stacks import python_stacks, stacks_of
from firstlight.evidence.stacks.python_stacks import PythonThread, dump, parse, refusal

CLOCK = SystemClock()

SLEEPER = """
    import threading, time

    def load_weights():
        print("ready", flush=True)
        time.sleep(600)

    threading.Thread(target=time.sleep, args=(600,), name="heart", daemon=True).start()
    load_weights()
"""


def real_py_spy() -> Path:
    found = python_stacks.find_py_spy()
    assert found is not None, "py-spy belongs to the base install"
    return found


def functions(answer: tuple[PythonThread, ...] | Gap) -> list[str]:
    assert not isinstance(answer, Gap), answer
    stacks = [thread.stack for thread in answer if not isinstance(thread.stack, Gap)]
    return [frame.function for stack in stacks for frame in stack]


def test_stacks_names_and_thread_ids_of_a_waiting_process(programs: Programs) -> None:
    process = programs.python(SLEEPER)
    answer = dump(process.id, real_py_spy(), CLOCK)
    assert "load_weights" in functions(answer)
    assert not isinstance(answer, Gap)
    assert {thread.name for thread in answer} == {"MainThread", "heart"}
    assert {thread.tid for thread in answer} == set(procfs.tids(process.id.pid))


def test_a_stopped_process_is_read_and_stays_stopped(programs: Programs) -> None:
    process = programs.python(SLEEPER)
    os.kill(process.id.pid, signal.SIGSTOP)
    wait_for_state(process, "T")
    assert "load_weights" in functions(dump(process.id, real_py_spy(), CLOCK))
    assert procfs.stat(process.id.pid).state == "T"


def wait_for_state(process: Process, state: str) -> None:
    ends = CLOCK.monotonic() + 20
    while procfs.stat(process.id.pid).state not in state:
        assert CLOCK.monotonic() < ends, f"it is in state {procfs.stat(process.id.pid).state}, not {state}"
        CLOCK.sleep(0.01)


def test_a_busy_process_is_read_and_goes_on(programs: Programs) -> None:
    process = programs.python("""
        def burn():
            print("ready", flush=True)
            while True:
                pass
        burn()
    """)
    assert "burn" in functions(dump(process.id, real_py_spy(), CLOCK))
    before = procfs.stat(process.id.pid).cpu_s
    ends = CLOCK.monotonic() + 20
    while procfs.stat(process.id.pid).cpu_s == before:
        assert CLOCK.monotonic() < ends, "it computes no more"
        CLOCK.sleep(0.05)


def test_looking_does_not_cut_a_blocked_write_short(programs: Programs, eyes: Eyes) -> None:
    """A stop would make the half-done write return, and the stall would be gone because it was looked at."""
    process = programs.python("""
        import os
        reading, writing = os.pipe()
        print("ready", flush=True)
        os.write(writing, bytes(1_000_000))
    """)
    eyes.until_in("write", process)
    dump(process.id, real_py_spy(), CLOCK)
    assert eyes.look(process).processes[0].threads[0].fds, "it still writes"


def test_what_is_no_python_has_no_python_stacks_and_no_gap(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    found = stacks_of([process.id], CLOCK, Deadline(CLOCK, 20, "stacks"))
    assert found == {process.id.pid: ()}


def test_a_process_that_is_gone_is_a_gap(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    programs.kill(process)
    answer = stacks_of([process.id], CLOCK, Deadline(CLOCK, 20, "stacks"))[process.id.pid]
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.VANISHED


def script(folder: Path, text: str) -> Path:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_py_spy_that_hangs_is_killed_and_told(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    answer = dump(process.id, script(tmp_path, "exec sleep 600"), CLOCK, 0.5)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.TIMED_OUT


def test_a_target_that_a_late_py_spy_left_stopped_goes_on(programs: Programs, tmp_path: Path) -> None:
    process = programs.python("print('ready', flush=True)\nwhile True: pass")
    stops = f'case "$*" in *nonblocking*) exit 1 ;; esac; kill -STOP {process.id.pid}; exec sleep 600'
    answer = dump(process.id, script(tmp_path, stops), CLOCK, 1.0)
    assert isinstance(answer, Gap)
    wait_for_state(process, "RS")


def test_a_target_that_was_stopped_by_others_is_left_stopped(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    os.kill(process.id.pid, signal.SIGSTOP)
    wait_for_state(process, "T")
    dump(process.id, script(tmp_path, "exec sleep 600"), CLOCK, 0.5)
    assert procfs.stat(process.id.pid).state == "T"


@pytest.mark.parametrize(
    "text", ["echo nonsense", "echo '[1, 2]'", "echo '{}'", "head -c 100000 /dev/urandom", "true"]
)
def test_nonsense_is_a_gap(text: str, programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    answer = dump(process.id, script(tmp_path, text), CLOCK)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.FAILED


@pytest.mark.parametrize("text", ["head -c 200000000 /dev/zero", "while :; do echo x; done", "sleep 600 & echo '[]'"])
def test_output_without_end_is_a_gap(text: str, programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    answer = dump(process.id, script(tmp_path, text), CLOCK, 1.0)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.TIMED_OUT


WHOLE = '[{"frames": [{"name": "f", "filename": "f.py", "line": 1}], "os_thread_id": 1}]'


def test_stacks_of_a_process_that_died_meanwhile_are_not_believed(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    kills = f"kill -KILL {process.id.pid}; while readlink /proc/{process.id.pid}/exe > /dev/null; do :; done"
    answer = dump(process.id, script(tmp_path, f"{kills}; echo '{WHOLE}'"), CLOCK)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.VANISHED


def test_stacks_of_a_process_that_became_another_program_are_not_believed(programs: Programs, tmp_path: Path) -> None:
    process = programs.python("""
        import os, signal
        signal.signal(signal.SIGUSR1, lambda *_: os.execvp("sleep", ["sleep", "600"]))
        print("ready", flush=True)
        while True:
            signal.pause()
    """)
    name = f"/proc/{process.id.pid}/comm"
    once = (
        f"grep -q sleep {name} || kill -USR1 {process.id.pid}; until grep -q sleep {name}; do :; done; echo '{WHOLE}'"
    )
    answer = dump(process.id, script(tmp_path, once), CLOCK)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.VANISHED
    assert "exec" in answer.detail


def test_another_process_under_the_same_pid_is_not_asked(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    before = ProcessId(pid=process.id.pid, started=process.id.started - 1)
    answer = dump(before, script(tmp_path, f"touch {tmp_path}/asked; echo '{WHOLE}'"), CLOCK)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.VANISHED
    assert not (tmp_path / "asked").exists()


def test_a_process_that_forks_all_the_time_is_read(programs: Programs) -> None:
    process = programs.python("""
        import os
        def breed():
            print("ready", flush=True)
            while True:
                if os.fork() == 0:
                    os._exit(0)
                os.wait()
        breed()
    """)
    for _ in range(5):
        assert "breed" in functions(dump(process.id, real_py_spy(), CLOCK))


def recorder(folder: Path, *answers: str) -> Path:
    """A py-spy that gives one answer after the other, and notes whether it was told to stop the process."""
    for number, answer in enumerate(answers):
        (folder / f"answer{number}").write_text(answer)
    return script(
        folder,
        f"cd {folder}; touch asked; n=$(wc -l < asked); "
        'case "$*" in *nonblocking*) echo reads ;; *) echo pauses ;; esac >> asked; cat answer$n',
    )


def one(*functions: str, line: int = 1) -> str:
    frames = ", ".join(f'{{"name": "{name}", "filename": "f.py", "line": {line}}}' for name in functions)
    return f'[{{"frames": [{frames}], "os_thread_id": 1, "thread_name": "a"}}]'


BURNS = "print('ready', flush=True)\nwhile True: pass"
MANY = """
    import threading
    for _ in range(120):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("ready", flush=True)
    while True: pass
"""


@pytest.mark.parametrize(
    ("text", "answers", "asked", "told"),
    [
        (SLEEPER, [one("f")], ["reads"], ["f"]),
        (SLEEPER, ["nonsense", one("f")], ["reads", "reads"], ["f"]),
        (BURNS, [one("g", "f"), one("h", "f")], ["reads", "reads"], ["h", "f"]),
        (BURNS, ["nonsense", one("f"), one("f")], ["reads", "reads", "reads"], ["f"]),
        (BURNS, [one("f"), one("g"), one("h")], ["reads", "reads", "pauses"], ["h"]),
        (BURNS, [*["nonsense"] * 4, one("h")], [*["reads"] * 4, "pauses"], ["h"]),
        (MANY, [one("f"), one("f")], ["reads", "reads"], ["f"]),
    ],
)
def test_only_what_cannot_be_read_without_a_stop_is_stopped(
    text: str,
    answers: list[str],
    asked: list[str],
    told: list[str],
    *,
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(python_stacks, "PAUSE_DEADLINE_S", 10.0)
    process = programs.python(text)
    ends = CLOCK.monotonic() + 20
    while python_stacks.runs(process.id.pid) is (text is SLEEPER):
        assert CLOCK.monotonic() < ends
        CLOCK.sleep(0.01)
    answer = dump(process.id, recorder(tmp_path, *answers), CLOCK, 60.0)
    assert functions(answer) == told
    assert (tmp_path / "asked").read_text().split() == asked


def test_a_process_that_there_was_no_time_to_read_is_not_stopped(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(BURNS)
    notes = f'echo "$*" >> {tmp_path}/asked; exec sleep 600'
    answer = dump(process.id, script(tmp_path, notes), CLOCK, 1.0)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.TIMED_OUT
    assert "--nonblocking" in (tmp_path / "asked").read_text()
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


def test_a_process_of_many_threads_is_never_stopped_and_what_is_torn_is_a_gap(
    programs: Programs, tmp_path: Path
) -> None:
    process = programs.python(MANY)
    answer = dump(process.id, recorder(tmp_path, one("f"), one("g")), CLOCK, 10.0)
    assert not isinstance(answer, Gap), answer
    assert isinstance(answer[0].stack, Gap)
    assert (tmp_path / "asked").read_text().split() == ["reads", "reads"]


def test_a_py_spy_that_crashes_and_leaves_the_target_stopped_is_made_good(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(BURNS)
    stops = f'case "$*" in *nonblocking*) exit 1 ;; esac; kill -STOP {process.id.pid}; kill -SEGV $$'
    assert isinstance(dump(process.id, script(tmp_path, stops), CLOCK), Gap)
    wait_for_state(process, "RS")


def test_a_py_spy_that_cannot_be_run_is_a_gap(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(SLEEPER)
    answer = dump(process.id, tmp_path / "missing", CLOCK)
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.FAILED


def test_no_py_spy_at_all_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, programs: Programs) -> None:
    monkeypatch.setattr(python_stacks, "find_py_spy", lambda: None)
    process = programs.python(SLEEPER)
    answer = stacks_of([process.id], CLOCK, Deadline(CLOCK, 20, "stacks"))[process.id.pid]
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.NOT_INSTALLED
    assert "pip install py-spy" in answer.detail


def test_no_time_left_is_a_gap_for_everybody(programs: Programs) -> None:
    process = programs.python(SLEEPER)
    answer = stacks_of([process.id], CLOCK, Deadline(CLOCK, 0, "stacks"))[process.id.pid]
    assert isinstance(answer, Gap)
    assert answer.reason is GapReason.TIMED_OUT


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"Permission Denied: Try running again with elevated permissions", GapReason.NO_PERMISSION),
        (b"Error: Failed to suspend process\nCaused by: EPERM: Operation not permitted", GapReason.NO_PERMISSION),
        (b"Error: Failed to find python version from target process", GapReason.NOT_SUPPORTED),
        (
            b"Error: Failed to get process executable name.\n0: No such file or directory (os error 2)",
            GapReason.VANISHED,
        ),
        (b"Error: Failed to suspend process\n1: unexpected waitpid result", GapReason.FAILED),
        (b"Error: x\nStack backtrace: permission denied", GapReason.FAILED),
        (b"", GapReason.FAILED),
    ],
)
def test_py_spys_complaints_become_reasons(said: bytes, reason: GapReason) -> None:
    gap = refusal(said, 7)
    assert (gap.reason, gap.pid) == (reason, 7)
    assert gap.detail


def test_a_refusal_says_the_way_out() -> None:
    assert "SYS_PTRACE" in refusal(b"Permission denied", 7).detail


def test_fields_of_another_py_spy_version_do_not_matter() -> None:
    new = b'[{"os_thread_id": null, "thread_name": null, "frames": [], "new": 1, "active": true, "owns_gil": true}]'
    assert parse(new, 7) == (PythonThread(tid=0, name="", active=True, owns_gil=True, stack=()),)


def test_a_deep_stack_is_cut() -> None:
    frame = b'{"name": "f", "filename": "f.py", "line": 1}'
    answer = parse(b'[{"frames": [' + b", ".join([frame] * 5000) + b"]}]", 7)
    assert not isinstance(answer, Gap)
    assert len(answer[0].stack) == python_stacks.FRAMES_MAX
