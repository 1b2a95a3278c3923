"""What a report says of the question."""

from typing import Any

import pytest

from firstlight.core.graph import Signature
from firstlight.core.log import LogLine
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import Finding, Report
from firstlight.core.vocabulary import Outcome as End
from firstlight.core.vocabulary import Phase
from firstlight.isolate.problem import Outcome
from firstlight.isolate.trial import Trial, fails_like, outcome_of

ONE = Signature(digest="aaaa", phase="weights", waits=())
OTHER = Signature(digest="bbbb", phase="weights", waits=())


def report(outcome: End, **changes: Any) -> Report:
    told: dict[str, Any] = {
        "run": "r",
        "headline": "",
        "engine": "generic",
        "engine_version": "",
        "command": (),
        "started": 100.0,
        "ended": 101.0,
        "phase": Phase.SPAWN,
        "server": 7,
    }
    return Report(outcome=outcome, **(told | changes))


STALL = report(End.STALLED, signature=ONE)


def exited(code: int, pid: int = 7) -> Exit:
    return Exit(id=ProcessId(pid=pid, started=1), name="server", at=101.0, code=code)


def said(text: str) -> LogLine:
    return LogLine(stream="stderr", at=1.0, text=text, message=text)


@pytest.mark.parametrize(
    ("found", "known", "outcome"),
    [
        (ONE, None, Outcome.SAME),
        (ONE, ONE, Outcome.SAME),
        (OTHER, ONE, Outcome.OTHER),
        (None, ONE, Outcome.OTHER),
        (None, None, Outcome.OTHER),
    ],
)
def test_a_stall_is_the_same_by_its_signature(
    found: Signature | None, known: Signature | None, outcome: Outcome
) -> None:
    first = None if known is None else report(End.STALLED, signature=known)
    assert outcome_of(report(End.STALLED, signature=found), first) is outcome


def test_a_stall_of_the_same_established_cause_is_the_same_wherever_the_others_wait() -> None:
    stopped = Finding(id="stopped_process", title="", verdict="established")
    first = report(End.STALLED, signature=ONE, findings=(stopped,))
    assert outcome_of(report(End.STALLED, signature=OTHER, findings=(stopped,)), first) is Outcome.SAME
    elsewhere = report(End.STALLED, signature=OTHER, findings=(stopped,), phase=Phase.WEIGHTS)
    assert outcome_of(elsewhere, first) is Outcome.OTHER
    maybe = Finding(id="stopped_process", title="", verdict="supported")
    assert outcome_of(report(End.STALLED, signature=OTHER, findings=(maybe,)), first) is Outcome.OTHER


def test_a_verified_token_is_up() -> None:
    assert outcome_of(report(End.SERVING), STALL) is Outcome.UP


@pytest.mark.parametrize("end", [End.DEADLINE, End.NOT_LOOKED, End.EXITED])
def test_every_other_end_is_another_failure(end: End) -> None:
    assert outcome_of(report(end, exits=(exited(1),)), STALL) is Outcome.OTHER


def test_what_could_not_be_launched_did_not_start() -> None:
    assert outcome_of(report(End.NOT_STARTED), STALL) is Outcome.NOT_STARTED


def test_the_code_of_a_usage_error_did_not_start() -> None:
    assert outcome_of(report(End.EXITED, exits=(exited(2),)), STALL) is Outcome.NOT_STARTED


def test_that_code_of_another_process_says_nothing() -> None:
    assert outcome_of(report(End.EXITED, exits=(exited(1), exited(2, pid=8))), STALL) is Outcome.OTHER


@pytest.mark.parametrize("line", ["vllm serve: error: unrecognized arguments: --x", "x: error: argument --y: no"])
def test_what_argparse_says_did_not_start(line: str) -> None:
    assert outcome_of(report(End.EXITED, log_tail=(said(line),)), STALL) is Outcome.NOT_STARTED


def test_a_usage_error_after_the_weights_is_none() -> None:
    late = report(End.EXITED, exits=(exited(2),), phase=Phase.WEIGHTS)
    assert outcome_of(late, STALL) is Outcome.OTHER


def test_a_usage_error_after_a_long_time_is_none() -> None:
    late = report(End.EXITED, exits=(exited(2),), ended=900.0)
    assert outcome_of(late, STALL) is Outcome.OTHER


def failure(what: str, *causes: str, outcome: Outcome = Outcome.OTHER) -> Trial:
    findings = tuple(Finding(id=cause, title=cause, verdict="established") for cause in causes)
    return Trial(
        number=1, setting=(), why="", outcome=outcome, what=what, seconds=1.0, run="r", report="", findings=findings
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (failure("pid 7 ended", "shm_too_small"), failure("worker ended", "shm_too_small"), True),
        (failure("pid 7 ended: no key"), failure("pid 81 ended: no key"), True),
        (failure("it ended: no key", "process_died"), failure("it ended: no room", "process_died"), False),
        (failure("it ended"), failure("it ended", outcome=Outcome.UP), False),
    ],
)
def test_two_failures_are_the_same_by_their_cause_or_their_words(one: Trial, other: Trial, same: bool) -> None:
    assert fails_like(one, other) is same
