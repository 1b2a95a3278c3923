"""What is searched: the switches of a command, which settings make sense, and what a trial can come to. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

from firstlight.core.record import Record

Setting: TypeAlias = frozenset[str]
"""The switches that are left as they were given; all others are off."""


class Outcome(StrEnum):
    """What became of one trial."""

    SAME = "same stall"
    """It stalled, and the stall has the signature of the one in question."""
    OTHER = "other failure"
    """It stalled elsewhere, or ended. Noted, never followed."""
    UP = "came up"
    """Its first token was verified."""
    NOT_STARTED = "did not start"
    """There is no such combination, or nothing could be launched."""


class Level(Record):
    """One value of a switch: its `words` on the command line, and its `variables` (`NAME=value`) in the environment;
    none if that is how it is off. Both may hold secrets. `label` is how people call it, and holds none: "--tp 4",
    "without --enforce-eager"."""

    label: str
    words: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class Switch(Record):
    """An option, a variable of the environment, a group of them that only make sense together, or a feature that the
    server has without being asked: `kind` is "option", "variable", "group" or "feature".

    `levels` go from the value that was given (first) over weaker ones to off (last). `needs` names switches without
    which it means nothing: where one of them is off, it is off as well. `conflicts` names those that it is known not
    to go well with, which makes all of them suspects. `effects`: what flipping it off changes besides ("numerics",
    "capacity", "features", "evidence"). `prior` is how often the table's author would suspect it, 0 to 9; `suspects`
    are the ids of causes, and `phases` the phases, that do. `fixed` says why it cannot be flipped.
    """

    name: str
    kind: str
    levels: tuple[Level, ...]
    needs: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    prior: int = 1
    suspects: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    fixed: str = ""

    @property
    def given(self) -> Level:
        return self.levels[0]

    @property
    def off(self) -> Level:
        return self.levels[-1]


class Space(Record):
    """All switches of a command, in the order in which they were given."""

    switches: tuple[Switch, ...]

    def switch(self, name: str) -> Switch:
        """The switch of that name. Raises KeyError."""
        for one in self.switches:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that can be flipped."""
        return tuple(one.name for one in self.switches if not one.fixed)

    def sensible(self, setting: Iterable[str]) -> Setting:
        """The largest part of a setting in which nothing misses what it needs. Switches that cannot be flipped are
        taken to be there."""
        kept = set(setting)
        there = {one.name for one in self.switches if one.fixed}
        needs = {one.name: set(one.needs) - there for one in self.switches if one.name in kept and one.needs}
        while lost := {name for name, needed in needs.items() if name in kept and needed - kept}:
            kept -= lost
        return frozenset(kept)

    def closure(self, setting: Iterable[str]) -> Setting:
        """A setting with all that its switches need, as far as that can be flipped."""
        needs = {one.name: one.needs for one in self.switches if not one.fixed}
        found: set[str] = set()
        todo = list(setting)
        while todo:
            name = todo.pop()
            if name in needs and name not in found:
                found.add(name)
                todo += needs[name]
        return frozenset(found)
