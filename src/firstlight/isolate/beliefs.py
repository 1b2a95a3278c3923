"""What is believed of settings after the trials so far. Pure.

A setting that contains one that stalled is taken to be guilty, too. If it comes up, it is a puzzle: either stalls
show only now and then, so that settings must come up several times to be believed; or it comes up so often that more
options are not always worse, and this setting is not. Where stalls do show only now and then, a setting that comes up
speaks for all that it contains, too.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from firstlight.isolate.odds import Rate, rate_of
from firstlight.isolate.problem import Outcome, Setting

CONTRADICTIONS_MAX = 3


class Belief(StrEnum):
    """What the trials of one setting come to."""

    STALLS = "stalls"
    COMES_UP = "comes up"
    UNRESOLVED = "unresolved"
    """It failed in another way, or did not start: it speaks neither for nor against."""


class Beliefs:
    """What was told of each setting, and what follows. `rate` is how often settings stall that are guilty; `puzzles`
    came up although a part of them stalls, and not often enough to say that this is how it is. `wavers` if one and
    the same setting did both: stalls do show only now and then, and nothing is a puzzle any more."""

    def __init__(self) -> None:
        self._told: dict[Setting, list[Outcome]] = {}
        self.rate = Rate()
        self.puzzles: list[Setting] = []
        self.wavers = False

    @property
    def told(self) -> Mapping[Setting, Sequence[Outcome]]:
        return self._told

    def note(self, setting: Setting, outcome: Outcome) -> None:
        self._told.setdefault(setting, []).append(outcome)
        self.wavers = self.wavers or {Outcome.SAME, Outcome.UP} <= set(self._told[setting])
        stalled = self._all(Belief.STALLS)
        above = self._above(stalled)
        self.puzzles = [] if self.wavers else above
        self.rate = self._rate_of((*stalled, *above))

    def of(self, setting: Setting, sure: float = 1.0) -> Belief | None:
        """What the trials of a setting come to; None if they do not suffice. While the search only looks where to
        look, it is enough to be half `sure`."""
        told = self._told.get(setting, [])
        if Outcome.SAME in told:
            return Belief.STALLS
        if Outcome.OTHER in told or Outcome.NOT_STARTED in told:
            return Belief.UNRESOLVED
        came_up = len(told) + (self._came_up_with_more(setting) if self.wavers else 0)
        return Belief.COMES_UP if told and came_up >= sure * self.rate.needed else None

    def contradictions(self) -> list[tuple[Setting, Setting]]:
        """Settings that stall, each with a larger one that comes up."""
        stalled, up = self._all(Belief.STALLS), self._all(Belief.COMES_UP)
        return [(less, more) for less in stalled for more in up if less < more][:CONTRADICTIONS_MAX]

    def _all(self, belief: Belief) -> list[Setting]:
        return [setting for setting in self._told if self.of(setting) is belief]

    def _came_up_with_more(self, setting: Setting) -> int:
        """How often settings came up, and never stalled, that contain this one."""
        return sum(len(told) for one, told in self._told.items() if setting < one and set(told) == {Outcome.UP})

    def _above(self, stalled: Sequence[Setting]) -> list[Setting]:
        often = math.inf if self.wavers else self._rate_of(stalled).outweighed_by
        came_up = [one for one, told in self._told.items() if set(told) == {Outcome.UP} and len(told) < often]
        return [one for one in came_up if any(part < one for part in stalled)]

    def _rate_of(self, settings: Sequence[Setting]) -> Rate:
        return rate_of(outcome for setting in settings for outcome in self._told[setting])
