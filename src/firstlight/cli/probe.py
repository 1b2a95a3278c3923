"""`firstlight probe`: a Kubernetes exec probe, answered from the run's state alone within milliseconds."""

from typing import NamedTuple

import click

from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.state import STATE_STALE_S, RunState
from firstlight.core.vocabulary import GapReason, Motion, Outcome
from firstlight.core.words import printable, seconds, time_of_day

RUNS_TRIED = 50

OK, NOT_NOW, EXITED, CANNOT_LOOK = 0, 1, 3, 4

EPILOG = """\b
Exit codes:
  --startup, --live   0 while the server moves, is slow or quiet, or serves
                      1 when it is stalled
  --ready             0 only while it serves: a first token was verified, and it is not stalled
                      1 otherwise
  all three           3 when the server has exited
                      4 when there is no run, or nobody watches it any more

The run must be watched in the same container: make `firstlight up -- CMD` the container's command.
"""


class Answer(NamedTuple):
    """An exit code and the sentence that explains it."""

    code: int
    text: str


@click.command(epilog=EPILOG, short_help="Answer a Kubernetes probe: moving, stalled since, serving.")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--startup", "question", flag_value="startup", help="Is the server coming up?")
@click.option("--live", "question", flag_value="live", help="Does the server still move or serve?")
@click.option("--ready", "question", flag_value="ready", help="Would a request be answered now?")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(run: str | None, question: str | None, as_json: bool) -> int:
    """Answer from the state of RUN, by default the newest run that is being watched."""
    if question is None:
        raise click.UsageError("ask one of --startup, --ready, --live")
    clock = SystemClock()
    state = _state_of(run, clock.boottime())
    answer = judge(question, state, clock.boottime())
    click.echo(_json(question, state, answer) if as_json else answer.text)
    return answer.code


def judge(question: str, state: RunState | Gap, boottime: float) -> Answer:
    """What the state means for the question; `boottime` is now on the clock of `RunState.boottime`."""
    if isinstance(state, Gap):
        return Answer(CANNOT_LOOK, f"{state.what}: {state.detail or state.reason}")
    if state.outcome == Outcome.EXITED:
        return Answer(EXITED, f"the server exited in {state.phase}; `firstlight report {state.run}` tells how")
    age = boottime - state.boottime
    if not fresh(state, boottime):
        return Answer(CANNOT_LOOK, _stale(state, age))
    if state.motion == Motion.STALLED:
        quiet = f"{time_of_day(state.at - state.quiet_s)} ({seconds(state.quiet_s + age)})"
        return Answer(NOT_NOW, f"stalled since {quiet} in {state.phase}: {printable(state.why)}")
    if state.outcome is not None:
        return Answer(CANNOT_LOOK, f"the run has ended ({state.outcome}) and the server is no longer watched")
    return _moving(question, state)


def _moving(question: str, state: RunState) -> Answer:
    if state.serving:
        return Answer(OK, f"serving at {state.url}" if state.url else "serving")
    progress = f", {printable(state.progress)}" if state.progress else ""
    return Answer(NOT_NOW if question == "ready" else OK, f"{state.motion} in {state.phase}{progress}")


def fresh(state: RunState, boottime: float) -> bool:
    """True if whoever wrote the state is still there."""
    return 0 <= boottime - state.boottime <= STATE_STALE_S


def _json(question: str, state: RunState | Gap, answer: Answer) -> str:
    import msgspec

    known = {} if isinstance(state, Gap) else {"state": state}
    told = {"question": question, "ok": answer.code == OK, "exit_code": answer.code, "text": answer.text}
    return msgspec.json.encode({**told, **known}).decode()


def _stale(state: RunState, age: float) -> str:
    if age < 0:
        return "the state is from before the machine was started, or from another machine"
    return f"the state is {seconds(age)} old; firstlight (pid {state.supervisor}) no longer watches this run"


def _state_of(name: str | None, boottime: float) -> RunState | Gap:
    from firstlight.errors import RunNotFound
    from firstlight.supervise.runs import find_run, list_runs

    if name is not None:
        try:
            return find_run(name).read_state()
        except RunNotFound as error:
            return Gap(what=error.what, reason=GapReason.VANISHED, detail=error.way_out)
    states = (run.read_state() for run in list_runs()[:RUNS_TRIED])
    newest: RunState | Gap = Gap(
        what="no run is being watched here", reason=GapReason.VANISHED, detail="start one with `firstlight up`"
    )
    for number, state in enumerate(states):
        if isinstance(state, RunState) and fresh(state, boottime):
            return state
        newest = state if number == 0 else newest
    return newest
