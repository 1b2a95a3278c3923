"""docs/causes/zoo.md names every planted fault, and is current."""

from collections import Counter

from tests.live.zoo_page import KINDS, PAGE, names, page


def test_every_fault_is_on_the_page_once() -> None:
    told = Counter(name for members in KINDS.values() for name in members)
    assert set(told) - set(names()) == {"oom_in_cgroup"}
    assert set(names()) <= set(told)
    assert max(told.values()) == 1


def test_there_are_at_least_forty() -> None:
    assert len(names()) >= 40


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.live.zoo_page"
