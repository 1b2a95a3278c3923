"""How sure a count of trials makes one, where a stall shows only in some of them. Pure.

A stall that was seen is certain. That a setting does not stall is only likely: with a stall that shows in one run of
three, coming up once says little. So it must come up as often as makes missing the stall unlikely.
"""

import math
from collections.abc import Iterable

from firstlight.core.record import Record
from firstlight.isolate.problem import Outcome

MISSED_MAX = 0.02
"""The chance of calling a setting innocent that is not, which is accepted for each."""
CHANCE_MAX = 0.002
"""A run of luck less likely than this is no luck."""
REPEATS_MAX = 24


class Rate(Record):
    """How often settings that can stall did: `stalls` of `trials`. If none came up it counts as always."""

    stalls: int = 0
    trials: int = 0

    @property
    def flaky(self) -> bool:
        return self.stalls < self.trials

    @property
    def value(self) -> float:
        """The chance that a guilty setting stalls, by what was seen; before that any was as likely as any other."""
        return (self.stalls + 1) / (self.trials + 2) if self.flaky else 1.0

    @property
    def needed(self) -> int:
        """How often a setting must come up before it is believed not to stall."""
        if not self.flaky:
            return 1
        return next((times for times in range(1, REPEATS_MAX) if self.missed(times) <= MISSED_MAX), REPEATS_MAX)

    @property
    def outweighed_by(self) -> int:
        """How often a setting must come up, a part of which stalls, before that is no chance but how it is. The fewer
        stalls were seen, the less is known of how often they show."""
        if not self.stalls:
            return REPEATS_MAX
        return min(REPEATS_MAX, math.ceil(math.log(CHANCE_MAX) / math.log1p(-self.stalls / (self.trials + 1))))

    def missed(self, times: int) -> float:
        """The chance that a guilty setting would have come up `times` times: that the true rate is not known makes it
        larger than it would be at the likeliest (Pólya's urn)."""
        if not self.flaky:
            return 0.0
        came_up = self.trials - self.stalls + 1
        return math.prod((came_up + one) / (self.trials + 2 + one) for one in range(times))


def rate_of(outcomes: Iterable[Outcome]) -> Rate:
    """The rate that trials of guilty settings show; those that failed otherwise tell nothing."""
    telling = [one for one in outcomes if one in {Outcome.SAME, Outcome.UP}]
    return Rate(stalls=telling.count(Outcome.SAME), trials=len(telling))
