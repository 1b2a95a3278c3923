"""Who sleeps is told from who waits for somebody with a time-out."""

import pytest
from tests.unit.diagnose.conftest import REFUSED, look, process, stack, thread

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, OpenFile, ProcessLook, ThreadLook, TimeLimit
from firstlight.diagnose import sleeping

LIMIT = TimeLimit(seconds=40.0, exact=True)
RUNS_PYTHON = stack("work /app/pool.py:3")


def main(limit: TimeLimit | None = LIMIT, fds: tuple[int, ...] = ()) -> ThreadLook:
    return thread(100, stack("connect /app/retry.py:8"), limit=limit, fds=fds)


def other(frames: tuple[Frame, ...] | Gap) -> ThreadLook:
    return thread(101, frames, limit=LIMIT)


def pair(peers: tuple[int, ...] | Gap, target: str = "socket:[7]") -> OpenFile:
    return OpenFile(fd=4, kind="socket", target=target, peers=peers)


def sleep_of(one: ProcessLook) -> TimeLimit | None:
    return sleeping(look(one)).get(100)


def test_a_main_thread_that_only_the_clock_wakes_sleeps() -> None:
    assert sleep_of(process(100, main(), other(RUNS_PYTHON))) == LIMIT


def test_without_an_end_nobody_sleeps() -> None:
    assert sleep_of(process(100, main(limit=None))) is None


def test_another_thread_that_sleeps_is_not_the_process() -> None:
    assert sleep_of(process(100, main(limit=None), other(RUNS_PYTHON))) is None


def test_a_peer_that_is_waited_for_is_no_sleep() -> None:
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((100, 200)),))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((200,)),))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair(()),))) is None


def test_a_loop_that_only_itself_could_wake_sleeps() -> None:
    assert sleep_of(process(100, main(fds=(4,)), other(()), files=(pair((100,)),))) == LIMIT
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((), "anon_inode:[eventfd]"),))) == LIMIT


@pytest.mark.parametrize("frames", [RUNS_PYTHON, REFUSED])
def test_a_loop_that_another_thread_may_wake_does_not(frames: tuple[Frame, ...] | Gap) -> None:
    assert sleep_of(process(100, main(fds=(4,)), other(frames), files=(pair((100,)),))) is None


def test_what_could_not_be_seen_is_not_taken_for_a_sleep() -> None:
    assert sleep_of(process(100, main(fds=(4,)))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair(REFUSED),))) is None
    assert sleep_of(process(100)) is None
