"""Made-up servers that stall by rules, and what a search makes of them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firstlight.isolate.problem import Level, Outcome, Setting, Space, Switch
from firstlight.isolate.search import Found, search

Oracle = Callable[[Setting], Outcome]

LAUNCHES_MAX = 500


@dataclass(frozen=True)
class Answered:
    """The answer, every setting in the order in which it was tried, and what came of it."""

    found: Found
    asked: tuple[tuple[Setting, Outcome], ...]

    @property
    def after_the_ends(self) -> int:
        """Launches without the two that prove both ends."""
        return len(self.asked) - 2


def space(count: int, needs: dict[int, tuple[int, ...]] | None = None) -> Space:
    """Switches s0, s1, …; `needs` by number."""
    return Space(
        switches=tuple(
            Switch(
                name=f"s{number}",
                kind="option",
                levels=(Level(label=f"--s{number}"), Level(label=f"without --s{number}")),
                needs=tuple(f"s{one}" for one in (needs or {}).get(number, ())),
            )
            for number in range(count)
        )
    )


def names(*numbers: int) -> frozenset[str]:
    return frozenset(f"s{number}" for number in numbers)


def stalls_with(*conflicts: frozenset[str]) -> Oracle:
    """Stalls if all of any one of the sets are on."""
    return lambda setting: Outcome.SAME if any(one <= setting for one in conflicts) else Outcome.UP


def sometimes(oracle: Oracle, rate: float, seed: int) -> Oracle:
    """Of its stalls only some show."""
    pick = random.Random(seed)

    def told(setting: Setting) -> Outcome:
        outcome = oracle(setting)
        return Outcome.UP if outcome is Outcome.SAME and pick.random() >= rate else outcome

    return told


def answer(where: Space, oracle: Oracle, order: Sequence[str] = (), suspects: int = 0) -> Answered:
    """Drive a search to its end."""
    asking = search(where, order or where.names, suspects)
    asked: list[tuple[Setting, Outcome]] = []
    ask = next(asking)
    while True:
        outcome = oracle(ask.setting)
        asked.append((ask.setting, outcome))
        assert len(asked) <= LAUNCHES_MAX, "the search does not end"
        try:
            ask = asking.send(outcome)
        except StopIteration as end:
            return Answered(end.value, tuple(asked))
