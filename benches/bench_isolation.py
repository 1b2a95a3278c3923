"""How many launches it takes to find what makes a server stall: this search, ddmin, and taking options out one by
one, on the same made-up servers with 16 switches.

The two launches that prove both ends are not counted. The search also proves its result minimal, with the proof that
several are needed asked for twice, and finds a change of the command that cures it; the two others only minimise.
"""

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, pstdev
from typing import TypeAlias

from firstlight.isolate.problem import Level, Outcome, Setting, Space, Switch
from firstlight.isolate.search import search

COUNT = 16
TRIALS = 300
GOOD_SUSPECTS = 3
NAMES = tuple(f"s{number:02}" for number in range(COUNT))

Oracle: TypeAlias = Callable[[Setting], Outcome]
Guilty: TypeAlias = tuple[Setting, ...]
Way: TypeAlias = Callable[["Case", Oracle], "Result"]


@dataclass(frozen=True)
class Case:
    """A server: the sets that stall it, and an order of suspicion of which the first `suspects` have evidence."""

    guilty: Guilty
    order: tuple[str, ...]
    suspects: int
    oracle: Oracle
    needs: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Result:
    """What was found, and in how many launches."""

    culprits: Setting
    launches: int


def space(needs: dict[str, tuple[str, ...]]) -> Space:
    levels = (Level(label="on"), Level(label="off"))
    return Space(
        switches=tuple(Switch(name=name, kind="option", levels=levels, needs=needs.get(name, ())) for name in NAMES)
    )


# The ways to search


def ours(case: Case, oracle: Oracle) -> Result:
    asking = search(space(case.needs), case.order, case.suspects)
    launches = 0
    ask = next(asking)
    while True:
        launches += 1
        try:
            ask = asking.send(oracle(ask.setting))
        except StopIteration as end:
            return Result(frozenset(end.value.culprits), launches - 2)


def cached(oracle: Oracle, launches: list[Setting]) -> Callable[[Iterable[str]], bool]:
    known: dict[Setting, bool] = {frozenset(NAMES): True, frozenset(): False}

    def stalls(names: Iterable[str]) -> bool:
        setting = frozenset(names)
        if setting not in known:
            launches.append(setting)
            known[setting] = oracle(setting) is Outcome.SAME
        return known[setting]

    return stalls


def ddmin(case: Case, oracle: Oracle) -> Result:
    """Zeller and Hildebrandt, TSE 2002, with a cache, on the order of suspicion."""
    launches: list[Setting] = []
    stalls = cached(oracle, launches)
    rest: Sequence[str] = case.order
    parts = 2
    while len(rest) > 1:
        chunks = list(cut(rest, parts))
        complements = [[name for name in rest if name not in chunk] for chunk in chunks]
        if smaller := next((chunk for chunk in chunks if stalls(chunk)), None):
            rest, parts = smaller, 2
        elif smaller := next((one for one in complements if stalls(one)), None):
            rest, parts = smaller, max(parts - 1, 2)
        elif parts < len(rest):
            parts = min(len(rest), 2 * parts)
        else:
            break
    return Result(frozenset(rest), len(launches))


def cut(names: Sequence[str], parts: int) -> Iterator[list[str]]:
    edges = [round(index * len(names) / parts) for index in range(parts + 1)]
    return (list(names[begin:end]) for begin, end in pairwise(edges))


def one_by_one(case: Case, oracle: Oracle) -> Result:
    """What a person does: take the most suspicious option out, see whether it still stalls, put it back if not."""
    launches: list[Setting] = []
    stalls = cached(oracle, launches)
    rest = list(case.order)
    for name in case.order:
        fewer = [one for one in rest if one != name]
        if stalls(fewer):
            rest = fewer
    return Result(frozenset(rest), len(launches))


WAYS: dict[str, Way] = {"firstlight": ours, "ddmin": ddmin, "one by one": one_by_one}


# The servers


def stalls_with(guilty: Guilty) -> Oracle:
    return lambda setting: Outcome.SAME if any(one <= setting for one in guilty) else Outcome.UP


def order(pick: random.Random, guilty: Guilty, place: int) -> tuple[str, ...]:
    """The culprits from `place` on, or anywhere if that is negative."""
    culprits = sorted(frozenset().union(*guilty))
    others = [name for name in NAMES if name not in culprits]
    pick.shuffle(others)
    if place < 0:
        others += culprits
        pick.shuffle(others)
        return tuple(others)
    return (*others[:place], *culprits, *others[place:])


def one(pick: random.Random, sizes: Sequence[int], *, good: bool = False) -> Case:
    guilty = tuple(frozenset(pick.sample(NAMES, size)) for size in sizes)
    suspicion = order(pick, guilty, pick.choice([0, 0, 0, 1, 2]) if good else -1)
    return Case(guilty, suspicion, GOOD_SUSPECTS if good else 0, stalls_with(guilty), {})


def wrong_suspects(pick: random.Random) -> Case:
    """Evidence names three switches that have nothing to do with it."""
    guilty = (frozenset(pick.sample(NAMES, 1)),)
    return Case(guilty, order(pick, guilty, pick.randrange(3, COUNT)), GOOD_SUSPECTS, stalls_with(guilty), {})


def needing(pick: random.Random) -> Case:
    """One culprit that needs another switch: the server does not start with it alone."""
    culprit, needed = pick.sample(NAMES, 2)
    guilty = (frozenset({culprit, needed}),)

    def oracle(setting: Setting) -> Outcome:
        if culprit in setting and needed not in setting:
            return Outcome.NOT_STARTED
        return stalls_with(guilty)(setting)

    return Case(guilty, order(pick, guilty, -1), 0, oracle, {culprit: (needed,)})


def only_together(pick: random.Random) -> Case:
    """Two harmless switches of which nobody knows that the server only starts with both or none."""
    culprit, *pair = pick.sample(NAMES, 3)
    guilty = (frozenset({culprit}),)
    torn = frozenset(pair)

    def oracle(setting: Setting) -> Outcome:
        return Outcome.NOT_STARTED if 0 < len(torn & setting) < 2 else stalls_with(guilty)(setting)

    return Case(guilty, order(pick, guilty, -1), 0, oracle, {})


def not_monotone(pick: random.Random) -> Case:
    """A pair that stalls unless a third switch is on without a fourth."""
    first, second, third, fourth = pick.sample(NAMES, 4)
    guilty = (frozenset({first, second}),)

    def oracle(setting: Setting) -> Outcome:
        masked = third in setting and fourth not in setting
        return Outcome.UP if masked else stalls_with(guilty)(setting)

    return Case(guilty, order(pick, guilty, -1), 0, oracle, {})


def flaky(pick: random.Random, rate: float) -> Case:
    case = one(pick, [1])

    def oracle(setting: Setting) -> Outcome:
        outcome = case.oracle(setting)
        return Outcome.UP if outcome is Outcome.SAME and pick.random() >= rate else outcome

    return Case(case.guilty, case.order, 0, oracle, {})


SERVERS: dict[str, Callable[[random.Random], Case]] = {
    "one culprit, good suspects": lambda pick: one(pick, [1], good=True),
    "one culprit, no suspects": lambda pick: one(pick, [1]),
    "one culprit, wrong suspects": wrong_suspects,
    "a pair, good suspects": lambda pick: one(pick, [2], good=True),
    "a pair, no suspects": lambda pick: one(pick, [2]),
    "a triple, no suspects": lambda pick: one(pick, [3]),
    "two causes, each one switch": lambda pick: one(pick, [1, 1]),
    "one that needs another": needing,
    "two that only start together": only_together,
    "not monotone": not_monotone,
    "shows in half of the runs": lambda pick: flaky(pick, 0.5),
    "shows in one run of three": lambda pick: flaky(pick, 1 / 3),
}


def right(case: Case, culprits: Setting) -> bool:
    """Found exactly a set that stalls, nothing less and nothing more."""
    return culprits in case.guilty


def results(make: Callable[[random.Random], Case], way: Way) -> Generator[tuple[int, bool], None, None]:
    for seed in range(TRIALS):
        case = make(random.Random(seed))
        result = way(case, case.oracle)
        yield result.launches, right(case, result.culprits)


def main() -> None:
    print(f"launches after both ends, mean ± spread over {TRIALS} servers, and how often the answer is right")
    print(f"{'':32}" + "".join(f"{name:>24}" for name in WAYS))
    for kind, make in SERVERS.items():
        cells = []
        for way in WAYS.values():
            told = list(results(make, way))
            launches = [count for count, _ in told]
            share = mean(answer for _, answer in told)
            cells.append(f"{mean(launches):6.1f} ± {pstdev(launches):4.1f} {share:6.0%}")
        print(f"{kind:32}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
