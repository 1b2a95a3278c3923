"""Made-up servers that stall by rules, and what a search makes of them."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from firstlight.isolate.found import Found
from firstlight.isolate.problem import Level, Outcome, Setting, Space, Switch
from firstlight.isolate.search import search

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


@dataclass(frozen=True)
class MadeUp:
    """A server, and where the search begins."""

    space: Space
    oracle: Oracle
    order: tuple[str, ...]
    suspects: int

    def answer(self) -> Answered:
        return answer(self.space, self.oracle, self.order, self.suspects)


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


def fails_without(oracle: Oracle, *together: frozenset[str]) -> Oracle:
    """Refuses to start if of some switches that only go together a part is off."""

    def told(setting: Setting) -> Outcome:
        torn = any(setting & one and not one <= setting for one in together)
        return Outcome.NOT_STARTED if torn else oracle(setting)

    return told


def sometimes(oracle: Oracle, rate: float, seed: int) -> Oracle:
    """Of its stalls only some show."""
    pick = random.Random(seed)

    def told(setting: Setting) -> Outcome:
        outcome = oracle(setting)
        return Outcome.UP if outcome is Outcome.SAME and pick.random() >= rate else outcome

    return told


def shuffled(where: Space, pick: random.Random) -> tuple[str, ...]:
    order = list(where.names)
    pick.shuffle(order)
    return tuple(order)


def made_up(seed: int, count: int, causes: int, size: int, *, needy: bool = False) -> MadeUp:
    """A server that stalls by up to `causes` sets of up to `size` switches. `needy`: some switches need others."""
    pick = random.Random(seed)
    needs = {one: (pick.randrange(one),) for one in range(1, count) if needy and pick.random() < 0.3}
    where = space(count, needs)
    conflicts = [
        where.closure(names(*pick.sample(range(count), pick.randint(1, size))))
        for _ in range(pick.randint(1, causes))
    ]
    return MadeUp(where, stalls_with(*conflicts), shuffled(where, pick), pick.randrange(count // 2))


def anything_at_all(seed: int, count: int) -> MadeUp:
    """Neither monotone nor resolved: each setting has an outcome of its own; only that it stalls as given is sure."""
    pick = random.Random(seed)
    weights = [pick.random() for _ in Outcome]
    outcomes: dict[Setting, Outcome] = {names(*range(count)): Outcome.SAME}
    if pick.random() < 0.8:
        outcomes[frozenset()] = Outcome.UP

    def oracle(setting: Setting) -> Outcome:
        return outcomes.setdefault(setting, pick.choices(list(Outcome), weights)[0])

    return MadeUp(space(count), oracle, shuffled(space(count), pick), pick.randrange(count))


def answer(where: Space, oracle: Oracle, order: Iterable[str] = (), suspects: int = 0) -> Answered:
    """Drive a search to its end."""
    asking = search(where, tuple(order) or where.names, suspects)
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


def suspicion(culprits: Sequence[str], place: int, count: int) -> tuple[str, ...]:
    """An order in which a good list of suspects has the culprits from `place` on."""
    others = [f"s{number}" for number in range(count) if f"s{number}" not in culprits]
    return (*others[:place], *culprits, *others[place:])
