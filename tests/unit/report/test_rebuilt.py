"""Reports of runs that ended without one."""

from firstlight.core.events import (
    Event,
    GapNoted,
    LogSeen,
    MotionChanged,
    PhaseBegan,
    PhaseEnded,
    ProcessGone,
    Progress,
    Started,
    TokenVerified,
    Verdict,
)
from firstlight.core.gap import Gap
from firstlight.core.log import Counter
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import FirstToken, Report
from firstlight.core.vocabulary import GapReason, Motion, Outcome, Phase
from firstlight.report.rebuilt import rebuild

STARTED = Started(
    at=100, t=0, run="r", engine="vllm", command=("vllm", "serve"), pid=7, url="http://127.0.0.1:8000", folder="/f"
)


def began(phase: Phase, at: float, source: str = "") -> PhaseBegan:
    return PhaseBegan(at=at, t=at - 100, phase=phase, source=source, rank=-1, text="")


def test_a_verdict_at_the_end_is_the_report(stalled: Report) -> None:
    assert rebuild([STARTED, Verdict(at=200, t=100, report=stalled)]) == stalled


def test_a_run_that_never_started_has_no_report() -> None:
    assert rebuild([]) is None


def test_a_run_that_was_cut_off_tells_what_was_known() -> None:
    error = LogSeen(at=111, t=11, stream="stderr", source="TP0", level="ERROR", text="ERROR it broke")
    gone = Exit(id=ProcessId(pid=8, started=1), name="nvcc", at=112, code=1)
    torn = Gap(what="line 9 of the journal", reason=GapReason.FAILED)
    blind = Gap(what="GPU work", reason=GapReason.NOT_INSTALLED)
    events: list[Event | Gap] = [
        STARTED,
        began(Phase.IMPORT, 101),
        PhaseEnded(at=109, t=9, phase=Phase.IMPORT, source="", rank=-1, seconds=8),
        began(Phase.WEIGHTS, 110, "TP0"),
        error,
        Progress(at=111, t=11, phase=Phase.WEIGHTS, counter=Counter(done=1, total=2, unit="shards"), eta_s=None),
        ProcessGone(at=112, t=12, exit=gone),
        GapNoted(at=113, t=13, gap=blind),
        torn,
    ]
    report = rebuild(events)
    assert report is not None
    assert report.outcome == Outcome.NOT_LOOKED
    assert report.headline.startswith("no verdict was reached")
    assert report.phase == Phase.WEIGHTS
    assert [(span.phase, span.ended) for span in report.timeline] == [(Phase.IMPORT, 109), (Phase.WEIGHTS, None)]
    assert report.first_error is not None
    assert report.first_error.text == "ERROR it broke"
    assert report.exits == (gone,)
    assert report.gaps[:2] == (blind, torn)
    assert report.gaps[2].what == "the end of the run"
    assert report.ended == 113


def test_the_first_error_is_the_last_line_that_was_called_so() -> None:
    def log(text: str, level: str = "", *, first: bool = False) -> LogSeen:
        return LogSeen(at=111, t=11, stream="stderr", source="", level=level, text=text, first_error=first)

    said = [
        log("follows", "ERROR"),
        log("start failed", "ERROR", first=True),
        log("my.Torn: 3", first=True),
        log("x"),
    ]
    report = rebuild([STARTED, *said, log("later", "ERROR")])
    assert report is not None
    assert report.first_error is not None
    assert report.first_error.text == "my.Torn: 3"


def test_a_stall_after_the_first_token_is_a_stall() -> None:
    token = FirstToken(prompt="p", text="t", model="m", tokens=1, after_launch_s=9, request_s=1)
    quiet = MotionChanged(
        at=150, t=50, motion=Motion.STALLED, phase=Phase.SERVING, why="no answer for 20 s", signals=(), quiet_s=20
    )
    report = rebuild([STARTED, TokenVerified(at=109, t=9, token=token), quiet])
    assert report is not None
    assert report.outcome == Outcome.STALLED
    assert "no answer for 20 s" in report.headline
    assert report.quiet_since == 130
    assert report.first_token == token


def test_an_older_verdict_does_not_hide_what_came_after(stalled: Report) -> None:
    moving = MotionChanged(at=201, t=101, motion=Motion.MOVING, phase=Phase.WEIGHTS, why="", signals=(), quiet_s=0)
    report = rebuild([STARTED, Verdict(at=200, t=100, report=stalled), moving])
    assert report is not None
    assert report.outcome == Outcome.NOT_LOOKED
