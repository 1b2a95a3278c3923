"""Made reports: one that serves, one that stalled, one that exited; and one full of malice."""

import time
from collections.abc import Iterator

import pytest

from firstlight.core.gap import Gap
from firstlight.core.log import Counter, LogLine, PhaseSpan
from firstlight.core.look import Frame
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import Finding, FirstToken, Report, ReportedProcess
from firstlight.core.vocabulary import GapReason, Outcome, Phase, Role

BEGAN = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reports show local time; goldens need the same one everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def span(phase: Phase, began: float, ended: float | None, rank: int = -1) -> PhaseSpan:
    source = f"Worker_TP{rank}" if rank >= 0 else ""
    return PhaseSpan(
        phase=phase, source=source, began=BEGAN + began, ended=None if ended is None else BEGAN + ended, rank=rank
    )


def line(text: str, at: float = 11.0) -> LogLine:
    return LogLine(stream="stderr", at=BEGAN + at, text=text, message=text)


def worker(rank: int, doing: str, where: tuple[Frame, ...], *, state: str = "S", last: str = "") -> ReportedProcess:
    return ReportedProcess(
        pid=100 + rank,
        name=f"VLLM::Worker_TP{rank}",
        role=Role.WORKER,
        rank=rank,
        label=f"Worker_TP{rank}",
        state=state,
        cpu_percent=0.4,
        memory_bytes=3_200_000_000,
        doing=doing,
        phase=Phase.WEIGHTS,
        where=where,
        last_words=last,
    )


@pytest.fixture
def serving() -> Report:
    return Report(
        run="2023-11-14-221320-embedded-000",
        outcome=Outcome.SERVING,
        headline="first light after 7.2 s: SmolLM2-135M-Instruct answered at http://127.0.0.1:8000",
        engine="embedded",
        engine_version="0.1.0",
        command=("firstlight", "serve", "/models/SmolLM2-135M-Instruct"),
        started=BEGAN,
        ended=BEGAN + 7.2,
        phase=Phase.SERVING,
        url="http://127.0.0.1:8000",
        first_token=FirstToken(
            prompt="The capital of France is",
            text=" Paris.\nIt lies on the Seine.",
            model="SmolLM2-135M-Instruct",
            tokens=9,
            after_launch_s=7.2,
            request_s=0.41,
        ),
        timeline=(
            span(Phase.SPAWN, 0, 0.3),
            span(Phase.IMPORT, 0.3, 4.1),
            span(Phase.WEIGHTS, 4.1, 6.6),
            span(Phase.VERIFY, 6.6, 7.2),
            span(Phase.SERVING, 7.2, None),
        ),
    )


@pytest.fixture
def stalled() -> Report:
    waits = (
        Frame(function="all_reduce", file="torch/distributed/distributed_c10d.py", line=2501),
        Frame(function="load_weights", file="vllm/model_loader.py", line=88),
    )
    reads = (Frame(function="_read_shard", file="safetensors/__init__.py", line=31),)
    stopped = worker(1, "stopped by a signal", reads, state="T", last="Loading checkpoint shards: 19%")
    waiting = [worker(rank, "waits in an all-reduce for rank 1", waits) for rank in (0, 2, 3)]
    return Report(
        run="2023-11-14-221320-vllm-a3f",
        outcome=Outcome.STALLED,
        headline="Worker_TP1 (rank 1, pid 101) is stopped by a signal in weights, and 3 ranks have waited "
        "for it since 22:13:40",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve", "Qwen/Qwen3-8B", "-tp", "4", "--api-key", "***"),
        started=BEGAN,
        ended=BEGAN + 103,
        phase=Phase.WEIGHTS,
        url="http://127.0.0.1:8000",
        quiet_since=BEGAN + 20,
        counter=Counter(done=12, total=64, unit="shards"),
        timeline=(
            span(Phase.SPAWN, 0, 0.3),
            span(Phase.IMPORT, 0.3, 9.8),
            *(span(Phase.WEIGHTS, 10 + rank / 10, None, rank) for rank in range(4)),
        ),
        processes=(stopped, *waiting),
        findings=(
            Finding(
                id="stopped",
                title="a worker is stopped",
                verdict="established",
                pids=(101,),
                evidence=("state T in /proc/101/stat", "no CPU in 83 s"),
                advice=("kill -CONT 101",),
            ),
        ),
        gaps=(
            Gap(what="GPU work", reason=GapReason.NOT_INSTALLED, detail="pip install firstlight[gpu]"),
            Gap(what="Python stack", reason=GapReason.TIMED_OUT, pid=100),
        ),
        log_tail=(line("Loading checkpoint shards: 17%", 18), line("Loading checkpoint shards: 19%", 20)),
        bundle="/state/runs/2023-11-14-221320-vllm-a3f/bundle-1.json",
        next_steps=("kill -CONT 101 lets it go on",),
    )


@pytest.fixture
def exited() -> Report:
    return Report(
        run="2023-11-14-221320-vllm-0c1",
        outcome=Outcome.EXITED,
        headline="Worker_TP1 (pid 101) was killed by signal 9 first, and the server with it",
        engine="vllm",
        engine_version="0.32.0",
        command=("vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"),
        started=BEGAN,
        ended=BEGAN + 31,
        phase=Phase.KV_CACHE,
        timeline=(
            span(Phase.IMPORT, 0, 9.8),
            *(span(Phase.WEIGHTS, 10, 22 + rank, rank) for rank in range(2)),
            span(Phase.KV_CACHE, 23, None),
        ),
        exits=(
            Exit(
                id=ProcessId(pid=101, started=1),
                name="VLLM::Worker_TP1",
                label="Worker_TP1",
                at=BEGAN + 29,
                signal=9,
                oom=True,
                rank=1,
                role=Role.WORKER,
            ),
            Exit(id=ProcessId(pid=99, started=1), name="vllm serve", at=BEGAN + 31, code=1, role=Role.FRONT),
            Exit(
                id=ProcessId(pid=98, started=1),
                name="nvcc",
                at=BEGAN + 31,
                code=Gap(what="exit status", reason=GapReason.NOT_SUPPORTED),
            ),
        ),
        first_error=line("(EngineCore pid=100) ERROR 11-14 22:13:50 [core.py:842] EngineCore failed to start."),
        log_tail=(line("RuntimeError: Engine core initialization failed. See root cause above.", 30),),
    )


MALICE = '<script>alert("1")</script>\x1b[31m]8;;http://evil\x07`@octocat #1 \u202e</pre>'


@pytest.fixture
def hostile(stalled: Report) -> Report:
    """Every text that can come from a server is an attack on some renderer."""
    evil = ReportedProcess(
        pid=1,
        name=MALICE,
        role=Role.OTHER,
        rank=-1,
        label="",
        state="S",
        cpu_percent=0,
        memory_bytes=0,
        doing=MALICE,
        where=(Frame(function=MALICE, file=MALICE, line=1),),
        last_words=MALICE,
    )
    return Report(
        run=MALICE,
        outcome=Outcome.STALLED,
        headline=MALICE,
        engine=MALICE,
        engine_version=MALICE,
        command=(MALICE,),
        started=BEGAN,
        ended=BEGAN + 1,
        phase=Phase.WEIGHTS,
        url=MALICE,
        counter=Counter(done=1, total=2, unit=MALICE),
        first_token=FirstToken(prompt=MALICE, text=MALICE, model=MALICE, tokens=1, after_launch_s=1, request_s=1),
        processes=(evil,),
        exits=(Exit(id=ProcessId(pid=1, started=1), name=MALICE, at=BEGAN, code=1),),
        findings=(Finding(id="x", title=MALICE, verdict=MALICE, evidence=(MALICE,), advice=(MALICE,)),),
        gaps=(Gap(what=MALICE, reason=GapReason.FAILED, detail=MALICE),),
        first_error=line(MALICE),
        log_tail=(line(MALICE), line("x" * 100_000)),
        bundle=MALICE,
        next_steps=(MALICE,),
    )
