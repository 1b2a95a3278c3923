"""`firstlight runs`: what was started here, and what became of it."""

from collections.abc import Sequence
from typing import NamedTuple

import click

from firstlight.cli.probe import fresh
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.state import RunState
from firstlight.core.words import printable, seconds

EPILOG = """\b
Examples:
  firstlight runs                              the newest twenty
  firstlight runs --json | jq .outcome         all that is known of each, one JSON object a line
  firstlight report last                       the report of the newest

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


@click.command(epilog=EPILOG, short_help="List past and present runs.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, from the newest."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def command(limit: int, as_json: bool) -> int:
    """List runs, the newest first: how each stands or ended, and how long it took to its first token."""
    from firstlight.supervise.runs import home, list_runs

    runs = list_runs()[:limit]
    clock = SystemClock()
    for run in runs if as_json else ():
        click.echo(_json(run.id, str(run.path), run.read_state(), clock.boottime()))
    if as_json:
        return 0
    if not runs:
        click.echo(f"No runs yet in {home() / 'runs'}; `firstlight up` makes one.", err=True)
        return 0
    rows = [row_of(run.id, run.read_state(), clock.boottime(), clock.wall()) for run in runs]
    for line in aligned([Row("RUN", "ENGINE", "MODEL", "STANDING", "PHASE", "FIRST TOKEN", "AGE"), *rows]):
        click.echo(line)
    return 0


def row_of(run: str, state: RunState | Gap, boottime: float, now: float) -> Row:
    """One line of the table."""
    if isinstance(state, Gap):
        return Row(run, _engine_in(run), "", "unknown", "", "", "")
    token = seconds(state.first_token_s) if state.first_token_s is not None else ""
    age = seconds(max(0.0, now - (state.started or state.at)))
    model = printable(state.model, 40)
    return Row(run, state.engine or _engine_in(run), model, standing(state, boottime), state.phase, token, age)


def _engine_in(run: str) -> str:
    """The engine as the run's name tells it: date, time and engine are joined by dashes."""
    return run.split("-")[4]


def standing(state: RunState, boottime: float) -> str:
    """How the run ended, or how it stands now, in one or two words."""
    if state.outcome is not None:
        return state.outcome
    if not fresh(state, boottime):
        return "not watched"  # firstlight was killed; what the server does now is not known
    return "serving" if state.serving else state.motion


def aligned(rows: Sequence[Row]) -> list[str]:
    """Rows as lines with columns of even width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _json(run: str, folder: str, state: RunState | Gap, boottime: float) -> str:
    import msgspec

    known: dict[str, object] = {"run": run, "folder": folder}
    if isinstance(state, Gap):
        known["gap"] = state
    else:
        known |= {"standing": standing(state, boottime), **msgspec.to_builtins(state), "run": run}
    return msgspec.json.encode(known).decode()
