"""`firstlight probe`: a Kubernetes exec probe, answered from the run's state alone within milliseconds."""

from typing import TYPE_CHECKING, NamedTuple

import click

from firstlight.clock import Clock, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.state import STATE_STALE_S, RunState
from firstlight.core.vocabulary import GapReason, Motion, Outcome
from firstlight.core.words import OUTCOME_WORDS, printable, seconds, time_of_day

if TYPE_CHECKING:
    from firstlight.supervise.runs.folders import RunFolder

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
    found = _state_of(run, SystemClock())
    state = found.state
    answer = judge(question, state, found.boottime, alive=isinstance(state, Gap) or supervised(state))
    if isinstance(state, RunState) and found.whose:
        answer = answer._replace(text=f"{answer.text} ({found.whose})")
    click.echo(_json(question, state, answer) if as_json else answer.text)
    return answer.code


def judge(question: str, state: RunState | Gap, boottime: float, *, alive: bool = True) -> Answer:
    """What the state means for the question; `boottime` is now on the clock of `RunState.boottime`, `alive` whether
    the firstlight that wrote it still exists.
    """
    if isinstance(state, Gap):
        return Answer(CANNOT_LOOK, f"{state.what}: {state.detail or state.reason}")
    if state.outcome == Outcome.EXITED:
        return Answer(EXITED, f"the server exited in {state.phase}; `firstlight report {state.run}` tells how")
    if not (alive and fresh(state, boottime)):
        return Answer(CANNOT_LOOK, _unwatched(state, boottime - state.boottime))
    if state.motion == Motion.STALLED:
        quiet = f"{time_of_day(state.at - state.quiet_s)} ({seconds(state.quiet_s + boottime - state.boottime)})"
        return Answer(NOT_NOW, f"stalled since {quiet} in {state.phase}: {printable(state.why)}")
    if state.outcome is not None:
        return Answer(CANNOT_LOOK, f"the run ends ({OUTCOME_WORDS[state.outcome]}), and the server with it")
    return _moving(question, state)


def _moving(question: str, state: RunState) -> Answer:
    if state.serving:
        return Answer(OK, f"serving at {state.url}" if state.url else "serving")
    progress = f", {printable(state.progress)}" if state.progress else ""
    return Answer(NOT_NOW if question == "ready" else OK, f"{state.motion} in {state.phase}{progress}")


def fresh(state: RunState, boottime: float) -> bool:
    """True if the state is no older than whoever writes it lets it become."""
    return 0 <= boottime - state.boottime <= STATE_STALE_S


def supervised(state: RunState) -> bool:
    """True if the firstlight that wrote the state still exists, among the processes that can be seen from here."""
    from firstlight.supervise.runs.pids import alive_since

    return not _elsewhere(state) and alive_since(state.supervisor, state.boottime)


def _elsewhere(state: RunState) -> bool:
    """Whether pids of the state are not those of the processes that can be seen from here."""
    from firstlight.supervise.runs.pids import pid_space

    return state.pid_space not in {"", pid_space()}


def _json(question: str, state: RunState | Gap, answer: Answer) -> str:
    import msgspec

    known = {} if isinstance(state, Gap) else {"state": state}
    told = {"question": question, "ok": answer.code == OK, "exit_code": answer.code, "text": answer.text}
    return msgspec.json.encode({**told, **known}).decode()


def _unwatched(state: RunState, age: float) -> str:
    if state.outcome is not None:
        return f"not watched: the run has ended ({OUTCOME_WORDS[state.outcome]})"
    if age < 0 or _elsewhere(state):
        return "not watched: the state is from before the machine was started, or from another machine or container"
    return f"not watched: firstlight (pid {state.supervisor}) is gone or hangs; its last word is {seconds(age)} old"


class _Found(NamedTuple):
    """A state, CLOCK_BOOTTIME just after it was read, and whose it is, where others could have been meant."""

    state: RunState | Gap
    boottime: float
    whose: str = ""

    @property
    def watched(self) -> bool:
        return isinstance(self.state, RunState) and fresh(self.state, self.boottime) and supervised(self.state)

    @property
    def foreign(self) -> bool:
        """Whether it is of another boot, machine or container."""
        state = self.state
        return isinstance(state, RunState) and (state.boottime > self.boottime or _elsewhere(state))


def _state_of(name: str | None, clock: Clock) -> _Found:
    """The state of the run that is meant: without a name the newest that is watched, else the newest."""
    from firstlight.errors import RunNotFound
    from firstlight.supervise.runs.folders import find_run, list_runs

    if name is not None:
        try:
            return _read(find_run(name), clock)
        except RunNotFound as error:
            return _Found(Gap(what=error.what, reason=GapReason.VANISHED, detail=error.way_out), 0.0)
    found = [_read(run, clock) for run in list_runs()[:RUNS_TRIED]]
    if not found:
        return _Found(_NO_RUN, 0.0)
    watched = [one for one in found if one.watched]
    chosen = (watched or [one for one in found if not one.foreign] or found)[0]
    if len(found) == 1 or not isinstance(chosen.state, RunState):
        return chosen
    newest = f", the newest of {len(watched)} that are watched" if len(watched) > 1 else ""
    return chosen._replace(whose=f"run {printable(chosen.state.run, 80)}{newest}")


_NO_RUN = Gap(what="no run is being watched here", reason=GapReason.VANISHED, detail="start one with `firstlight up`")


def _read(run: "RunFolder", clock: Clock) -> _Found:
    """A watcher writes once a second: a clock read before the state would find some states in the future."""
    state = run.read_state()
    return _Found(state, clock.boottime())
