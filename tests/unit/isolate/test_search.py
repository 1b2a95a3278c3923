"""The search finds what stalls, says no more than was shown, and asks little."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations
from random import Random
from statistics import mean

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.isolate.oracles import (
    Answered,
    MadeUp,
    Oracle,
    answer,
    anything_at_all,
    fails_without,
    made_up,
    names,
    shuffled,
    sometimes,
    space,
    stalls_with,
    suspicion,
)

from firstlight.isolate.found import End
from firstlight.isolate.odds import Rate
from firstlight.isolate.problem import Outcome, Setting, Space

COUNT = 16
SETS = st.frozensets(st.integers(0, 9), min_size=1, max_size=4)


def is_minimal(where: Space, culprits: frozenset[str], oracle: Oracle) -> bool:
    fewer = [where.sensible(culprits - {name}) for name in culprits]
    return oracle(culprits) is Outcome.SAME and all(oracle(one) is not Outcome.SAME for one in fewer)


def is_right(server: MadeUp, told: Answered) -> bool:
    """Everything that was claimed is true."""
    found, where = told.found, server.space
    full = where.sensible(where.names)
    claims = [all(where.sensible(setting) == setting for setting, _ in told.asked)]
    if found.end in {End.FOUND, End.NO_BASELINE}:
        claims.append(server.oracle(frozenset(found.culprits)) is Outcome.SAME)
        claims.append(set(found.harmless) == set(server.order) - set(found.culprits))
    if found.minimal:
        claims.append(is_minimal(where, frozenset(found.culprits), server.oracle))
    elif found.end is End.FOUND:
        claims.append(bool(found.doubts))
    if found.cure:
        claims.append(server.oracle(full - frozenset(found.cure)) is Outcome.UP)
    if found.end is End.NOT_AN_OPTION:
        claims.append(server.oracle(frozenset()) is Outcome.SAME)
    return all(claims)


@pytest.mark.parametrize(("causes", "size", "needy"), [(1, 1, False), (1, 3, False), (3, 4, False), (2, 3, True)])
def test_whatever_stalls_is_found_and_is_minimal(causes: int, size: int, needy: bool) -> None:
    for seed in range(600):
        server = made_up(seed, 10, causes, size, needy=needy)
        told = server.answer()

        assert told.found.end is End.FOUND, seed
        assert told.found.minimal, seed
        assert told.found.cure, seed
        assert is_right(server, told), seed
        assert told.found.doubts == () or "more than one cause" in told.found.doubts[0], seed


def test_any_oracle_at_all_gets_an_answer_that_says_no_more_than_was_shown() -> None:
    for seed in range(2000):
        server = anything_at_all(seed, 6)
        assert is_right(server, server.answer()), seed


@given(st.lists(SETS, min_size=1, max_size=3), st.permutations(space(10).names), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_sets_of_any_shape_are_found(conflicts: list[frozenset[int]], order: list[str], suspects: int) -> None:
    server = MadeUp(space(10), stalls_with(*(names(*one) for one in conflicts)), tuple(order), suspects)
    told = server.answer()

    assert is_right(server, told)
    assert told.found.minimal


@given(st.lists(SETS, min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_only_what_shows_that_several_are_needed_is_asked_again(conflicts: list[frozenset[int]]) -> None:
    told = answer(space(10), stalls_with(*(names(*one) for one in conflicts)))
    times = Counter(setting for setting, _ in told.asked)
    culprits = frozenset(told.found.culprits)
    again = {setting for setting, count in times.items() if count > 1}

    assert again <= {culprits, *(culprits - {name} for name in culprits)} or len(conflicts) > 1
    assert max(times.values()) <= 12


def test_a_triple_of_which_every_part_is_harmless_is_found() -> None:
    for triple in list(combinations(range(COUNT), 3))[::7]:
        told = answer(space(COUNT), stalls_with(names(*triple)))
        assert set(told.found.culprits) == names(*triple)
        assert told.found.minimal
        assert len(told.found.cure) == 1


def test_switches_that_only_start_together_leave_the_answer_true() -> None:
    """The server does not start with a part of them: such trials say nothing, and what they leave open is said."""
    minimal = 0
    for seed in range(400):
        server = made_up(seed, 8, 1, 2)
        together = names(seed % 8, (seed // 8) % 8)
        torn = MadeUp(server.space, fails_without(server.oracle, together), server.order, server.suspects)
        told = torn.answer()
        assert is_right(torn, told), seed
        minimal += told.found.minimal
    assert minimal > 280


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
    order = ("s4", "s3", "s0", "s2", "s5", "s1")
    told = answer(where, stalls_with(names(4)), order, suspects=2)

    assert set(told.found.culprits) == {"s1", "s3", "s4"}
    assert all(where.sensible(setting) == setting for setting, _ in told.asked)


def test_a_cure_names_all_that_goes_with_it() -> None:
    where = space(5, {3: (1,)})
    told = answer(where, stalls_with(names(1))).found

    assert told.culprits == ("s1",)
    assert told.cure == ("s1", "s3")


def test_the_cure_is_the_one_that_costs_least() -> None:
    costly, *others = space(4).switches
    where = Space(switches=(msgspec.structs.replace(costly, effects=("capacity",)), *others))

    assert answer(where, stalls_with(names(0, 2))).found.cure == ("s2",)


def test_the_cure_takes_as_little_as_possible_along() -> None:
    where = space(6, {3: (2,), 4: (2,), 5: (2,)})

    assert answer(where, stalls_with(names(0, 2))).found.cure == ("s0",)


def test_two_causes_need_two_changes() -> None:
    told = answer(space(8), stalls_with(names(1), names(6))).found

    assert set(told.cure) == {"s1", "s6"}
    assert any("more than one cause" in doubt for doubt in told.doubts)


def found_at_a_rate(rate: float) -> Iterator[tuple[bool, float]]:
    """Whether the answers of many servers are right, and the odds that they state."""
    for seed, size in enumerate([0] * 8 + [1] * 70 + [2] * 22):
        culprits = names(*((seed + one * 3) % 8 for one in range(size)))
        found = answer(space(8), sometimes(stalls_with(culprits), rate, seed)).found
        if found.end is not End.NO_STALL:
            not_an_option = found.end is End.NOT_AN_OPTION
            yield frozenset(found.culprits) == culprits and not_an_option == (not culprits), found.odds


def test_a_stall_that_shows_now_and_then_is_found_as_often_as_the_odds_say() -> None:
    told = {rate: list(found_at_a_rate(rate)) for rate in (1.0, 0.8, 1 / 2, 1 / 3)}
    for rate, answers in told.items():
        assert len(answers) >= 92, f"at {rate} it is tried often enough to be seen"
        assert mean(right for right, _ in answers) >= 0.95, f"at {rate}"
    right, odds = zip(*chain.from_iterable(told.values()), strict=True)
    assert mean(right) >= mean(odds) - 0.02, "the odds are no boast"


def test_flaky_settings_must_come_up_often_to_be_believed() -> None:
    assert Rate(stalls=3, trials=3).needed == 1
    assert Rate(stalls=1, trials=3).needed >= 10
    assert Rate(stalls=20, trials=60).missed(8) < 0.05


def test_a_rate_of_which_little_is_known_may_be_small_and_misses_more() -> None:
    assert Rate(stalls=1, trials=3).missed(8) > Rate(stalls=20, trials=60).missed(8)


def test_more_options_that_are_not_worse_do_not_make_a_stall_flaky() -> None:
    """s3 without s2 hides the stall of s0: that is found out in a few launches, and said."""

    def oracle(setting: Setting) -> Outcome:
        hidden = "s3" in setting and "s2" not in setting
        return Outcome.SAME if "s0" in setting and not hidden else Outcome.UP

    told = answer(space(5), oracle, ("s3", "s0", "s1", "s2", "s4"))
    assert told.found.culprits == ("s0",)
    assert told.found.minimal
    assert not told.found.rate.flaky
    assert any("as well it comes up" in doubt for doubt in told.found.doubts)
    assert len(told.asked) < 25


# How much it asks: pinned, since it is what the whole is for.


def launches(told: list[Answered]) -> float:
    return mean(one.after_the_ends for one in told)


def test_one_culprit_with_good_suspects_takes_four_launches() -> None:
    told = [
        answer(space(COUNT), stalls_with(names(culprit)), suspicion([f"s{culprit}"], place, COUNT), suspects=3)
        for culprit in range(COUNT)
        for place in (0, 0, 0, 1, 2)
    ]
    assert launches(told) <= 4


def test_one_culprit_without_suspects_takes_eight_launches() -> None:
    told = [answer(space(COUNT), stalls_with(names(culprit))) for culprit in range(COUNT)]
    assert launches(told) <= 8


@pytest.mark.parametrize(("rate", "most"), [(1 / 2, 32), (1 / 3, 46)])
def test_one_culprit_that_shows_now_and_then(rate: float, most: int) -> None:
    told = [
        answer(
            space(COUNT),
            sometimes(stalls_with(names(seed % COUNT)), rate, seed),
            shuffled(space(COUNT), Random(seed)),
        )
        for seed in range(60)
    ]
    assert launches([one for one in told if one.found.end is not End.NO_STALL]) <= most


def test_a_pair_takes_fourteen_launches() -> None:
    told = [answer(space(COUNT), stalls_with(names(*pair))) for pair in combinations(range(COUNT), 2)]
    assert launches(told) <= 14
