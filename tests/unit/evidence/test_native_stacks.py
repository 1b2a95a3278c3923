"""Native stacks by tools: what each prints, and tools that hang, babble, refuse or leave the target stopped."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.look import NativeFrame
from firstlight.core.process import Process
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.stacks import native, native_tools
from firstlight.evidence.stacks.native import Natives, ask, installed
from firstlight.evidence.stacks.native_tools import (
    BY_PAUSE,
    EU_STACK,
    FRAMES_MAX,
    GDB,
    THREADS_MAX,
    Stacks,
    read_eu_stack,
    read_gdb,
    read_py_spy,
    read_pystack,
)

CLOCK = SystemClock()
WAITS = "import threading\nprint('ready', flush=True)\nthreading.Event().wait()"
BURNS = "print('ready', flush=True)\nwhile True: pass"

EU = """PID 7 - process
TID 7:
#0  0x00007f19ae4a3f16 __futex_abstimed_wait_common - /usr/lib/libc.so.6
#1  0x00007f19ae20ff7a - 1 - /usr/lib/libffi.so.8.1.2
#2  0x00007f19ae20fb0d - 1 c10d::wait(std::vector<int, x> const&) - /opt/a - b/libtorch_cpu.so
#3  0x00007f19ae445305 - 1 __libc_start_main@@GLIBC_2.34 - /usr/lib/libc.so.6
#4  0x000055ee87788081 - 1 _start
TID 9:
#0  0x00007fff0cafd000 - [vdso: 7]
eu-stack: dwfl_thread_getframes tid 9 at 0x0 in <unknown>: No DWARF information found
"""
PYSTACK = """Traceback for thread 9 (python) [] (most recent call last):
    (C) File "../sysdeps/clone3.S", line 81, in __clone3 (/usr/lib/libc.so.6)
    (Python) File "/usr/lib/threading.py", line 629, in wait
        signaled = self._cond.wait(timeout)
    (C) File "/a b/libffi.so.8", line 0, in ??? (/a b/libffi.so.8)
    (C) File "./nptl/futex.c", line 57, in __futex_wait64 (inlined) (/usr/lib/libc.so.6)

Traceback for thread 7 (python) [Has the GIL,Garbage collecting] (most recent call last):
    (C) File "???", line 0, in __libc_start_main@@GLIBC_2.34 (/usr/lib/libc.so.6)
"""
PY_SPY = """[{"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "frames": [
  {"name": "0x7f19ae4a3f16", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0},
  {"name": "sem_wait", "filename": "sem.c", "module": "/lib/libc.so.6", "line": 0},
  {"name": "load", "filename": "x.py", "module": null, "line": 3}]},
 {"pid": 7, "os_thread_id": null, "frames": []}]"""
GDB_SAYS = """[New LWP 9]
warning: nothing of importance
0x00007f19ae4a3f16 in ?? () from /lib/libc.so.6

Thread 2 (Thread 0x7f19aec99b80 (LWP 9) "python"):
#0  0x00007f19ae20ff7a in ?? () from /lib/libffi.so.8
#1  0x00007f19ae20fb0d in c10d::Store::wait(std::vector<int> const&) () from /opt/libtorch_cpu.so
#2  _PyEval_EvalFrameDefault (tstate=..., frame=...) at Python/ceval.c:4769
#3  0x000055ee87788081 in _start ()

Thread 1 (LWP 7 "python"):
#0  clone3 () at ../sysdeps/clone3.S:81
[Inferior 1 (process 7) detached]
"""


def short(stacks: Stacks) -> dict[int, list[tuple[str, str]]]:
    return {tid: [(frame.function, frame.library) for frame in frames] for tid, frames in stacks.items()}


def test_eu_stack_is_read() -> None:
    assert short(read_eu_stack(EU)) == {
        7: [
            ("__futex_abstimed_wait_common", "libc.so.6"),
            ("", "libffi.so.8.1.2"),
            ("c10d::wait(std::vector<int, x> const&)", "libtorch_cpu.so"),
            ("__libc_start_main", "libc.so.6"),
            ("_start", ""),
        ],
        9: [("", "[vdso: 7]")],
    }


def test_pystack_is_turned_round_and_python_left_out() -> None:
    assert short(read_pystack(PYSTACK)) == {
        9: [("__futex_wait64", "libc.so.6"), ("", "libffi.so.8"), ("__clone3", "libc.so.6")],
        7: [("__libc_start_main", "libc.so.6")],
    }


def test_py_spy_is_read_and_python_left_out() -> None:
    assert short(read_py_spy(PY_SPY)) == {7: [("", "libc.so.6"), ("sem_wait", "libc.so.6")]}


def test_gdb_is_read() -> None:
    assert short(read_gdb(GDB_SAYS)) == {
        9: [
            ("", "libffi.so.8"),
            ("c10d::Store::wait(std::vector<int> const&)", "libtorch_cpu.so"),
            ("_PyEval_EvalFrameDefault", ""),
            ("_start", ""),
        ],
        7: [("clone3", "")],
    }


@pytest.mark.parametrize("read", [read_eu_stack, read_pystack, read_gdb])
@pytest.mark.parametrize(
    "text", ["", "nonsense", "TID 7:", "#0  0x1 f - /x", "\x00" * 1000, "TID " + "9" * 5000 + ":"]
)
def test_nonsense_holds_no_stacks(read: Callable[[str], Stacks], text: str) -> None:
    assert read(text) == {}


def test_answers_without_end_are_cut() -> None:
    deep = read_eu_stack("TID 7:\n" + f"#0  0x1 {'f' * 999} - /{'l' * 999}\n" * 1000 + f"#0  0x1 {'f' * 9999}\n")
    assert len(deep[7]) == FRAMES_MAX
    assert max(len(deep[7][0].function), len(deep[7][0].library)) <= native_tools.NAME_MAX
    wide = read_eu_stack("".join(f"TID {tid}:\n#0  0x1 f - /l\n" for tid in range(1, 9000)))
    assert len(wide) == THREADS_MAX


def stacks_of(process: Process, *, pausing: bool = False) -> Natives:
    ids = [process.id]
    return native.native_stacks(ids, CLOCK, Deadline(CLOCK, 30, "native stacks"), pausing=pausing)[ids[0].pid]


def test_a_waiting_process_is_read_without_any_tool(
    programs: Programs, eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "ask", lambda *_: pytest.fail("a tool was asked"))
    process = programs.python(WAITS)
    eyes.until_in("futex", process)
    found = stacks_of(process)
    if isinstance(found, Gap):
        assert "x86-64 only" in found.detail
    else:
        assert found[process.id.pid]


def test_a_process_that_only_computes_says_how_it_can_be_read(programs: Programs) -> None:
    process = programs.python(BURNS)
    ends = CLOCK.monotonic() + 20
    while not isinstance(found := stacks_of(process), Gap):
        assert CLOCK.monotonic() < ends, found
    assert "--native" in found.detail


@pytest.mark.parametrize("tool", BY_PAUSE, ids=lambda tool: tool.name)
def test_a_real_tool_shows_a_computing_process_and_lets_it_go_on(tool: native_tools.Tool, programs: Programs) -> None:
    paths = {one.name: path for one, path in installed()}
    if tool.name not in paths:
        pytest.skip(f"{tool.name} is not installed here")
    process = programs.python(BURNS)
    found = ask(tool, paths[tool.name], process.id, Deadline(CLOCK, 60, tool.name))
    assert isinstance(found, dict), found
    assert found[process.id.pid]
    goes_on(process)


def goes_on(process: Process) -> None:
    before, ends = procfs.stat(process.id.pid).cpu_s, CLOCK.monotonic() + 20
    while procfs.stat(process.id.pid).cpu_s == before:
        assert CLOCK.monotonic() < ends, "it computes no more"
        CLOCK.sleep(0.02)


def script(folder: Path, text: str) -> str:
    path = folder / "eu-stack"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exec sleep 600", GapReason.TIMED_OUT),
        ("exec yes", GapReason.TIMED_OUT),
        ("echo nonsense", GapReason.FAILED),
        ("head -c 100000 /dev/urandom", GapReason.FAILED),
        ("true", GapReason.FAILED),
        ("kill -SEGV $$", GapReason.FAILED),
        ("echo 'ptrace: Operation not permitted' >&2; exit 1", GapReason.NO_PERMISSION),
    ],
)
def test_a_tool_that_hangs_babbles_or_refuses_is_a_gap(
    text: str, reason: GapReason, programs: Programs, tmp_path: Path
) -> None:
    process = programs.python(WAITS)
    found = ask(EU_STACK, script(tmp_path, text), process.id, Deadline(CLOCK, 1.0, "a tool"))
    assert isinstance(found, Gap)
    assert found.reason is reason
    assert found.detail


def test_a_tool_that_cannot_be_run_is_a_gap(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(WAITS)
    assert isinstance(ask(GDB, str(tmp_path / "gdb"), process.id, Deadline(CLOCK, 5, "gdb")), Gap)


def test_a_target_that_a_late_tool_left_stopped_goes_on(programs: Programs, tmp_path: Path) -> None:
    process = programs.python(BURNS)
    stops = script(tmp_path, f"kill -STOP {process.id.pid}; exec sleep 600")
    assert isinstance(ask(EU_STACK, stops, process.id, Deadline(CLOCK, 0.5, "a tool")), Gap)
    goes_on(process)


def test_a_process_that_others_have_stopped_is_shown_to_no_tool(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "ask", lambda *_: pytest.fail("a tool was asked"))
    process = programs.python(WAITS)
    os.kill(process.id.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.id.pid, os.WSTOPPED | os.WNOWAIT)
    stacks_of(process, pausing=True)
    assert procfs.stat(process.id.pid).state == "T"


def test_no_tool_at_all_says_what_to_install(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "installed", lambda: ())
    monkeypatch.setattr(native, "waiting_stacks", lambda *_: {})
    found = stacks_of(programs.python(BURNS), pausing=True)
    assert isinstance(found, Gap)
    assert found.reason is GapReason.NOT_INSTALLED
    assert "elfutils" in found.detail
    assert "pip install" in found.detail


def test_the_next_tool_is_asked_where_one_fails(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    answers = script(tmp_path, f"echo 'TID {process.id.pid}:'; echo '#0  0x1 told - /lib/x.so'")
    tools = ((EU_STACK, str(tmp_path / "missing")), (native_tools.PYSTACK, "for Python only"), (EU_STACK, answers))
    monkeypatch.setattr(native, "installed", lambda: tools)
    found = stacks_of(process, pausing=True)
    assert isinstance(found, dict)
    assert found[process.id.pid] == (NativeFrame(function="told", library="x.so"),)


def test_a_process_that_is_gone_or_another_is_a_gap(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    programs.kill(process)
    found = stacks_of(process)
    assert isinstance(found, Gap)
    assert found.reason is GapReason.VANISHED


def test_no_time_left_is_a_gap_for_everybody(programs: Programs) -> None:
    process = programs.python(WAITS)
    found = native.native_stacks([process.id], CLOCK, Deadline(CLOCK, 0, "native stacks"))[process.id.pid]
    assert isinstance(found, Gap)
    assert found.reason is GapReason.TIMED_OUT
    assert native.native_stacks([], CLOCK, Deadline(CLOCK, 1, "native stacks")) == {}
