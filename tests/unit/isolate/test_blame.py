"""Guesses at what is to blame where a stall shows only now and then."""

import pytest
from tests.unit.isolate.oracles import names, space

from firstlight.isolate.blame import Guesses
from firstlight.isolate.problem import Outcome

ALL = names(0, 1, 2, 3, 4, 5)
UP, SAME = Outcome.UP, Outcome.SAME


@pytest.fixture
def guesses() -> Guesses:
    return Guesses(space(6), space(6).names, suspects=1)


def test_before_any_trial_a_suspect_is_the_likeliest_switch(guesses: Guesses) -> None:
    odds = {guess.setting: guess.odds for guess in guesses.after({})}
    assert odds[names(0)] > odds[names(1)] == odds[names(5)] > odds[names(1, 5)]
    assert sum(odds.values()) == pytest.approx(1)


def test_a_stall_refutes_what_it_does_not_contain(guesses: Guesses) -> None:
    left = {guess.setting for guess in guesses.after({ALL: [SAME], names(1, 2): [SAME]})}
    assert left == {names(), names(1), names(2), names(1, 2)}


def test_coming_up_speaks_against_what_it_contains_and_refutes_nothing(guesses: Guesses) -> None:
    told = {ALL: [SAME, UP, SAME], names(1): [UP, UP, UP], names(2): [UP], names(1, 2): [SAME]}
    first, *others = guesses.after(told)
    assert first.setting in {names(2), names(1, 2)}
    assert names(1) in {guess.setting for guess in others}
    odds = {guess.setting: guess.odds for guess in guesses.after(told)}
    assert odds[names(1)] < odds[names(2)], "it came up more often"


def test_two_stalls_with_nothing_in_common_leave_only_what_needs_no_switch(guesses: Guesses) -> None:
    (left,) = guesses.after({names(1): [SAME], names(2): [SAME]})
    assert left.setting == names()


def test_what_is_asked_next_tells_the_likeliest_apart(guesses: Guesses) -> None:
    told = {ALL: [SAME, SAME, UP], names(1, 2): [SAME], names(): [UP, UP, UP]}
    question = guesses.question(guesses.after(told), barred=())
    assert question is not None
    assert len(question & names(1, 2)) == 1


def test_nothing_is_asked_that_is_barred(guesses: Guesses) -> None:
    told = {ALL: [SAME, SAME, UP], names(1, 2): [SAME], names(): [UP, UP, UP]}
    barred = {guesses.question(guesses.after(told), barred=())}
    while None not in barred and len(barred) < 20:
        question = guesses.question(guesses.after(told), [one for one in barred if one is not None])
        assert question not in barred
        barred.add(question)
    assert None in barred


def test_several_are_believed_to_stall_always_only_after_their_parts_came_up(guesses: Guesses) -> None:
    told = {ALL: [SAME], names(): [UP], names(1, 2): [SAME]}
    before = guesses.sure_of(names(1, 2), told)
    after = guesses.sure_of(names(1, 2), {**told, names(1): [UP, UP], names(2): [UP, UP], names(1, 2): [SAME] * 3})
    assert before < 0.5
    assert after > 0.9


def test_what_comes_up_with_more_speaks_against_stalling_always(guesses: Guesses) -> None:
    told = {ALL: [SAME], names(): [UP], names(1, 2): [SAME] * 3, names(1): [UP], names(2): [UP]}
    assert guesses.sure_of(names(1, 2), {**told, names(1, 2, 3): [UP]}) < guesses.sure_of(names(1, 2), told)


def test_a_part_is_tried_again_that_would_betray_itself(guesses: Guesses) -> None:
    told = {ALL: [SAME], names(): [UP], names(1, 2): [SAME], names(1): [UP, UP, UP], names(2): [UP]}
    assert guesses.betrayal(names(1, 2), [names(1), names(2)], told) == names(2)
