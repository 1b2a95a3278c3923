"""Real servers, started and owned for the length of a test."""

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import Clock, SystemClock
from firstlight.core.server import ServerCommand
from firstlight.supervise.launch.family import RUN_VARIABLE
from firstlight.supervise.launch.server import Server
from firstlight.supervise.launch.start import launch

DEADLINE_S = 20.0


class Eventually:
    """`eventually(condition, "what is awaited")`: waits for it to be true, with a deadline and a name."""

    def __call__(self, condition: Callable[[], object], what: str) -> None:
        ends = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends, f"waited {DEADLINE_S:.0f} s for {what}"
            time.sleep(0.005)


class Starter:
    """Starts servers under one run name, by which all that belongs to them can be found again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = f"run-{uuid.uuid4().hex}"
        self.clock = SystemClock()
        self.servers: list[Server] = []

    def command(self, *argv: str, **options: object) -> Server:
        server = launch(
            ServerCommand(engine="generic", argv=argv),
            self.folder,
            self.clock,
            run=self.run,
            **options,  # type: ignore[arg-type]
        )
        self.servers.append(server)
        return server

    def python(self, source: str, **options: object) -> Server:
        return self.command(sys.executable, "-u", "-c", source, **options)

    def log(self) -> str:
        return (self.folder / "stdout.log").read_text(encoding="utf-8", errors="replace")

    def living(self) -> list[int]:
        """Everybody of this run who is alive: guard, server, and whoever inherited the run's mark."""
        return [pid for pid in procfs.pids() if self._is_of_this_run(pid)]

    def _is_of_this_run(self, pid: int) -> bool:
        try:
            if procfs.stat(pid).state in "ZX":
                return False
            marked = procfs.environ(pid).get(RUN_VARIABLE) == self.run
            return marked or any(self.run in word for word in procfs.cmdline(pid))
        except OSError:
            return False


@pytest.fixture
def eventually() -> Eventually:
    return Eventually()


@pytest.fixture
def clock() -> Clock:
    return SystemClock()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for server in starter.servers:
        server.stop(0)
