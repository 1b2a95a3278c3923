"""A real vLLM of which one process is stopped by a signal in each phase of its start, and once it serves.

One server is stopped in one phase after the other, and let go on as soon as the stall is told: vLLM has no deadline
of its own for any of it.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.engines.conftest import Vllm

from firstlight import procfs
from firstlight.core.events import Event, MotionChanged, ProcessAppeared, TokenVerified, Verdict
from firstlight.core.report import Report
from firstlight.core.vocabulary import Motion, Outcome, Phase, Role
from firstlight.testing.running import Up

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

WAIT_S = 200.0
POLL_S = 0.1


class Stop(NamedTuple):
    """Who is stopped in which phase, after logging what."""

    phase: Phase
    role: Role
    after: str


STOPS = (
    Stop(Phase.IMPORT, Role.FRONT, "version 0."),
    Stop(Phase.SPAWN, Role.ENGINE, "Initializing a V1 LLM engine ("),
    Stop(Phase.RENDEZVOUS, Role.WORKER, "distributed_init_method="),
    Stop(Phase.WEIGHTS, Role.WORKER, "Initializing model took "),
    Stop(Phase.KV_CACHE, Role.WORKER, " GiB for KV cache"),
    Stop(Phase.HTTP_BIND, Role.FRONT, "Starting vLLM server on "),
)
SERVING = Stop(Phase.SERVING, Role.WORKER, "")

Told = dict[Phase, tuple[int, Report]]
"""Who was stopped in a phase, and what was said then."""


@pytest.fixture(scope="module")
def told(vllm_in: Callable[[Path], Vllm], tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("stops")
    for stop in STOPS:
        (folder / f"stop-{stop.phase}").write_text(stop.after)
    traps = str(Path(__file__).with_name("stops_itself"))
    start = vllm_in(tmp_path_factory.mktemp("stopped"))
    up = start("--enforce-eager", up=(), PYTHONPATH=traps, STOPS_ITSELF=str(folder))
    said: Told = {}
    for stop in STOPS:
        (folder / f"go-{stop.phase}").touch()
        said[stop.phase] = when_stopped(up, stopped(up))
    up.until(lambda event: isinstance(event, TokenVerified), WAIT_S)
    worker = up.pid_of("VLLM::Worker", WAIT_S)
    os.kill(worker, signal.SIGSTOP)
    said[Phase.SERVING] = when_stopped(up, worker)
    up.kill()
    return said


def stopped(up: Up) -> int:
    """The process of the server that is stopped, once there is one."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        for event in up.events:
            if isinstance(event, ProcessAppeared) and state(event.process.id.pid) == "T":
                return event.process.id.pid
        assert up.process.poll() is None, up.said()[-4000:]
        time.sleep(POLL_S)
    raise AssertionError(f"nobody stopped itself: {up.events[-3:]}")


def state(pid: int) -> str:
    try:
        return procfs.stat(pid).state
    except OSError:
        return ""


def when_stopped(up: Up, pid: int) -> tuple[int, Report]:
    """What is said of it; then it is let go on, until that has been noticed."""
    since = up.events[-1].t
    verdict = up.until(lambda event: is_stall(event) and event.t > since, WAIT_S)
    assert isinstance(verdict, Verdict)
    os.kill(pid, signal.SIGCONT)
    up.until(lambda event: moves(event) and event.t > verdict.t, WAIT_S)
    return pid, verdict.report


def is_stall(event: Event) -> bool:
    return isinstance(event, Verdict) and event.report.outcome is Outcome.STALLED


def moves(event: Event) -> bool:
    return isinstance(event, MotionChanged) and event.motion is not Motion.STALLED


@pytest.mark.parametrize("stop", [*STOPS, SERVING], ids=lambda stop: f"{stop.role} in {stop.phase}")
def test_a_stopped_process_is_named_in_every_phase(told: Told, stop: Stop) -> None:
    pid, report = told[stop.phase]
    assert report.outcome is Outcome.STALLED
    assert report.phase is stop.phase
    finding = next(finding for finding in report.findings if finding.verdict == "established")
    assert (finding.id, finding.pids) == ("stopped_process", (pid,))
    assert f"process {pid} is in state T" in finding.evidence[0]
    assert next(process.role for process in report.processes if process.pid == pid) is stop.role
    assert str(pid) in report.headline
