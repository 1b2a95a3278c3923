"""What an isolation came to, as a record and in words. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from firstlight.core.record import Record
from firstlight.core.report import Finding
from firstlight.core.words import counted, printable, seconds
from firstlight.isolate.found import End, Found
from firstlight.isolate.notebook import Begun
from firstlight.isolate.odds import Rate
from firstlight.isolate.problem import Outcome, Setting, Space, Switch
from firstlight.isolate.shell import typed_line
from firstlight.isolate.trial import Trial

ESTABLISHED = "established"
SUPPORTED = "supported"
ROW_CHARS = 8000
"""A command is of use only whole; a name or a log line is cut long before."""
EXIT_CODES = {End.FOUND: 0, End.NO_BASELINE: 0, End.NO_STALL: 0, End.NOT_AN_OPTION: 1, End.OTHER_FAILURE: 3}


class Change(Record):
    """One change of the command as given. `costs` are what changes besides: numerics, capacity, evidence …"""

    name: str
    given: str
    instead: str
    costs: tuple[str, ...] = ()


class Answer(Record, tag_field="type", tag="answer"):
    """What is to blame, what helps, and what that rests on.

    `culprits` are what people call the options, `proofs` the trials that show it. `cure` is the smallest change that
    was shown to bring it up. `harmless` were all off while it still stalled; `untried` never were, each with the
    reason. `facts` are what `why` made of the stall itself. `reproduce` and `cured` are commands, redacted.
    `seconds` counts the launches alone. `rate` is how often it stalls where it can, `odds` how likely it is that
    these are the culprits, `missed` that what is said to come up would not always.
    """

    end: End
    headline: str
    culprits: tuple[str, ...] = ()
    minimal: bool = False
    cure: tuple[Change, ...] = ()
    proofs: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    untried: tuple[tuple[str, str], ...] = ()
    doubts: tuple[str, ...] = ()
    facts: tuple[Finding, ...] = ()
    stall: str = ""
    rate: Rate = Rate()
    odds: float = 1.0
    missed: float = 0.0
    launches: int = 0
    seconds: float = 0.0
    command: tuple[str, ...] = ()
    reproduce: tuple[str, ...] = ()
    cured: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    notebook: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.end]


class BrokenOff(Record, tag_field="type", tag="broken_off"):
    """It did not come to an answer: why, what is known so far, and where it goes on from."""

    what: str
    way_out: str
    so_far: str
    notebook: str
    exit_code: int


def explained(
    found: Found,
    space: Space,
    trials: Sequence[Trial],
    *,
    weakened: Mapping[str, int],
    findings: Iterable[Finding] = (),
    stall: str = "",
    doubts: Iterable[str] = (),
    scene: tuple[str, ...] = (),
) -> Answer:
    """The answer of a search. `weakened` tells of a cure's switches which level was enough."""
    told = tuple(one for one in findings if one.verdict in {ESTABLISHED, SUPPORTED})
    facts = tuple(one for one in told if one.verdict == ESTABLISHED) or told[:2]
    cure = tuple(_change(space.switch(name), weakened.get(name)) for name in found.cure)
    return Answer(
        end=found.end,
        headline=headline_of(found, space, cure, facts, trials),
        culprits=tuple(space.switch(name).given.label for name in found.culprits),
        minimal=found.minimal,
        cure=cure,
        proofs=tuple(_proofs(found, space, trials, scene)),
        harmless=tuple(space.switch(name).given.label for name in found.harmless),
        untried=tuple(_untried(space.switch(name)) for name in found.untried),
        doubts=(*found.doubts, *doubts),
        facts=facts,
        stall=stall,
        rate=found.rate,
        odds=round(found.odds, 4),
        missed=found.rate.missed(found.rate.needed),
        launches=len(trials),
        seconds=round(sum(trial.seconds for trial in trials), 1),
        trials=tuple(trials),
    )


def headline_of(
    found: Found, space: Space, cure: Sequence[Change], facts: Sequence[Finding], trials: Sequence[Trial]
) -> str:
    """The answer in one sentence."""
    if found.end is End.NO_STALL:
        return _no_stall(len(trials))
    if found.end is End.OTHER_FAILURE:
        return _other_failure(trials)
    if found.end is End.NOT_AN_OPTION:
        if trials and trials[0].outcome is Outcome.OTHER:
            return f"it is not an option: with everything switched off it fails the same: {trials[0].what}"
        fact = f": {facts[0].title}" if facts else ""
        return f"it is not an option: with everything switched off it stalls the same{fact}"
    blamed = _listed([space.switch(name).given.label for name in found.culprits])
    together = " together stall it" if len(found.culprits) > 1 else " stalls it"
    helps = f"; it comes up {_listed([_words(one) for one in cure])}" if cure else ""
    return f"{blamed}{together}{helps}"


def _no_stall(launches: int) -> str:
    came_up = f"there is nothing to isolate: the command came up in {counted(launches, 'launch', 'launches')}"
    return (
        f"{came_up}; a stall that shows in one of three would have shown with odds of {1 - (2 / 3) ** launches:.0%}"
    )


def _other_failure(trials: Sequence[Trial]) -> str:
    failed = [trial for trial in trials if trial.outcome is not Outcome.UP]
    how = f": {failed[0].what}" if failed else ""
    last = trials[-1] if trials and not trials[-1].setting else None
    cleared = ""
    if last is not None and last.outcome is Outcome.UP:
        cleared = "; with everything switched off it comes up"
    elif last is not None and last is not failed[0]:
        cleared = f"; with everything switched off it fails in another way: {last.what}"
    return f"the command as given does not stall, it fails{how}{cleared}"


def lines(answer: Answer) -> Iterator[str]:
    """The answer as people read it."""
    yield printable(answer.headline)
    yield ""
    yield from _section("Shown by", answer.proofs)
    yield from _section("What helps", [_cure_line(one) for one in answer.cure])
    yield from _section("What is behind it", [f"{one.title} ({one.verdict})" for one in answer.facts])
    if answer.rate.flaky and answer.rate.trials:
        rate = answer.rate
        yield from _section("It shows only now and then", [_odds(rate, answer.odds, answer.missed)])
    yield from _section("Shown not to matter", [", ".join(answer.harmless)] if answer.harmless else [])
    yield from _section("Not tried", [f"{name}: {why}" for name, why in answer.untried])
    yield from _section("What speaks against it, or is open", answer.doubts)
    yield from _section("To be known", answer.notes)
    yield from _section("The least that still stalls", _command(answer.reproduce))
    yield from _section("What comes up", _command(answer.cured))
    cold = sum(trial.caches == "cold" for trial in answer.trials)
    caches = f", {cold} of them with empty caches" if cold else ", with your caches as the one before left them"
    yield f"{counted(answer.launches, 'launch', 'launches')}, {seconds(answer.seconds)}{caches}."
    if answer.notebook:
        yield f"Every trial is noted in {answer.notebook}"


def setting_words(one: Trial | Begun, everything: Iterable[str]) -> str:
    """The setting as what was switched off, or as what was left, whichever is shorter."""
    on, names = set(one.setting), list(everything)
    off = [name for name in names if name not in on]
    weaker = "".join(f", {name} weakened" for name, _ in one.levels)
    smaller = f", {', '.join(one.scene)}" if one.scene else ""
    if not off:
        said = "as given"
    elif not on:
        said = "everything switched off"
    elif len(off) <= len(on):
        said = f"without {', '.join(off)}"
    else:
        said = f"only {', '.join(name for name in names if name in on)}"
    return f"{said}{weaker}{smaller}"


def _proofs(found: Found, space: Space, trials: Sequence[Trial], scene: tuple[str, ...]) -> Iterator[str]:
    """The trials that the answer rests on."""
    full = space.sensible(space.names)
    yield from _proof("as given", full, trials)
    yield from _proof("everything off", space.sensible(()), trials)
    if not found.culprits:
        return
    yield from _proof(f"{_listed(found.culprits)} alone", space.sensible(found.culprits), trials)
    for name in found.culprits if len(found.culprits) > 1 else ():
        fewer = [one for one in found.culprits if one != name]
        yield from _proof(f"{_listed(fewer)} without {name}", space.sensible(fewer), trials)
    if found.cure:
        yield from _proof(f"as given without {_listed(found.cure)}", space.sensible(full - set(found.cure)), trials)


def _proof(words: str, setting: Setting, trials: Sequence[Trial]) -> Iterator[str]:
    mine = [trial for trial in trials if frozenset(trial.setting) == setting and not trial.levels]
    if not mine:
        return
    times = {outcome: sum(trial.outcome is outcome for trial in mine) for outcome in Outcome}
    told = ", ".join(f"{outcome}{f' {n} times' if n > 1 else ''}" for outcome, n in times.items() if n)
    numbers = ", ".join(str(trial.number) for trial in mine)
    yield f"{words}: {told} (trial {numbers})"


def _change(switch: Switch, level: int | None) -> Change:
    instead = switch.levels[level] if level is not None else switch.off
    return Change(name=switch.name, given=switch.given.label, instead=instead.label, costs=tuple(switch.effects))


def _words(change: Change) -> str:
    return change.instead if change.instead.startswith("without ") else f"with {change.instead}"


def _cure_line(change: Change) -> str:
    costs = f" (changes {_listed(change.costs)})" if change.costs else ""
    return f"{_words(change)}{costs}"


def _untried(switch: Switch) -> tuple[str, str]:
    return switch.given.label, switch.fixed or "it was given no turn"


def _odds(rate: Rate, odds: float, missed: float) -> str:
    return (
        f"{rate.stalls} of {rate.trials} launches that could stall did; that these and no others are to blame is "
        f"{odds:.1%} likely; what is said to cure it came up {counted(rate.needed, 'time')} at least, which it would "
        f"by chance with odds of {missed:.1%} at most"
    )


def _command(words: Sequence[str]) -> list[str]:
    """One line that can be pasted into a shell."""
    return [typed_line(words)] if words else []


def _section(title: str, rows: Iterable[str]) -> Iterator[str]:
    rows = [printable(row, ROW_CHARS) for row in rows]
    if rows:
        yield f"{title}:"
        yield from (f"  {row}" for row in rows)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
