"""A home of one's own, the command line as a program, and a recorded start with everything that can happen in one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.core.events import (
    Event,
    GapNoted,
    LogSeen,
    Looked,
    MotionChanged,
    PhaseBegan,
    PhaseEnded,
    ProcessAppeared,
    ProcessGone,
    Progress,
    Started,
    Stopped,
    Stopping,
    TokenVerified,
    Verdict,
    Verifying,
)
from firstlight.core.gap import Gap
from firstlight.core.log import Counter, PhaseSpan
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.report import FirstToken, Report
from firstlight.core.view import LiveView, ProcessRow
from firstlight.core.vocabulary import GapReason, Motion, Outcome, Phase, Role, Signal

Finished = subprocess.CompletedProcess[str]
Cli = Callable[..., Finished]

BEGAN = 1_700_000_000.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and nothing to fall back on that belongs to somebody else."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("FIRSTLIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    """Runs `firstlight` with arguments, as a shell would."""

    def call(*arguments: str, shell: str = "", **environ: str) -> Finished:
        command = [sys.executable, "-m", "firstlight", *arguments]
        return subprocess.run(
            ["/bin/sh", "-c", f'"$@" {shell}', "sh", *command] if shell else command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def report() -> Report:
    return Report(
        run="r",
        outcome=Outcome.STALLED,
        headline="rank 1 is stopped by a signal",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve"),
        started=BEGAN,
        ended=BEGAN + 90,
        phase=Phase.WEIGHTS,
        timeline=(
            PhaseSpan(phase=Phase.IMPORT, source="", began=BEGAN, ended=BEGAN + 9.8),
            PhaseSpan(phase=Phase.WEIGHTS, source="", began=BEGAN + 10),
        ),
    )


@pytest.fixture
def stream(report: Report) -> list[Event]:
    """Every kind of event, in an order that could have been."""
    front = Process(id=ProcessId(pid=7, started=1), ppid=1, name="vllm serve", cmdline=("vllm", "serve"))
    gone = Exit(
        id=ProcessId(pid=9, started=1), name="VLLM::Worker_TP1", label="Worker_TP1", at=BEGAN, signal=9, rank=1
    )
    token = FirstToken(prompt="p", text=" Paris", model="m", tokens=1, after_launch_s=60, request_s=1)
    folder, url = "/state/runs/r", "http://127.0.0.1:8000"

    def at(t: float) -> dict[str, float]:
        return {"at": BEGAN + t, "t": t}

    def begins(t: float, phase: Phase, source: str = "", rank: int = -1) -> Event:
        return PhaseBegan(**at(t), phase=phase, source=source, rank=rank, text="")

    def ends(t: float, phase: Phase, seconds: float, source: str = "", rank: int = -1) -> Event:
        return PhaseEnded(**at(t), phase=phase, source=source, rank=rank, seconds=seconds)

    def motion(t: float, motion: Motion, why: str) -> Event:
        return MotionChanged(**at(t), motion=motion, phase=Phase.WEIGHTS, why=why, signals=(Signal.CPU,), quiet_s=0)

    return [
        Started(
            **at(0), run="r", engine="vllm", command=("vllm", "--api-key", "hush"), pid=7, url=url, folder=folder
        ),
        ProcessAppeared(**at(0), process=front),
        begins(1, Phase.IMPORT),
        ends(9, Phase.IMPORT, 8),
        begins(10, Phase.WEIGHTS, "Worker_TP0", 0),
        begins(10.2, Phase.WEIGHTS, "Worker_TP1", 1),
        Progress(**at(12), phase=Phase.WEIGHTS, counter=Counter(done=3, total=64, unit="shards"), eta_s=20),
        motion(13, Motion.QUIET, "nothing moves"),
        motion(14, Motion.MOVING, "reads 12 MB/s"),
        motion(15, Motion.QUIET, "nothing moves"),
        LogSeen(**at(16), stream="stderr", source="", level="INFO", text="INFO a marker"),
        LogSeen(**at(16), stream="stderr", source="", level="ERROR", text="ERROR \x1b[2J it broke"),
        ends(20, Phase.WEIGHTS, 10, "Worker_TP0", 0),
        ends(21, Phase.WEIGHTS, 10.8, "Worker_TP1", 1),
        Verifying(**at(50), url=url, what="503: loading"),
        TokenVerified(**at(60), token=token),
        ProcessGone(**at(70), exit=gone),
        GapNoted(**at(71), gap=Gap(what="GPU work", reason=GapReason.NOT_INSTALLED, detail="install it")),
        motion(80, Motion.STALLED, "rank 1 is gone"),
        Looked(**at(85), why="quiet for 12 s", took_s=1.2, bundle=f"{folder}/bundle-1.json"),
        Stopping(**at(88), why="stalled"),
        Stopped(**at(89), asked=9, killed=1, left=()),
        Verdict(**at(90), report=report),
    ]


@pytest.fixture
def view() -> LiveView:
    def row(pid: int, role: Role, label: str, rank: int) -> ProcessRow:
        return ProcessRow(
            pid=pid,
            name="python",
            role=role,
            label=label,
            rank=rank,
            phase=Phase.WEIGHTS if rank >= 0 else None,
            state="T" if rank == 3 else "R",
            cpu_percent=97.4,
            read_bytes_s=12_000_000,
            write_bytes_s=0,
            memory_bytes=3_200_000_000,
        )

    ranks = tuple(row(1000 + rank, Role.WORKER, f"Worker_TP{rank}", rank) for rank in range(8))
    return LiveView(
        run="r",
        engine="vllm",
        engine_version="0.32.0",
        url="http://127.0.0.1:8000",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        why="reads 96 MB/s",
        elapsed_s=20,
        quiet_s=0.2,
        threshold_s=12,
        timeline=(
            PhaseSpan(phase=Phase.IMPORT, source="", began=BEGAN, ended=BEGAN + 9.8),
            PhaseSpan(phase=Phase.WEIGHTS, source="Worker_TP0", began=BEGAN + 10),
        ),
        rows=(row(999, Role.FRONT, "", -1), *ranks),
        now=BEGAN + 20,
        last_log="Loading checkpoint shards: 42%",
        counter=Counter(done=27, total=64, unit="shards"),
        eta_s=14,
    )
