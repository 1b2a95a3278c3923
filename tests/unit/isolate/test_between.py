"""Between two trials: locks that a build left, processes that live on, a port that stays taken."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.clock import HandClock, SystemClock
from firstlight.core.process import ProcessId
from firstlight.isolate.between import Between, Poisoned
from firstlight.isolate.trial import Launched


class Nobody:
    def event(self, event: object) -> None: ...
    def tick(self, view: object) -> None: ...


@pytest.fixture
def launched() -> Launched:
    return Launched(Nobody())


@pytest.fixture
def extensions(tmp_path: Path) -> Path:
    (tmp_path / "ext").mkdir()
    return tmp_path / "ext"


def between(extensions: Path, port: int = 0) -> Between:
    return Between(SystemClock(), {"TORCH_EXTENSIONS_DIR": str(extensions), "HOME": str(extensions)}, port)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait(10)


def test_nothing_left_is_nothing_to_say(extensions: Path, launched: Launched) -> None:
    assert between(extensions).clean(launched) == ()


def test_a_lock_made_during_the_trial_is_removed_and_said(extensions: Path, launched: Launched) -> None:
    before = between(extensions)
    lock = extensions / "kernel" / "lock"
    lock.parent.mkdir()
    lock.touch()
    (note,) = before.clean(launched)
    assert str(lock) in note
    assert "removed" in note
    assert not lock.exists()


def test_a_lock_that_was_there_before_is_left_alone(extensions: Path, launched: Launched) -> None:
    lock = extensions / "lock"
    lock.touch()
    assert between(extensions).clean(launched) == ()
    assert lock.exists()


def test_a_lock_beside_which_somebody_works_is_left_alone(extensions: Path, launched: Launched) -> None:
    before = between(extensions)
    (extensions / "lock").touch()
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=extensions, stdin=subprocess.PIPE) as builder:
        try:
            assert before.clean(launched) == ()
            assert (extensions / "lock").exists()
        finally:
            builder.kill()


def test_shared_memory_that_would_not_go_is_said(extensions: Path, launched: Launched) -> None:
    launched.left = ("/dev/shm/psm_1",)
    assert any("/dev/shm/psm_1" in note for note in between(extensions).clean(launched))


def test_a_process_that_lives_on_poisons_the_next(
    extensions: Path, launched: Launched, sleeper: subprocess.Popen[bytes]
) -> None:
    began = int(Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[19])
    launched.processes[ProcessId(pid=sleeper.pid, started=began)] = "worker"
    stubborn = Between(HandClock(), {"HOME": str(extensions)}, 0)
    with pytest.raises(Poisoned, match=f"worker .pid {sleeper.pid}. of the trial lives on"):
        stubborn.clean(launched)


def test_another_process_of_that_pid_is_none_of_the_trial(
    extensions: Path, launched: Launched, sleeper: subprocess.Popen[bytes]
) -> None:
    launched.processes[ProcessId(pid=sleeper.pid, started=1)] = "worker"
    assert between(extensions).clean(launched) == ()


def test_a_port_that_stays_taken_poisons_the_next(extensions: Path, launched: Launched) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stubborn = Between(HandClock(), {"HOME": str(extensions)}, server.getsockname()[1])
        with pytest.raises(Poisoned, match=rf"still taken by .*pid {os.getpid()}"):
            stubborn.clean(launched)
