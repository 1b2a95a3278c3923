"""What the last answer to the question for a token establishes, by data."""

import pytest

from firstlight.supervise.questions.answer_findings import finding_of
from firstlight.supervise.questions.verify import Answer, AnswerKind

ERROR = Answer(
    kind=AnswerKind.ERROR,
    fact="it answered 500",
    advice="see the log",
    said="CUDA error: boom ***",
    status=500,
    health=200,
)
NOTHING_AGAINST_IT = {AnswerKind.TOKEN, AnswerKind.NOT_ASKED}


@pytest.mark.parametrize("kind", AnswerKind)
def test_every_answer_that_is_no_token_establishes_something(kind: AnswerKind) -> None:
    finding = finding_of(Answer(kind=kind, fact="so it is", advice="do that"), pending_s=0.0)
    if kind in NOTHING_AGAINST_IT:
        assert finding is None
    else:
        assert finding is not None
        assert (finding.title, finding.verdict, finding.advice) == ("so it is", "established", ("do that",))
        assert finding.evidence


def test_each_kind_has_its_own_word() -> None:
    findings = [finding_of(Answer(kind=kind, fact="x"), pending_s=0.0) for kind in AnswerKind]
    ids = [finding.id for finding in findings if finding is not None]
    assert len(set(ids)) == len(ids) == len(AnswerKind) - len(NOTHING_AGAINST_IT)


def test_the_servers_own_words_are_evidence() -> None:
    finding = finding_of(ERROR, pending_s=1.0)
    assert finding is not None
    assert finding.id == "server_error"
    assert finding.evidence == (
        "the server answered with status 500, in its own words: CUDA error: boom ***",
        "/health answered 200 just before",
    )


def test_a_question_without_an_answer_establishes_that() -> None:
    finding = finding_of(None, pending_s=42.0)
    assert finding is not None
    assert finding.id == "no_answer"
    assert finding.evidence == ("a request for one token has been out for 42 s without an answer",)


@pytest.mark.parametrize("pending_s", [0.0, 0.5])
def test_a_question_that_was_only_just_asked_establishes_nothing(pending_s: float) -> None:
    assert finding_of(None, pending_s=pending_s) is None


def test_a_long_silence_counts_for_more_than_what_was_said_before() -> None:
    finding = finding_of(ERROR, pending_s=60.0)
    assert finding is not None
    assert finding.id == "no_answer"
    assert any(line.startswith("before that: the server answered with status 500") for line in finding.evidence)
