"""firstlight itself before a server of three ranks: the verdict names the rank at fault, not those that wait."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DEADLINE_S = 170.0
AT_ONCE = 3

STOPPED = ("stop:rank=1:phase=weights", "stop:rank=0:phase=rendezvous", "stop:rank=1:phase=warmup")
ASLEEP = ("sleep:rank=2:phase=rendezvous", "sleep:rank=1:phase=weights")
KILLED = ("kill:rank=1:phase=weights", "kill:rank=2:phase=warmup")
RAISES = "raise:rank=0:phase=kv_cache"
SKIPS = "skip:rank=1:phase=warmup:number=1"


class Said(NamedTuple):
    """How `firstlight up --once` ended, its report, and the pid of each rank."""

    code: int
    report: dict[str, Any]
    pids: dict[int, int]

    def finding(self, name: str) -> dict[str, Any]:
        return next(finding for finding in self.report["findings"] if finding["id"] == name)

    @property
    def established(self) -> set[str]:
        return {finding["id"] for finding in self.report["findings"] if finding["verdict"] == "established"}


def rank_of(fault: str) -> int:
    return int(fault.split("rank=")[1][0])


def phase_of(fault: str) -> str:
    return fault.split("phase=")[1].split(":", maxsplit=1)[0]


def play(model: Path, home: Path, fault: str) -> Said:
    """The ranks would wait for each other for two minutes."""
    server = [sys.executable, "-m", "firstlight.embedded", str(model), "--port", "0", "--tp", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "up", "--once", "--json", "--", *server, "--wait-deadline", "120"],
        check=False,
        env=os.environ | {"FIRSTLIGHT_FAULT": fault, "FIRSTLIGHT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    seen = [event.get("process") or event.get("exit") or {} for event in events]
    pids = {one["rank"]: one["id"]["pid"] for one in seen if one.get("role") == "worker"}
    return Said(done.returncode, events[-1]["report"], pids)


@pytest.fixture(scope="module")
def said(parallel_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Said]]:
    """What came of a fault. All are played from the first question on, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = (*STOPPED, *ASLEEP, *KILLED, RAISES, SKIPS)
        homes = tmp_path_factory.mktemp("homes")
        playing: dict[str, Future[Said]] = {
            fault: pool.submit(play, parallel_model, homes / str(number), fault)
            for number, fault in enumerate(faults)
        }
        yield lambda fault: playing[fault].result()


@pytest.mark.parametrize("fault", STOPPED)
def test_a_stopped_rank_is_named(said: Callable[[str], Said], fault: str) -> None:
    code, report, pids = told = said(fault)
    assert (code, report["outcome"]) == (1, "stalled")
    assert report["phase"] in {phase_of(fault), "verify"}, "its port may be asked for a token by then"
    stopped = told.finding("stopped_process")
    assert (stopped["verdict"], stopped["pids"]) == ("established", [pids[rank_of(fault)]])
    assert f"worker rank {rank_of(fault)}" in report["headline"]
    assert "is in state T" in stopped["evidence"][0]


@pytest.mark.parametrize("fault", ASLEEP)
def test_a_rank_that_never_comes_is_named_and_where_it_is_instead(said: Callable[[str], Said], fault: str) -> None:
    code, report, pids = told = said(fault)
    assert (code, report["outcome"]) == (1, "stalled")
    assert report["phase"] in {phase_of(fault), "verify"}, "its port may be asked for a token by then"
    elsewhere = told.finding("rank_elsewhere")
    assert (elsewhere["verdict"], elsewhere["pids"]) == ("supported", [pids[rank_of(fault)]])
    assert "Fault.strikes (faults.py" in " ".join(elsewhere["evidence"])
    assert f"worker rank {rank_of(fault)} " in report["headline"]


@pytest.mark.parametrize("fault", KILLED)
def test_a_killed_rank_is_named(said: Callable[[str], Said], fault: str) -> None:
    code, report, pids = told = said(fault)
    assert (code, report["outcome"]) == (3, "exited")
    died = told.finding("rank_died")
    assert (died["verdict"], died["pids"]) == ("established", [pids[rank_of(fault)]])
    assert "was killed by signal 9 (SIGKILL)" in died["title"]
    assert told.established == {"rank_died"}


def test_a_rank_that_fails_is_named_with_its_error(said: Callable[[str], Said]) -> None:
    code, report, pids = told = said(RAISES)
    assert (code, report["outcome"]) == (3, "exited")
    assert told.finding("rank_died")["pids"] == [pids[0]]
    assert "RuntimeError: a fault on purpose" in report["headline"]


def test_a_rank_that_leaves_a_collective_out_is_told_in_the_engine_s_own_words(said: Callable[[str], Said]) -> None:
    code, report, _ = said(SKIPS)
    assert (code, report["outcome"]) == (3, "exited")
    assert "rank 1 left something out" in report["first_error"]["text"]
    assert "the ranks do not do the same work" in report["headline"]
