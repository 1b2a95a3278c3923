"""`firstlight runs`: what was started here, and what became of it."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from firstlight.cli.probe import fresh, supervised
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.state import RunState
from firstlight.core.vocabulary import Outcome
from firstlight.core.words import OUTCOME_WORDS, printable, seconds

if TYPE_CHECKING:
    from firstlight.isolate.listing import Isolation
    from firstlight.supervise.runs.folders import RunFolder

EPILOG = """\b
Examples:
  firstlight runs                              the newest twenty
  firstlight runs --json | jq .outcome         all that is known of each, one JSON object a line
  firstlight report last                       the report of the newest

Isolations stand in a table of their own below; the trials of each are runs.

Old runs are removed when a new one begins: beyond 50 runs or 2 GB, never one that may still be going on.
"""


class Row(NamedTuple):
    """One run as it is listed; every field is text."""

    run: str
    engine: str
    model: str
    standing: str
    phase: str
    first_token: str
    age: str


class IsolationRow(NamedTuple):
    """One isolation as it is listed."""

    isolation: str
    command: str
    trials: str
    age: str
    answer: str


ISOLATIONS = IsolationRow("ISOLATION", "COMMAND", "TRIALS", "AGE", "ANSWER")
HEADING = Row("RUN", "ENGINE", "MODEL", "STANDING", "PHASE", "FIRST TOKEN", "AGE")
SPARED = ("engine", "first_token", "phase", "age", "model")
"""Columns that a narrow terminal does without, the least missed first; a run's name has its engine and its time."""

OVER = {
    Outcome.SERVING: "served, ended",
    Outcome.STALLED: "stalled, ended",
    Outcome.DEADLINE: "deadline passed, ended",
    Outcome.NOT_LOOKED: "not verified, ended",
}
"""Where the outcome's own word could be taken for the present."""


class _Told(msgspec.Struct, frozen=True):
    """All that is wanted of a report here."""

    outcome: Outcome


@click.command(epilog=EPILOG, short_help="List past and present runs.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, from the newest."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def command(limit: int, as_json: bool) -> int:
    """List runs, the newest first: how each stands or ended, and how long it took to its first token."""
    from firstlight.supervise.runs.folders import list_runs
    from firstlight.supervise.runs.places import home

    runs = list_runs()[:limit]
    isolations = _isolations(limit)
    clock = SystemClock()
    for run in runs if as_json else ():
        click.echo(_json(run, run.read_state(), clock.boottime()))
    for one in isolations if as_json else ():
        click.echo(msgspec.json.encode(one).decode())
    if as_json:
        return 0
    if not runs and not isolations:
        click.echo(f"No runs yet in {home() / 'runs'}; `firstlight up` makes one.", err=True)
        return 0
    rows = [row_of(run, run.read_state(), clock.boottime(), clock.wall()) for run in runs]
    for line in aligned([HEADING, *rows], _columns()) if rows else ():
        click.echo(line)
    if isolations:
        if rows:
            click.echo()
        told = [ISOLATIONS, *(isolation_row(one, clock.wall()) for one in isolations)]
        for line in _lines(told, list(IsolationRow._fields)):
            click.echo(line[: _columns()])
    return 0


def _isolations(limit: int) -> "list[Isolation]":
    from firstlight.supervise.runs.folders import list_runs

    if not list_runs(among="isolations"):
        return []
    from firstlight.isolate.listing import isolations

    return list(isolations(limit))


def isolation_row(one: "Isolation", now: float) -> IsolationRow:
    """One line of the table of isolations."""
    open_yet = "going on" if one.going_on else "none yet; `firstlight isolate --resume` goes on"
    age = seconds(now - one.began) if one.began else ""
    answer = open_yet if one.going_on or not one.answer else printable(one.answer, 400)
    return IsolationRow(one.isolation, printable(" ".join(one.command), 40), str(one.trials), age, answer)


def row_of(run: "RunFolder", state: RunState | Gap, boottime: float, now: float) -> Row:
    """One line of the table. Of a run that left nothing to read its name still tells when and what."""
    date, engine = run.id[:17], run.id.split("-")[4]
    if isinstance(state, Gap):
        began = datetime.strptime(date, "%Y-%m-%d-%H%M%S").timestamp()
        return Row(run.id, engine, "", _as_reported(run) or "unknown", "", "", seconds(now - began))
    token = seconds(state.first_token_s) if state.first_token_s is not None else ""
    age = seconds(now - (state.started or state.at))
    model = printable(state.model, 40)
    return Row(run.id, state.engine or engine, model, standing(run, state, boottime), state.phase, token, age)


def standing(run: "RunFolder", state: RunState, boottime: float) -> str:
    """How the run stands now, or that it is over and how it ended."""
    watched = fresh(state, boottime) and supervised(state)
    if state.outcome is None and watched:
        return "serving" if state.serving else state.motion
    if state.outcome is None:
        return _as_reported(run) or "not watched"
    if watched:
        return f"{OUTCOME_WORDS[state.outcome]}, ending"
    over = OVER.get(state.outcome, OUTCOME_WORDS[state.outcome])
    return f"{over.removesuffix(', ended')}, left running" if _left_running(state) else over


def _left_running(state: RunState) -> bool:
    from firstlight.supervise.runs.pids import alive_since

    return state.outcome != Outcome.EXITED and alive_since(state.server, state.boottime)


def _as_reported(run: "RunFolder") -> str:
    """How a run ended whose state does not tell, as where the start was refused; empty if nothing does."""
    try:
        outcome = msgspec.json.decode(run.report.read_bytes(), type=_Told).outcome
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return OVER.get(outcome, OUTCOME_WORDS[outcome])


def aligned(rows: Sequence[Row], columns: int | None = None) -> list[str]:
    """Rows as lines with columns of even width; within `columns` of a terminal, as far as leaving out can help."""
    fields = list(Row._fields)
    for spared in SPARED:
        lines = _lines(rows, fields)
        if columns is None or max(map(len, lines)) <= columns:
            return lines
        fields.remove(spared)
    return [line[:columns] for line in _lines(rows, fields)]


def _lines(rows: Sequence[Row | IsolationRow], fields: Sequence[str]) -> list[str]:
    widths = [max(len(getattr(row, field)) for row in rows) for field in fields]
    cells = ([getattr(row, field).ljust(width) for field, width in zip(fields, widths, strict=True)] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]


def _columns() -> int | None:
    """The terminal's width; None where there is none and nothing needs to fit."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _json(run: "RunFolder", state: RunState | Gap, boottime: float) -> str:
    known: dict[str, object] = {"run": run.id, "folder": str(run.path)}
    if isinstance(state, RunState):
        known |= {"standing": standing(run, state, boottime), **msgspec.to_builtins(state), "run": run.id}
    else:
        known |= {"standing": _as_reported(run) or "unknown", "gap": state}
    return msgspec.json.encode(known).decode()
