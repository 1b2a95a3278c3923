"""What is established once a server's last answer to the question for a token is all that is left to say. Pure."""

from firstlight.core.report import Finding
from firstlight.core.words import seconds
from firstlight.supervise.questions.verify import Answer, AnswerKind

UNANSWERED_S = 2.0
"""Most questions are answered sooner; one that is out for longer is worth telling …"""
UNANSWERED_AGAIN_S = 10.0
"""… and for so long, if it was answered before: then it counts for more than the last answer."""

_IDS = {
    AnswerKind.REFUSED: "refused",
    AnswerKind.NOT_READY: "not_ready_for_ever",
    AnswerKind.NO_ANSWER: "no_answer",
    AnswerKind.WRONG_MODEL: "wrong_model",
    AnswerKind.NEEDS_KEY: "needs_key",
    AnswerKind.NOT_OPENAI: "not_an_llm_server",
    AnswerKind.UNREADABLE: "unreadable_answer",
    AnswerKind.NO_TOKEN: "no_token",
    AnswerKind.REDIRECTED: "redirected",
    AnswerKind.CLOSED: "closes_connections",
    AnswerKind.ERROR: "server_error",
}
"""A token is no fault, and a question that failed inside firstlight says nothing of the server."""


def finding_of(answer: Answer | None, *, pending_s: float) -> Finding | None:
    """What the last answer establishes, None if nothing; `pending_s` is how long a question has been out, 0 if none.

    An `answer` of None means that none has come yet.
    """
    if pending_s >= (UNANSWERED_S if answer is None else UNANSWERED_AGAIN_S):
        return _unanswered(answer, pending_s)
    if answer is None or answer.kind not in _IDS:
        return None
    return Finding(
        id=_IDS[answer.kind],
        title=answer.fact,
        verdict="established",
        evidence=_evidence(answer),
        advice=(answer.advice,) if answer.advice else (),
    )


def _unanswered(before: Answer | None, pending_s: float) -> Finding:
    asked = f"a request for one token has been out for {seconds(pending_s)} without an answer"
    return Finding(
        id="no_answer",
        title="the port is open, but the question for a token is not answered",
        verdict="established",
        evidence=(asked, *(f"before that: {line}" for line in (_evidence(before) if before else ()))),
        advice=("the engine behind the port hangs or is very slow: see what its processes wait for",),
    )


def _evidence(answer: Answer) -> tuple[str, ...]:
    """The status and the server's own words, or that there were none."""
    if answer.status:
        said = f", in its own words: {answer.said}" if answer.said else ", without a word"
        own = f"the server answered with status {answer.status}{said}"
    else:
        own = f"there was no HTTP reply: {answer.kind}"
    health = f"/health answered {answer.health} just before"
    return (own,) if answer.health is None else (own, health)
