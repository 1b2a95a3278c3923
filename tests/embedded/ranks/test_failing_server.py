"""A whole server of three ranks, one of which dies, stops or goes astray: what is said, and that nothing is left.

The faults are the rank's own (see worker/faults.py), so that they happen in the phase that is meant; an idle rank is
killed or stopped from outside. Where a rank dies or goes astray the deadline is long: nobody may wait for it.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]
AT_ONCE = ("--wait-deadline", "600")
SOON = ("--wait-deadline", "3")
ASK = {"prompt": "Once upon a time there was", "max_tokens": 40, "temperature": 0}
END_DEADLINE_S = 30.0
PLACES = {
    "import": "phase=import",
    "rendezvous": "phase=rendezvous",
    "weights": "phase=weights",
    "warmup": "phase=warmup:number=2",
    "prefill": "phase=serving:pass=1:number=3",
    "decode": "phase=serving:pass=5:number=2",
}
SERVING = {"prefill", "decode"}


class Failing:
    """A server, and what there is to know of its end."""

    def __init__(self, server: Any, is_alive: Callable[[int], bool]) -> None:
        self.server = server.listening()
        self._is_alive = is_alive

    def ask(self) -> Any:
        self.server.line("ready url=")
        return self.server.ask("/v1/completions", {**ASK, "stream": False})

    def send(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pids()[rank], number)

    def pids(self) -> dict[int, int]:
        """By rank, from the log."""
        found = re.findall(r"\[firstlight worker rank=(\d) pid=(\d+)\]", "\n".join(self.server.log))
        return {int(rank): int(pid) for rank, pid in found}

    def end(self) -> tuple[list[str], str]:
        """The errors of the workers, and the last error of the front. All processes have ended."""
        assert self.server.exit_code() == 1
        with pytest.raises(AssertionError):
            self.server.line("what the log never says")
        until = time.monotonic() + END_DEADLINE_S
        while left := [pid for pid in self.pids().values() if self._is_alive(pid)]:
            assert time.monotonic() < until, f"left over: {left}"
            time.sleep(0.01)
        errors = [line for line in self.server.log if "] error: " in line]
        workers = [line.partition("error: ")[2] for line in errors if line.startswith("[firstlight worker")]
        fronts = [line.partition("error: ")[2] for line in errors if line.startswith("[firstlight front")]
        return workers, fronts[-1]


@pytest.fixture
def failing(
    start: Start, parallel_model: Path, is_alive: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Failing]:
    def begin(*arguments: str, fault: str = "") -> Failing:
        monkeypatch.setenv("FIRSTLIGHT_FAULT", fault)
        server = start("--tp", "3", "--threads", "1", *arguments, parallel_model)
        return Failing(server, is_alive)

    return begin


@pytest.mark.parametrize("place", PLACES)
def test_a_rank_that_is_killed(failing: Callable[..., Failing], place: str) -> None:
    server = failing(*AT_ONCE, fault=f"kill:rank=1:{PLACES[place]}")
    if place in SERVING:
        reply = server.ask()
        assert reply.status == 500
        assert reply.error["code"] == "worker_lost"
    workers, front = server.end()
    assert len(workers) <= 1, "the others' words would only repeat it"
    pid = server.pids()[1]
    assert all(words.startswith(f"rank 1 (pid {pid}) has ended, last seen ") for words in workers)
    assert front.startswith(f"worker rank=1 pid={pid} was killed by SIGKILL (phase={PLACES[place].split(':')[0][6:]}")


@pytest.mark.parametrize("place", PLACES)
def test_a_rank_that_is_stopped(failing: Callable[..., Failing], place: str) -> None:
    server = failing(*SOON, fault=f"stop:rank=2:{PLACES[place]}")
    if place in SERVING:
        reply = server.ask()
        assert reply.status == 500
        assert "rank 2 (pid " in reply.error["message"]
    ((words,), front) = server.end()
    assert re.match(rf"rank 2 \(pid {server.pids()[2]}\) is stopped and was waited for \d+ s, last seen ", words), (
        words
    )
    assert words in front, "the front passes on what the rank said"


@pytest.mark.parametrize("place", ["warmup", "prefill", "decode"])
def test_a_collective_left_out(failing: Callable[..., Failing], place: str) -> None:
    server = failing(*AT_ONCE, fault=f"skip:rank=1:{PLACES[place]}")
    if place in SERVING:
        assert server.ask().status == 500
    ((words,), front) = server.end()
    assert words.startswith("the ranks do not do the same work: "), words
    assert words.endswith("; rank 1 left something out or did it twice"), words
    assert words in front


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_idle_rank_is_lost(failing: Callable[..., Failing], lost: int, number: signal.Signals) -> None:
    server = failing(*(AT_ONCE if number == signal.SIGKILL else SOON))
    assert server.ask().status == 200
    server.send(lost, number)
    workers, front = server.end()
    pid = server.pids()[lost]
    if number == signal.SIGKILL:
        assert len(workers) <= 1
        assert front.startswith(f"worker rank={lost} pid={pid} was killed by SIGKILL (phase=serving, "), front
    else:
        (words,) = workers
        assert words.startswith(f"rank {lost} (pid {pid}) is stopped and was waited for "), words
        assert words in front


def test_asked_to_stop_nobody_says_an_error(failing: Callable[..., Failing], is_alive: Callable[[int], bool]) -> None:
    server = failing(*AT_ONCE)
    assert server.ask().status == 200
    assert server.server.end() == 0
    with pytest.raises(AssertionError):
        server.server.line("] error: ")
    assert not [pid for pid in server.pids().values() if is_alive(pid)]
