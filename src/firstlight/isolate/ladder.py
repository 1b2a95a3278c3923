"""The ladder: the fixed order that a person would use, as a table of outcomes. Each rung keeps what those above it
changed."""

from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core import redact
from firstlight.core.record import Record
from firstlight.core.words import printable, seconds
from firstlight.isolate.problem import Outcome, Setting
from firstlight.isolate.shrink import DUMMY, EAGER, rank_switches, steps_for
from firstlight.isolate.sitting import Commands, Sitting

SPECULATION = "speculation"


class Rung(NamedTuple):
    """What is switched off, and what is added. `missing` says why there is no such rung for this command."""

    name: str
    off: Setting = frozenset()
    scene: str = ""
    missing: str = ""


class Row(Record):
    """One rung and what became of it; no outcome if it was left out, for the reason in `what`."""

    rung: str
    what: str
    outcome: Outcome | None = None
    trial: int = 0
    seconds: float = 0.0


class Ladder(Record, tag_field="type", tag="ladder"):
    """The whole table."""

    rows: tuple[Row, ...]
    headline: str
    command: tuple[str, ...] = ()
    notebook: str = ""

    @property
    def exit_code(self) -> int:
        """0 if a rung came up, 1 if all stall, 3 if it fails otherwise."""
        outcomes = {row.outcome for row in self.rows} - {None}
        if Outcome.UP in outcomes:
            return 0
        return 1 if outcomes == {Outcome.SAME} else 3


def rungs(commands: Commands, full: Setting) -> Iterator[Rung]:
    """The rungs of a command, from the top."""
    command, _ = commands.launch(full, {}, (), 0)
    steps = steps_for(command)
    ranks = rank_switches(commands, full)
    yield Rung("as given")
    speculates = SPECULATION in full
    yield Rung("without speculation", frozenset({SPECULATION} & full), missing="" if speculates else "it has none")
    yield Rung(EAGER, scene=EAGER, missing="" if EAGER in steps else f"not known for {command.engine}")
    yield Rung("one rank", ranks, missing="" if ranks else "it has no more than one, or none that are known")
    yield Rung(
        DUMMY, scene=DUMMY, missing="" if DUMMY in steps else f"not known for {command.engine}, or given already"
    )


def climb_down(sitting: Sitting, commands: Commands) -> Ladder:
    """Try every rung."""
    full = sitting.space.sensible(sitting.space.names)
    off: Setting = frozenset()
    scene: tuple[str, ...] = ()
    rows = []
    for rung in rungs(commands, full):
        if rung.missing:
            rows.append(Row(rung=rung.name, what=rung.missing))
            continue
        off, scene = off | rung.off, (*scene, *filter(None, [rung.scene]))
        trial = sitting.ask(sitting.space.sensible(full - off), f"rung: {rung.name}", scene=scene)
        rows.append(
            Row(rung=rung.name, what=trial.what, outcome=trial.outcome, trial=trial.number, seconds=trial.seconds)
        )
    command, _ = commands.launch(full, {}, (), 0)
    return Ladder(
        rows=tuple(rows),
        headline=headline_of(rows),
        command=redact.command(command.argv),
        notebook=str(sitting.notebook.path),
    )


def headline_of(rows: list[Row]) -> str:
    """Where on the ladder it comes up."""
    first = next((row for row in rows if row.outcome is Outcome.UP), None)
    if first is None:
        return "no rung comes up"
    return "it comes up as given" if first is rows[0] else f"it comes up from the rung {first.rung!r} on"


def lines(ladder: Ladder) -> Iterator[str]:
    """The table as people read it."""
    yield ladder.headline
    yield ""
    for row in ladder.rows:
        told = f"{row.outcome:<14} {seconds(row.seconds):>9}" if row.outcome else f"{'left out':<24}"
        yield printable(f"{row.rung:<24} {told}  {row.what}")
    if ladder.notebook:
        yield ""
        yield f"Every trial is noted in {ladder.notebook}"
