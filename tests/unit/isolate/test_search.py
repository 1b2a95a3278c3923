"""The search finds what stalls, says no more than was shown, and asks little."""

import random
from collections import Counter
from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.isolate.oracles import Answered, Oracle, answer, names, sometimes, space, stalls_with

from firstlight.isolate.odds import Rate
from firstlight.isolate.problem import Outcome, Setting
from firstlight.isolate.search import End

COUNT = 16
SETS = st.frozensets(st.integers(0, 9), min_size=1, max_size=4)


def is_minimal(culprits: frozenset[str], oracle: Oracle) -> bool:
    stalls = oracle(culprits) is Outcome.SAME
    return stalls and all(oracle(culprits - {name}) is not Outcome.SAME for name in culprits)


@given(st.lists(SETS, min_size=1, max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=1500, deadline=None)
def test_whatever_stalls_is_found_and_is_minimal(conflicts: list[frozenset[int]], pick: random.Random) -> None:
    oracle = stalls_with(*(names(*one) for one in conflicts))
    order = list(space(10).names)
    pick.shuffle(order)

    told = answer(space(10), oracle, order, suspects=pick.randrange(5)).found

    assert told.end is End.FOUND
    assert told.minimal
    assert told.doubts == () or "more than one cause" in told.doubts[0]
    assert is_minimal(frozenset(told.culprits), oracle)
    assert oracle(names(*range(10)) - frozenset(told.cure)) is Outcome.UP
    assert told.cure
    assert frozenset(told.harmless) == names(*range(10)) - frozenset(told.culprits)


@given(st.lists(SETS, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_only_the_proof_that_several_are_needed_is_asked_for_twice(conflicts: list[frozenset[int]]) -> None:
    told = answer(space(10), stalls_with(*(names(*one) for one in conflicts)))
    times = Counter(setting for setting, _ in told.asked)

    assert max(times.values()) <= 2
    proofs = {frozenset(told.found.culprits) - {name} for name in told.found.culprits}
    assert {setting for setting, count in times.items() if count == 2} <= proofs or len(conflicts) > 1


@given(
    st.frozensets(st.frozensets(st.integers(0, 5)), min_size=1, max_size=20),
    st.frozensets(st.frozensets(st.integers(0, 5)), max_size=20),
)
@settings(max_examples=1500, deadline=None)
def test_any_oracle_at_all_gets_an_answer_that_says_no_more_than_was_shown(
    stalling: frozenset[frozenset[int]], failing: frozenset[frozenset[int]]
) -> None:
    """Neither monotone nor resolved: only what is claimed must be true."""

    def oracle(setting: Setting) -> Outcome:
        numbers = frozenset(int(name[1:]) for name in setting)
        if numbers in stalling or len(numbers) == 6:
            return Outcome.SAME
        return Outcome.OTHER if numbers in failing else Outcome.UP

    told = answer(space(6), oracle).found

    if told.minimal:
        assert is_minimal(frozenset(told.culprits), oracle)
    if told.end in {End.FOUND, End.NO_BASELINE}:
        assert oracle(frozenset(told.culprits)) is Outcome.SAME
    if told.cure:
        assert oracle(names(*range(6)) - frozenset(told.cure)) is Outcome.UP
    if told.end is End.NOT_AN_OPTION:
        assert oracle(frozenset()) is Outcome.SAME


def test_what_comes_up_as_given_is_no_stall() -> None:
    told = answer(space(4), lambda _: Outcome.UP)

    assert told.found.end is End.NO_STALL
    assert told.found.culprits == ()


def test_what_stalls_with_nothing_on_is_not_an_option() -> None:
    told = answer(space(4), lambda _: Outcome.SAME)

    assert told.found.end is End.NOT_AN_OPTION
    assert len(told.asked) == 2


def test_another_failure_of_the_given_command_is_not_followed() -> None:
    told = answer(space(4), lambda _: Outcome.OTHER)

    assert told.found.end is End.OTHER_FAILURE
    assert len(told.asked) == 1


def test_without_a_baseline_it_is_never_called_minimal() -> None:
    told = answer(space(4), lambda setting: Outcome.SAME if "s2" in setting else Outcome.OTHER).found

    assert told.end is End.NO_BASELINE
    assert told.culprits == ("s2",)
    assert not told.minimal


def test_what_needs_another_is_never_tried_without_it() -> None:
    where = space(6, {3: (1,), 4: (3,)})
    told = answer(where, stalls_with(names(4)), ("s4", "s3", "s0", "s2", "s5", "s1"), suspects=2)

    assert set(told.found.culprits) == {"s1", "s3", "s4"} or "s4" in told.found.culprits
    for setting, _ in told.asked:
        assert "s3" not in setting or "s1" in setting
        assert "s4" not in setting or "s3" in setting


def test_the_cure_is_the_one_that_costs_least() -> None:
    where = space(4)
    costly = where.switches[0]
    where = type(where)(switches=(type(costly)(**{**_fields(costly), "effects": ("capacity",)}), *where.switches[1:]))

    assert answer(where, stalls_with(names(0, 2))).found.cure == ("s2",)


def _fields(switch: object) -> dict[str, object]:
    return {name: getattr(switch, name) for name in switch.__struct_fields__}  # type: ignore[attr-defined]


def test_two_causes_need_two_changes() -> None:
    told = answer(space(8), stalls_with(names(1), names(6))).found

    assert set(told.cure) == {"s1", "s6"}
    assert any("more than one cause" in doubt for doubt in told.doubts)


@pytest.mark.parametrize("rate", [1 / 3, 1 / 2, 0.8])
def test_a_stall_that_shows_now_and_then_is_found_nearly_always(rate: float) -> None:
    right = 0
    for seed in range(200):
        culprit = names(seed % 8)
        told = answer(space(8), sometimes(stalls_with(culprit), rate, seed)).found
        right += frozenset(told.culprits) == culprit or told.end is End.NO_STALL
        assert told.rate.trials >= told.rate.stalls
    assert right >= 180


def test_flaky_settings_must_come_up_often_to_be_believed() -> None:
    assert Rate(stalls=3, trials=3).needed == 1
    assert Rate(stalls=1, trials=3).needed >= 6
    assert Rate(stalls=1, trials=3).missed(8) < 0.05


# How much it asks: pinned, since it is what the whole is for.


def launches(told: list[Answered]) -> float:
    return mean(one.after_the_ends for one in told)


def suspicion(culprit: int, place: int) -> list[str]:
    """An order in which a good suspect list has the culprit at `place`."""
    others = [f"s{number}" for number in range(COUNT) if number != culprit]
    return [*others[:place], f"s{culprit}", *others[place:]]


def test_one_culprit_with_good_suspects_takes_four_launches() -> None:
    told = [
        answer(space(COUNT), stalls_with(names(culprit)), suspicion(culprit, place), suspects=3)
        for culprit in range(COUNT)
        for place in (0, 0, 0, 1, 2)
    ]
    assert launches(told) <= 4


def test_one_culprit_without_suspects_takes_eight_launches() -> None:
    told = [answer(space(COUNT), stalls_with(names(culprit))) for culprit in range(COUNT)]
    assert launches(told) <= 8


def test_a_pair_takes_fourteen_launches() -> None:
    told = [answer(space(COUNT), stalls_with(names(*pair))) for pair in combinations(range(COUNT), 2)]
    assert launches(told) <= 14
