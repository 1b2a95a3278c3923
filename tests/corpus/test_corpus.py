"""Public reports of stalls: the cause is said where it is in sight, and never another."""

from collections import Counter
from pathlib import Path

import pytest
from tests.corpus.case import Case, all_cases, outcome, right, symptoms, wrong
from tests.corpus.pages import pages

from firstlight.core.bundle import read_bundle
from firstlight.core.record import to_json

NAMED_SHARE = 0.9
CASES = [pytest.param(case, id=case.id) for case in all_cases()]
DECIDED = [pytest.param(case, id=case.id) for case in all_cases() if case.decided]


@pytest.mark.parametrize("case", CASES)
def test_no_wrong_verdict(case: Case) -> None:
    assert not wrong(case, outcome(case.bundle))


@pytest.mark.parametrize("case", DECIDED)
def test_without_what_decides_nothing_is_established(case: Case) -> None:
    assert case.twin is not None
    assert outcome(case.twin).established <= case.companions | symptoms()


def test_the_cause_is_named_where_it_is_in_sight() -> None:
    decided = [case for case in all_cases() if case.decided]
    missed = [case.id for case in decided if not right(case, outcome(case.bundle))]
    assert len(missed) <= (1 - NAMED_SHARE) * len(decided), missed


def test_every_report_is_there_once() -> None:
    assert not [id_ for id_, times in Counter(case.id for case in all_cases()).items() if times > 1]


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_survives_being_written(case: Case) -> None:
    assert to_json(read_bundle(to_json(case.bundle))) == to_json(case.bundle)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_pages_are_current(path: Path) -> None:
    assert path.read_text() == pages()[path], "write them anew: python -m tests.corpus"
