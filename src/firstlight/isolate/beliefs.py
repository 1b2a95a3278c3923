"""What is believed of settings after the trials so far. Pure.

A setting that contains one that stalled is taken to be guilty, too. If it comes up, it is a puzzle: either stalls
show only now and then, so that settings must come up several times to be believed; or it comes up so often that more
options are not always worse, and this setting is not.
"""

from collections.abc import Sequence
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
    came up although a part of them stalls, and not often enough to say that this is how it is."""

    def __init__(self) -> None:
        self._told: dict[Setting, list[Outcome]] = {}
        self.rate = Rate()
        self.puzzles: list[Setting] = []

    def note(self, setting: Setting, outcome: Outcome) -> None:
        self._told.setdefault(setting, []).append(outcome)
        stalled = self._all(Belief.STALLS)
        self.puzzles = self._above(stalled)
        self.rate = self._rate_of((*stalled, *self.puzzles))

    def of(self, setting: Setting, sure: float = 1.0) -> Belief | None:
        """What the trials of a setting come to; None if they do not suffice. To be `sure` twice it must have come up
        twice as often."""
        told = self._told.get(setting, [])
        if Outcome.SAME in told:
            return Belief.STALLS
        if Outcome.OTHER in told or Outcome.NOT_STARTED in told:
            return Belief.UNRESOLVED
        return Belief.COMES_UP if len(told) >= sure * self.rate.needed else None

    def contradictions(self) -> list[tuple[Setting, Setting]]:
        """Settings that stall, each with a larger one that comes up."""
        stalled, up = self._all(Belief.STALLS), self._all(Belief.COMES_UP)
        return [(less, more) for less in stalled for more in up if less < more][:CONTRADICTIONS_MAX]

    def _all(self, belief: Belief) -> list[Setting]:
        return [setting for setting in self._told if self.of(setting) is belief]

    def _above(self, stalled: Sequence[Setting]) -> list[Setting]:
        often = self._rate_of(stalled).outweighed_by
        came_up = [one for one, told in self._told.items() if set(told) == {Outcome.UP} and len(told) < often]
        return [one for one in came_up if any(part < one for part in stalled)]

    def _rate_of(self, settings: Sequence[Setting]) -> Rate:
        return rate_of(outcome for setting in settings for outcome in self._told[setting])
