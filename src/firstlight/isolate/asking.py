"""Settings asked for, as often as it takes to believe what becomes of them. Pure."""

from collections.abc import Generator, Iterable, Sequence
from typing import TypeAlias

from firstlight.core.record import Record
from firstlight.isolate.beliefs import Belief, Beliefs
from firstlight.isolate.problem import Outcome, Setting, Space

Deciding: TypeAlias = Generator["Ask", Outcome, Belief]


class Ask(Record):
    """A setting to be tried, and why."""

    setting: Setting
    why: str


class NowAndThen(Exception):
    """The same setting stalled in one launch and came up in another."""


class Asking:
    """What was asked so far, and what is believed of it. While `halving`, a stall that shows only now and then ends
    it by `NowAndThen`."""

    def __init__(self, space: Space) -> None:
        self.beliefs = Beliefs()
        self.halving = True
        self._space = space

    def decide(self, setting: Iterable[str], why: str, sure: float = 1) -> Deciding:
        """Ask until it is known what to believe. Puzzles are cleared up at once: all that follows depends on them."""
        wanted = self._space.sensible(setting)
        while (belief := self.beliefs.of(wanted, sure)) is None:
            yield from self.ask(wanted, why)
            while self.beliefs.puzzles:
                yield from self.ask(self.beliefs.puzzles[0], "a part of it stalls: does it come up by chance?")
        return belief

    def ask(self, setting: Setting, why: str) -> Generator[Ask, Outcome, Outcome]:
        """Ask once."""
        outcome = yield Ask(setting=setting, why=why)
        self.beliefs.note(setting, outcome)
        if self.halving and self.beliefs.wavers:
            raise NowAndThen
        return outcome

    def prove_the_stall(self, full: Setting, tries: int) -> Deciding:
        """A stall that shows only now and then may need several."""
        for _ in range(tries):
            outcome = yield Ask(setting=full, why="as given: it must stall")
            self.beliefs.note(full, outcome)
            if outcome is not Outcome.UP:
                break
        return self.beliefs.of(full) or Belief.COMES_UP


def named(names: Sequence[str]) -> str:
    """Some switches, in words."""
    return " and ".join(names) if names else "nothing"
