"""Bad targets, live: processes that die, change or multiply while they are looked at, and those that may not be seen.

Each is a bundle with gaps or one clear error, in bounded time; and nothing happens to the target.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose import compare, reported
from firstlight.testing.marked import MARK, kill_marked

pytestmark = pytest.mark.timeout(180)

LOOKS_S = 60.0
"""The deadline of two looks, the second between them, and the start of the program on a busy machine."""
TRIES = 6
"""A pid is free for a moment each time before it is taken again."""
Look = Callable[..., "subprocess.CompletedProcess[str]"]
Run = Callable[..., int]

DIES = """
import time
print("ready", flush=True)
time.sleep({after})
"""
CHILD_DIES = """
import os, time
if os.fork() == 0:
    print("ready", flush=True)
    time.sleep(0.9)
    os._exit(3)
time.sleep(600)
"""
RENAMES = """
import itertools, time
from firstlight.testing.stage import call_myself
print("ready", flush=True)
for at in itertools.count():
    call_myself(["worker_TP0", "", "a\\nb (c) S 1 1", "\\x1b[31m<script>", "VLLM::EngineCore", "x" * 4000][at % 6])
    time.sleep(0.001)
"""
FORKS = """
import os, time
print("ready", flush=True)
while True:
    if os.fork() == 0:
        time.sleep(0.01)
        os._exit(0)
    os.waitpid(-1, os.WNOHANG)
    time.sleep(0.003)
"""
EXECS = """
import os, sys, time
if len(sys.argv) == 1:
    print("ready", flush=True)
time.sleep(0.1)
os.execv(sys.executable, [sys.executable, __file__, "worker_TP%d" % (time.monotonic_ns() % 7)])
"""
THREADS = """
import threading, time
print("ready", flush=True)
while True:
    threading.Thread(target=time.sleep, args=(0.01,), name="t" * 40).start()
    time.sleep(0.002)
"""
BECOMES_ANOTHER = """
import os, signal, time
def child():
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    return pid
first = child()
print("ready", flush=True)
while True:
    time.sleep(0.5)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    while True:
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(first - 1))
        pid = child()
        if pid == first:
            break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts a program, and gives its pid once it says that it is ready."""
    mark = f"bad-target-{tmp_path}"
    started = []

    def start(code: str) -> int:
        script = tmp_path / "target.py"
        script.write_text(code)
        process = subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, MARK: mark}
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield start
    kill_marked(mark)
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Runs `firstlight look` to its end, which must come."""

    def call(pid: int, *before: str, into: Path = tmp_path) -> "subprocess.CompletedProcess[str]":
        command = [*before, sys.executable, "-m", "firstlight", "look", str(pid), "--apart", "1"]
        return subprocess.run(
            [*command, "-o", str(into / "seen.json")],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOKS_S,
            check=False,
        )

    return call


def seen(looked: "subprocess.CompletedProcess[str]", folder: Path) -> Bundle:
    assert looked.returncode == 0, looked.stderr
    assert "Traceback" not in looked.stderr
    bundle = read_bundle((folder / "seen.json").read_bytes())
    assert reported(bundle).headline
    return bundle


def refused(looked: "subprocess.CompletedProcess[str]", *codes: int) -> str:
    assert looked.returncode in codes, (looked.returncode, looked.stderr)
    assert "Traceback" not in looked.stderr
    return looked.stderr


@pytest.mark.parametrize(
    "code",
    [CHILD_DIES, RENAMES, FORKS, EXECS, THREADS],
    ids=["its child dies", "renames itself", "forks", "execs", "starts threads"],
)
def test_a_process_that_changes_while_it_is_looked_at(code: str, run: Run, look: Look, tmp_path: Path) -> None:
    pid = run(code)
    bundle = seen(look(pid), tmp_path)
    assert pid in {one.process.id.pid for one in bundle.looks[-1].processes}
    assert procfs.stat(pid).state not in "TtZX", "nothing happened to it"


@pytest.mark.parametrize("after", [0.3, 0.8, 1.5, 2.5])
def test_a_process_that_dies_while_it_is_looked_at(after: float, run: Run, look: Look, tmp_path: Path) -> None:
    looked = look(run(DIES.format(after=after)))
    if looked.returncode == 0:
        seen(looked, tmp_path)
    else:
        assert "ended" in refused(looked, 2, 4)


def test_a_pid_that_is_another_process_at_the_second_look(run: Run, look: Look, tmp_path: Path) -> None:
    if not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK):
        pytest.skip("only root may say which pid comes next")
    target = run(BECOMES_ANOTHER)
    for _ in range(TRIES):
        bundle = seen(look(target), tmp_path)
        before, after = ({one.process.id.pid: one.process.id for one in look_.processes} for look_ in bundle.looks)
        reused = [pid for pid in before.keys() & after.keys() if before[pid] != after[pid]]
        if reused:
            break
    assert reused, "no pid was seen as two processes"
    compared = {one.id for one in compare(*bundle.looks).processes}
    assert not compared & {before[reused[0]], after[reused[0]]}, "nothing can have moved between two processes"


def test_a_zombie_has_ended(run: Run, look: Look) -> None:
    parent = run("import os, time\nif os.fork() == 0:\n    os._exit(0)\nprint('ready', flush=True)\ntime.sleep(600)")
    ends = time.monotonic() + LOOKS_S
    while not (zombies := [pid for pid in children(parent) if procfs.stat(pid).state == "Z"]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert "has ended" in refused(look(zombies[0]), 2)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_first_process_of_the_machine(look: Look, tmp_path: Path) -> None:
    looked = look(1)
    if looked.returncode == 0:
        assert seen(looked, tmp_path).looks[-1].processes
    else:
        refused(looked, 4)


def test_a_kernel_thread(look: Look, tmp_path: Path) -> None:
    if not Path("/proc/2/comm").exists() or Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("no kernel thread is in sight, as in any container")
    looked = look(2)
    if looked.returncode == 0:
        seen(looked, tmp_path)
    else:
        refused(looked, 4)


def test_another_users_process_is_a_bundle_with_gaps(run: Run, look: Look, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]
    if subprocess.run([*nobody, sys.executable, "-c", "import firstlight"], check=False).returncode:
        pytest.skip("nobody may not even read this Python")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        looked = look(run("import time\nprint('ready', flush=True)\ntime.sleep(600)"), *nobody, into=Path(place))
        (one,) = seen(looked, Path(place)).looks[-1].processes
    assert GapReason.NO_PERMISSION in {gap.reason for gap in one.gaps}


def test_an_interrupted_look_ends_at_once_and_leaves_the_target_alone(run: Run, tmp_path: Path) -> None:
    pid = run("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    bundle = tmp_path / "seen.json"
    command = [sys.executable, "-m", "firstlight", "look", str(pid), "--apart", "600", "-o", str(bundle)]
    terminal, theirs = os.openpty()
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as looking:
            said = b""
            while b"waiting" not in said:
                said += os.read(terminal, 4096)
            looking.send_signal(signal.SIGINT)
            assert looking.wait(LOOKS_S) == 130
        os.set_blocking(terminal, False)
        with contextlib.suppress(OSError):
            said += os.read(terminal, 1 << 16)
    finally:
        os.close(terminal)
        os.close(theirs)
    assert b"Traceback" not in said
    assert procfs.stat(pid).state == "S"
    assert not bundle.exists()
