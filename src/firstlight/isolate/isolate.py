"""From a command that stalls to the options that are to blame: the search driven by real launches."""

import msgspec

from firstlight.errors import UsageError
from firstlight.isolate.explain import Answer, explained
from firstlight.isolate.found import End, Found
from firstlight.isolate.order import order_of
from firstlight.isolate.problem import Outcome, Setting
from firstlight.isolate.search import TRIES_OF_THE_STALL, Search, search
from firstlight.isolate.shrink import SLOW_S, smaller
from firstlight.isolate.sitting import Commands, DeadlineTooShort, Sitting
from firstlight.isolate.trial import Trial, fails_like


def isolate(sitting: Sitting, commands: Commands) -> Answer:
    """Find what is to blame.

    Raises:
        UsageError: there is nothing that could be switched off.
        Interrupted, BudgetPassed, DeadlineTooShort, Poisoned: it did not come to an end; what was tried is noted.
    """
    space = sitting.space
    full = space.sensible(space.names)
    if not full:
        raise UsageError(
            "this command has no options or variables that could be switched off",
            "Give --options a table of its options; see `firstlight isolate --help`.",
        )
    for one in sitting.notebook.unfinished:
        sitting.note(f"trial {one.number} ({one.why}) was cut off in an earlier sitting, and is launched again")
    first = _first_trials(sitting, full)
    known = sitting.known
    order = order_of(space, known.findings, known.phase) if known else order_of(space)
    for name, why in order.why:
        sitting.say(f"suspect: {name} ({why})")
    slow = first[-1].outcome is Outcome.SAME and first[-1].seconds >= SLOW_S
    dropped = _shrunk(sitting, commands, full) if slow and not order.suspects else frozenset()
    names = tuple(name for name in order.names if name not in dropped)
    found = _driven(sitting, search(space, names, sum(name in names for name in order.names[: order.suspects])))
    found = _with_dropped(found, dropped)
    if first[-1].outcome is Outcome.OTHER:
        found = _of_failure(sitting, found, first[-1])
    doubts = _confirmed(sitting, found, full, dropped)
    weakened = _weakened(sitting, found, full)
    answer = explained(
        found,
        space,
        sitting.trials,
        weakened=weakened,
        findings=known.findings if known else first[-1].findings,
        stall=known.headline if known else "",
        doubts=doubts,
    )
    return _with_commands(answer, sitting, commands, found, weakened)


def _first_trials(sitting: Sitting, full: Setting) -> list[Trial]:
    """The command as given, until it shows its stall; what `why` says of that orders the search."""
    trials: list[Trial] = []
    while len(trials) < TRIES_OF_THE_STALL:
        trials.append(sitting.ask(full, "as given: it must stall"))
        if trials[-1].outcome is not Outcome.UP:
            break
    if trials[-1].late:
        raise DeadlineTooShort(
            f"the deadline of a trial passed before the command came up or stalled: {trials[-1].what}",
            "Give a --deadline that is longer than one whole launch.",
        )
    sitting.hand_out_again(trials)
    return trials


def _of_failure(sitting: Sitting, found: Found, first: Trial) -> Found:
    """A start that fails instead of stalling is not searched; whether any option has to do with it is worth a
    launch."""
    cleared = sitting.ask(sitting.space.sensible(()), "everything switched off: does it fail the same?")
    if not fails_like(first, cleared):
        return found
    return msgspec.structs.replace(found, end=End.NOT_AN_OPTION, harmless=sitting.space.names)


def _driven(sitting: Sitting, questions: Search) -> Found:
    """Answer the questions of a search until it has found."""
    try:
        asked = next(questions)
        while True:
            asked = questions.send(sitting.ask(asked.setting, asked.why).outcome)
    except StopIteration as end:
        found: Found = end.value
        return found


def _shrunk(sitting: Sitting, commands: Commands, full: Setting) -> Setting:
    dropped = smaller(sitting, commands, full)
    if dropped or sitting.scene:
        less = ", ".join([*sitting.scene, *sorted(dropped)])
        sitting.note(f"the same stall shows with less, so most trials were made with less: {less}")
    return dropped


def _with_dropped(found: Found, dropped: Setting) -> Found:
    untried = tuple(name for name in found.untried if name not in dropped)
    return msgspec.structs.replace(found, untried=untried, harmless=(*found.harmless, *sorted(dropped)))


def _confirmed(sitting: Sitting, found: Found, full: Setting, dropped: Setting) -> list[str]:
    """What was found with less around it must hold for the command as given."""
    smaller_scene = bool(sitting.scene or dropped)
    sitting.scene = ()
    if not (smaller_scene and found.cure):
        return []
    outcome = _decided(sitting, found, full - set(found.cure), {}, "the cure, with all of the command as given")
    return (
        []
        if outcome is Outcome.UP
        else ["the cure was found with less around it; the whole command it does not cure"]
    )


def _weakened(sitting: Sitting, found: Found, full: Setting) -> dict[str, int]:
    """Of each switch of the cure, the level nearest to the given one that still brings it up, unless that is off."""
    enough: dict[str, int] = {}
    for name in found.cure:
        switch = sitting.space.switch(name)
        stalls, comes_up = 0, len(switch.levels) - 1
        while comes_up - stalls > 1:
            middle = (stalls + comes_up) // 2
            levels = {**enough, name: middle}
            setting = full - {one for one in found.cure if one not in levels}
            outcome = _decided(sitting, found, setting, levels, f"{switch.levels[middle].label} may be enough")
            stalls, comes_up = (stalls, middle) if outcome is Outcome.UP else (middle, comes_up)
        if comes_up < len(switch.levels) - 1:
            enough[name] = comes_up
    return enough


def _decided(sitting: Sitting, found: Found, setting: Setting, levels: dict[str, int], why: str) -> Outcome:
    """Asked as often as the odds want it."""
    outcome = Outcome.UP
    for _ in range(max(1, found.rate.needed)):
        outcome = sitting.ask(sitting.space.sensible(setting), why, levels).outcome
        if outcome is not Outcome.UP:
            break
    return outcome


def _with_commands(
    answer: Answer, sitting: Sitting, commands: Commands, found: Found, weakened: dict[str, int]
) -> Answer:
    """The answer with commands that can be typed, secrets replaced."""
    space = sitting.space
    full = space.sensible(space.names)
    ends_well = found.end in {End.FOUND, End.NO_BASELINE}
    cured = full - {name for name in found.cure if name not in weakened}
    return msgspec.structs.replace(
        answer,
        command=commands.typed(full, {}),
        reproduce=commands.typed(space.sensible(found.culprits), {}) if ends_well else (),
        cured=commands.typed(space.sensible(cured), weakened) if found.cure else (),
        notes=tuple(sitting.notes) + ((sitting.notebook.lost,) if sitting.notebook.lost else ()),
        notebook=str(sitting.notebook.path),
    )
