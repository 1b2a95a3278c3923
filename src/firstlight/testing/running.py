"""Runs `firstlight up` as a process of its own, and gathers all that it says and leaves behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from firstlight.core.events import Event, ProcessAppeared, Started, Verdict, read_event
from firstlight.core.report import Report
from firstlight.testing.launcher import command as command_line
from firstlight.testing.marked import GRACE_S, MARK, kill_marked, marked, title_of

_POLL_S = 0.1
_E = TypeVar("_E")


@dataclass(frozen=True)
class Ended:
    """What is known of an `up` that has ended. `code` is None if it had to be killed at the test's deadline.

    `left` names the processes of the server that were still there at the moment when `up` ended.
    """

    code: int | None
    events: tuple[Event, ...]
    stderr: str
    left: tuple[str, ...]

    @property
    def report(self) -> Report:
        """The report of the last event, which is the verdict.

        Raises:
            AssertionError: the last event is another, or there is none; with what was said instead.
        """
        last = self.events[-1] if self.events else None
        assert isinstance(last, Verdict), (
            f"no verdict; exit code {self.code}, last event {last}\n{self.stderr[-4000:]}"
        )
        return last.report

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(next(event.folder for event in self.events if isinstance(event, Started)))

    def pid_of(self, title: str) -> int:
        """The process that called itself `title`, by whatever was said of it.

        Raises:
            AssertionError: nothing was ever said of such a process.
        """
        called = {event.process.id.pid: event.process.name for event in self.all(ProcessAppeared)}
        called |= {process.pid: process.name for process in self.report.processes}
        called |= {exit_.id.pid: exit_.name for exit_ in self.report.exits}
        found = [pid for pid, name in called.items() if title in name]
        assert found, f"no process is called {title}: {called}"
        return found[-1]

    def pids(self) -> list[int]:
        """Every process that the server ever had."""
        return [event.process.id.pid for event in self.all(ProcessAppeared)]

    def all(self, kind: type[_E]) -> list[_E]:
        """The events of one kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]


class Up:
    """One `firstlight up --json`, from its start to its end. `home` is its FIRSTLIGHT_HOME.

    `before` is put in front of the command (a program that drops a capability, say). `subcommand` may be "attach".
    """

    def __init__(
        self,
        arguments: Sequence[str],
        home: Path,
        environ: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        subcommand: str = "up",
    ) -> None:
        self.mark = uuid.uuid4().hex
        output = home.parent / f"{home.name}-output-{self.mark}"
        output.mkdir(parents=True)
        self._stdout, self._stderr = output / "stdout", output / "stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "firstlight", subcommand, "--json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "FIRSTLIGHT_HOME": str(home), **(environ or {}), MARK: self.mark},
            )

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event so far.

        Raises:
            AssertionError: a whole line of stdout is not an event.
        """
        *lines, _torn = self._stdout.read_bytes().split(b"\n")
        try:
            return tuple(read_event(line) for line in lines)
        except msgspec.DecodeError as error:
            raise AssertionError(f"stdout holds a line that is no event: {error}\n{self.said()[-4000:]}") from error

    def until(self, wanted: Callable[[Event], bool], seconds: float) -> Event:
        """The first event that is `wanted`, once it has been said.

        Raises:
            AssertionError: `up` ended, or `seconds` passed, before that.
        """
        ends = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            found = next(filter(wanted, self.events), None)
            if found is not None:
                return found
            assert not ended, f"up ended before the awaited event: {self.events[-3:]}\n{self.said()[-4000:]}"
            assert time.monotonic() < ends, f"the awaited event did not come: {self.events[-3:]}"
            time.sleep(_POLL_S)

    def pid_of(self, title: str, seconds: float) -> int:
        """The server's process that calls itself `title`, once there is one.

        Raises:
            AssertionError: `up` ended, or `seconds` passed, before that.
        """
        ends = time.monotonic() + seconds
        while True:
            for pid in marked(self.mark):
                if title_of(pid).startswith(title):
                    return pid
            assert self.process.poll() is None, f"up ended before there was a {title}\n{self.said()[-4000:]}"
            assert time.monotonic() < ends, f"no {title} after {seconds:.0f} s; there are {self.left()}"
            time.sleep(_POLL_S)

    def said(self) -> str:
        """Its stderr so far."""
        return self._stderr.read_text(errors="replace")

    def printed(self) -> str:
        """Its stdout so far, as text."""
        return self._stdout.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float) -> Ended:
        """Wait for its end, at most `seconds`; then kill it and all that it started."""
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        left = self.left()
        self.kill()
        return Ended(code, self.events, self.said(), left)

    def left(self) -> tuple[str, ...]:
        """The server's processes that live, by name; firstlight's own do not count."""
        return tuple(name for pid in marked(self.mark) if (name := title_of(pid)) and not _is_ours(name))

    def gone(self, seconds: float = GRACE_S) -> bool:
        """Wait until nothing that carries the mark lives, firstlight's own processes included."""
        ends = time.monotonic() + seconds
        while marked(self.mark):
            if time.monotonic() > ends:
                return False
            time.sleep(_POLL_S)
        return True

    def kill(self) -> None:
        """End whatever is left of it, by force."""
        kill_marked(self.mark)
        self.process.wait(GRACE_S)


class Starter:
    """Starts `firstlight up` on testing programs, each in a home of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Up] = []

    @property
    def home(self) -> Path:
        """The FIRSTLIGHT_HOME of the latest."""
        return self._folder / f"home-{len(self._started)}"

    def __call__(self, program: str, *options: str | int, up: Sequence[str] = ()) -> Up:
        return self.command(command_line(program, *options), up=up)

    def command(
        self,
        argv: Sequence[str],
        *,
        up: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> Up:
        """Start it on any command; `environ` and `before` as for `Up`."""
        return self.up([*up, "--", *argv], environ, before)

    def up(
        self, arguments: Sequence[str], environ: Mapping[str, str] | None = None, before: Sequence[str] = ()
    ) -> Up:
        """Start it with any arguments at all."""
        return self._note(Up(arguments, self._next_home(), environ, before))

    def attach(self, *arguments: str) -> Up:
        """`firstlight attach` instead of `up`; what it watches is not its own, and is not killed with it."""
        return self._note(Up(arguments, self._next_home(), subcommand="attach"))

    def _next_home(self) -> Path:
        return self._folder / f"home-{len(self._started) + 1}"

    def _note(self, up: Up) -> Up:
        self._started.append(up)
        return up

    def close(self) -> None:
        for up in self._started:
            up.kill()


def _is_ours(name: str) -> bool:
    return name.startswith("firstlight guard") or "supervise/launch/guard.py" in name or "-m firstlight " in name
