"""Three ranks as processes, what they say, and how they end."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("ranks_program.py")
DEADLINE_S = 60.0


class RankProcesses:
    """The ranks of one test."""

    def __init__(self, path: str, arguments: list[str]) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(path)
        self._connection.sendall(json.dumps(arguments).encode() + b"\n")
        self.said: list[str] = []
        self.told: list[dict[str, Any]] = []
        self.ended: dict[int, int] = {}
        self._facts: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()
        self.pids: list[int] = self.fact("started")["pids"]

    def _pump(self) -> None:
        for line in self._connection.makefile():
            self._facts.put(json.loads(line))
        self._facts.put({"event": "closed"})

    def fact(self, event: str) -> dict[str, Any]:
        """The next fact of this kind."""
        until = time.monotonic() + DEADLINE_S
        while True:
            fact = self._facts.get(timeout=max(0.0, until - time.monotonic()))
            match fact.get("event"):
                case "ended":
                    self.ended[fact["rank"]] = fact["status"]
                case "said":
                    self.said.append(fact["message"])
                case None:
                    self.told.append(fact)
            if fact.get("event") == event:
                return fact

    def idle(self) -> "RankProcesses":
        self.fact("idle")
        return self

    def send(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pids[rank], number)

    def finish(self) -> None:
        """Let rank 0 end the others in order."""
        self._connection.shutdown(socket.SHUT_WR)

    def others_end(self, lost: int) -> str:
        """Wait until all but `lost` have ended by themselves, end that one too, and return the one message."""
        while len(self.ended.keys() - {lost}) < len(self.pids) - 1:
            self.fact("ended")
        if lost not in self.ended:
            self.send(lost, signal.SIGKILL)
        self.all_end()
        (message,) = self.said
        return message

    def all_end(self) -> dict[int, int]:
        """Wait until there is nothing left; returns how each rank ended."""
        self.fact("closed")
        assert len(self.ended) == len(self.pids)
        return self.ended

    def kill(self) -> None:
        for rank in range(len(self.pids)):
            if rank not in self.ended:
                self.send(rank, signal.SIGKILL)
        self._connection.close()


@pytest.fixture(scope="session")
def ranks_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where ranks are to be had."""
    path = str(tmp_path_factory.mktemp("ranks") / "s")
    program = subprocess.Popen([sys.executable, str(PROGRAM), path], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "listening\n"
    yield path
    program.kill()
    program.wait(DEADLINE_S)


@pytest.fixture
def start_ranks(ranks_path: str) -> Iterator[Callable[..., RankProcesses]]:
    """Start ranks; none of them survives the test."""
    started: list[RankProcesses] = []

    def start(*arguments: object) -> RankProcesses:
        started.append(RankProcesses(ranks_path, [str(argument) for argument in arguments]))
        return started[-1]

    yield start
    for ranks in started:
        ranks.kill()


@pytest.fixture(scope="session")
def parallel_model(make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose heads three ranks can share."""
    changes = {
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "hidden_size": 96,
        "intermediate_size": 192,
    }
    return make_model(tmp_path_factory.mktemp("models") / "parallel", **changes)
