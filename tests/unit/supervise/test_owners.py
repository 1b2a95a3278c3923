"""Who holds a socket: found at any price in descriptors, at a bounded price in time."""

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from firstlight import procfs
from firstlight.clock import HandClock
from firstlight.supervise.liveness.owners import CHUNK, DOUBTED_AFTER_S, Owners

MANY = 6 * CHUNK
NOT_OURS = 1
"""An inode that no socket has."""


class CostlyClock(HandClock):
    """A clock by which every question for the CPU time finds a millisecond more."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def cpu(self) -> float:
        self.asked += 1
        return self.asked / 1000


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process holds more descriptors than one chunk of a search reads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MANY + 500)), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(MANY)]
    yield
    for fd in held:
        os.close(fd)


@pytest.fixture
def last(many_descriptors: None) -> Iterator[int]:
    """The inode of a socket behind all those descriptors."""
    with socket.socket() as here:
        yield os.fstat(here.fileno()).st_ino


def test_a_socket_behind_thousands_of_descriptors_is_found(last: int) -> None:
    owners = Owners(HandClock(), share=0.01, savings_s=1.0)
    owners.search([last], [os.getpid()])
    assert owners.of(last) == os.getpid()


def test_a_search_that_has_spent_its_savings_goes_on_where_it_stopped(last: int) -> None:
    clock = CostlyClock()
    owners = Owners(clock, share=0.001, savings_s=0.001)
    chunks = 0
    while owners.of(last) is None:
        before = clock.asked
        owners.search([last], [os.getpid()])
        assert clock.asked - before == 2  # one chunk, and no more until there are new savings
        owners.search([last], [os.getpid()])
        assert clock.asked - before == 2
        assert owners.of(last) or owners.may_be_ours(last)
        clock.advance(1.0)
        chunks += 1
    assert chunks > MANY / CHUNK


def test_what_was_not_found_is_not_searched_for_again_until_it_is_doubted() -> None:
    clock = CostlyClock()
    owners = Owners(clock, share=1.0, savings_s=1.0)
    pids = [os.getpid()]
    owners.search([NOT_OURS], pids)
    assert owners.of(NOT_OURS) is None
    assert not owners.may_be_ours(NOT_OURS)
    asked = clock.asked
    owners.search([NOT_OURS], pids)
    assert clock.asked == asked
    clock.advance(DOUBTED_AFTER_S)
    owners.search([NOT_OURS], pids)
    assert clock.asked > asked
    assert not owners.may_be_ours(NOT_OURS)


def test_a_newcomer_is_searched_for_what_the_others_do_not_hold() -> None:
    owners = Owners(HandClock(), share=1.0, savings_s=1.0)
    with socket.socket() as here:
        inode = os.fstat(here.fileno()).st_ino
        owners.search([inode], [os.getppid()])
        assert owners.of(inode) is None
        owners.search([inode], [os.getppid(), os.getpid()])
        assert owners.of(inode) == os.getpid()
        owners.search([inode], [os.getppid()])
        assert owners.of(inode) is None


def test_a_process_that_is_gone_holds_nothing() -> None:
    gone = max(procfs.pids()) + 100_000
    owners = Owners(HandClock(), share=1.0, savings_s=1.0)
    owners.search([NOT_OURS], [gone])
    assert not owners.may_be_ours(NOT_OURS)
