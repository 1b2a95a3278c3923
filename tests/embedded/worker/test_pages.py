"""The pool of pages: who holds which, what is known, and what is forgotten first."""

import pytest

from firstlight.embedded.model.passes import PAGE
from firstlight.embedded.worker.pages import NO_PREFIX, Known, PagePool, PageTable


def block(seed: int) -> tuple[int, ...]:
    return tuple(range(seed, seed + PAGE))


def kept(pool: PagePool, *seeds: int) -> list[int]:
    """Pages known to hold the blocks of these seeds one after the other, held by nobody."""
    pages, prefix = pool.take(len(seeds)), NO_PREFIX
    for seed, page in zip(seeds, pages, strict=True):
        prefix = pool.remember(prefix, block(seed), page)
    pool.release(pages)
    return pages


def found(pool: PagePool, *seeds: int) -> list[int]:
    return [known.page for known in pool.match(NO_PREFIX, map(block, seeds))]


def test_a_page_is_free_again_when_its_last_holder_lets_go() -> None:
    pool = PagePool(4)
    pages = pool.take(3)
    assert len(set(pages)) == 3
    pool.share(pages[:1])
    pool.release(pages)
    pool.check([pages[:1]])
    assert (pool.used, pool.available) == (1, 3)
    pool.release(pages[:1])
    pool.check([])
    assert pool.available == 4


def test_more_pages_than_there_are_cannot_be_taken() -> None:
    pool = PagePool(2)
    pool.take(1)
    with pytest.raises(ValueError, match="2 pages were asked for; 1 are available"):
        pool.take(2)
    assert pool.used == 1


def test_known_pages_are_found_by_their_text_and_all_text_before() -> None:
    pool = PagePool(8)
    pages = kept(pool, 1, 2, 3)
    assert found(pool, 1, 2, 3, 4) == pages
    assert found(pool, 1, 3) == pages[:1]
    assert found(pool, 2, 3) == []
    pool.check([])


def test_what_was_used_longest_ago_is_forgotten_first_and_ends_before_beginnings() -> None:
    pool = PagePool(5)
    old, new = kept(pool, 1, 2), kept(pool, 3, 4)
    taken = pool.take(4)
    assert taken[1:] == [old[1], old[0], new[1]]
    assert found(pool, 1) == []
    assert found(pool, 3, 4) == new[:1]
    pool.check([taken])


def test_what_was_looked_for_is_forgotten_later() -> None:
    pool = PagePool(2)
    first, second = kept(pool, 1), kept(pool, 2)
    assert found(pool, 1) == first
    assert pool.take(1) == second


def test_shared_pages_are_not_forgotten() -> None:
    pool = PagePool(2)
    pages = kept(pool, 1)
    pool.share(pages)
    assert pool.available == 1
    others = pool.take(1)
    assert found(pool, 1) == pages
    pool.check([pages, others])


def test_of_two_pages_with_the_same_text_one_is_known() -> None:
    pool = PagePool(4)
    first, second = pool.take(1), pool.take(1)
    prefix = pool.remember(NO_PREFIX, block(1), first[0])
    assert pool.remember(NO_PREFIX, block(1), second[0]) == prefix
    assert pool.match(NO_PREFIX, [block(1)]) == [Known(first[0], prefix)]
    pool.release(second)
    pool.release(first)
    pool.check([])


def test_what_follows_a_forgotten_page_is_not_found_behind_its_successor() -> None:
    pool = PagePool(3)
    first = pool.take(1)
    prefix = pool.remember(NO_PREFIX, block(1), first[0])
    behind = pool.take(1)
    pool.remember(prefix, block(2), behind[0])
    pool.release(first)
    taken = pool.take(2)
    assert pool.remember(NO_PREFIX, block(1), taken[0]) != prefix
    assert found(pool, 1, 2) == taken[:1]
    pool.check([taken, behind])


@pytest.mark.parametrize("wrong", ["lost", "held by nobody", "held twice"])
def test_a_wrong_count_is_noticed(wrong: str) -> None:
    pool = PagePool(3)
    pages = pool.take(2)
    holders = {"lost": [], "held by nobody": [pages[:1]], "held twice": [pages, pages]}[wrong]
    pool.check([pages])
    with pytest.raises(AssertionError, match="page"):
        pool.check(holders)


def test_a_table_takes_all_pages_or_none() -> None:
    pool = PagePool(3)
    table = PageTable(pool)
    assert table.reach(PAGE + 1)
    assert len(table.pages) == 2
    assert not table.reach(4 * PAGE)
    assert len(table.pages) == 2
    table.shrink(PAGE)
    assert len(table.pages) == pool.used == 1
    table.clear()
    assert pool.used == 0


def test_a_table_swaps_pages_not_yet_written_for_known_ones() -> None:
    pool = PagePool(8)
    tokens = [*block(1), *block(2), *block(3), 7]
    known = kept(pool, 1, 2)
    table = PageTable(pool)
    table.reach(len(tokens))
    assert table.reuse(tokens) == 2 * PAGE
    assert table.pages[:2] == known
    assert pool.used == 4
    pool.check([table.pages])


def test_a_table_leaves_the_last_token() -> None:
    pool = PagePool(8)
    tokens = [*block(1), *block(2)]
    kept(pool, 1, 2)
    assert PageTable(pool).reuse(tokens) == PAGE
    assert PageTable(pool).reuse([*tokens, 7]) == 2 * PAGE


@pytest.mark.parametrize(("ahead", "shared"), [(0, 2), (1, 1)])
def test_a_table_may_know_pages_by_the_token_after_them_too(ahead: int, shared: int) -> None:
    pool = PagePool(8)
    first, second = [*block(1), *block(2), 7], [*block(1), *block(2), 8]
    table = PageTable(pool, ahead=ahead)
    table.reach(len(first))
    table.remember(first, 2 * PAGE)
    table.clear()
    pool.check([])
    assert PageTable(pool, ahead=ahead).reuse(second) == shared * PAGE
    assert PageTable(pool, ahead=ahead).reuse(first) == 2 * PAGE


def test_a_table_goes_on_knowing_behind_what_it_shares() -> None:
    pool = PagePool(8)
    tokens = [*block(1), *block(2), *block(3), 7]
    kept(pool, 1, 2)
    table = PageTable(pool)
    table.reuse(tokens)
    table.reach(len(tokens))
    table.remember(tokens, 3 * PAGE)
    assert found(pool, 1, 2, 3) == table.pages[:3]
    assert found(pool, 3) == []


def test_a_table_that_lost_its_pages_begins_again() -> None:
    pool = PagePool(8)
    tokens = [*block(1), *block(2), 7]
    table = PageTable(pool)
    table.reach(len(tokens))
    table.remember(tokens, 2 * PAGE)
    pages = table.pages[:2]
    table.clear()
    assert table.reuse(tokens) == 2 * PAGE
    assert table.pages == pages
