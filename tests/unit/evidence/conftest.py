"""Small real programs that stall, started with a handshake and ended with the test."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.look import Look, ProcessLook
from firstlight.core.process import Process
from firstlight.evidence import look

READY_S = 20.0


def as_nobody(question: Callable[[], bool]) -> bool:
    """What a process of another user answers to a question; skips the test where nobody can be become."""
    answer, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setuid(65534)
            os.write(told, b"y" if question() else b"n")
        finally:
            os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    with os.fdopen(answer, "rb") as words:
        said = words.read()
    if not said:
        pytest.skip("needs the right to become another user (root), and files that this user may read")
    return said == b"y"


@pytest.fixture(name="as_nobody")
def as_nobody_fixture() -> Callable[[Callable[[], bool]], bool]:
    return as_nobody


class Programs:
    """Starts programs that say "ready" on stdout once they are about to stall."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def python(self, text: str, *arguments: str) -> Process:
        """Run Python text with `arguments`; returns once it has said that it is ready."""
        path = self.folder / f"program{len(self._started)}.py"
        path.write_text(textwrap.dedent(text))
        return self.command([sys.executable, str(path), *arguments])

    def command(self, argv: list[str], ready: bool = True) -> Process:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        self._started.append(child)
        if ready:
            assert child.stdout is not None
            assert select.select([child.stdout], [], [], READY_S)[0], f"{argv} was not ready in {READY_S} s"
            assert child.stdout.readline() == b"ready\n"
        return self.process(child.pid)

    def process(self, pid: int) -> Process:
        stat = procfs.stat(pid)
        return Process(id=stat.id, ppid=stat.ppid, name=stat.comm, cmdline=procfs.cmdline(pid))

    def children(self, process: Process) -> list[Process]:
        return [self.process(pid) for pid in procfs.children(process.id.pid)]

    def kill(self, process: Process) -> None:
        """End a program and collect it, so that its pid means nobody."""
        child = next(one for one in self._started if one.pid == process.id.pid)
        child.kill()
        child.wait(READY_S)

    def close(self) -> None:
        for child in self._started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(READY_S)
            if child.stdout:
                child.stdout.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    started = Programs(tmp_path)
    yield started
    started.close()


class Eyes:
    """Looks at processes, again and again until they stand where the test wants them."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def look(self, *processes: Process, port: int = 0, stacks: bool = True) -> Look:
        return look(processes, clock=self._clock, port=port, stacks=stacks)

    def until_in(self, call: str, process: Process) -> ProcessLook:
        """A look at a process whose some thread is in the system call `call`."""
        ends = self._clock.monotonic() + READY_S
        while self._clock.monotonic() < ends:
            seen = self.look(process, stacks=False).processes
            if any(str(thread.syscall).startswith(call) for thread in seen[0].threads):
                return self.look(process).processes[0]
            self._clock.sleep(0.05)
        raise AssertionError(f"the program never came to {call}: {seen[0].threads}")


@pytest.fixture
def eyes() -> Eyes:
    return Eyes()
