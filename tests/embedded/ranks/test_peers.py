"""Passes from rank 0 to the others: in order, none lost, none twice, and nobody waited for without end."""

import os
import signal
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from firstlight.embedded.errors import Diverged, RankLost
from firstlight.embedded.model.passes import Pass, Span
from firstlight.embedded.worker.board import Board, OwnStamp, create
from firstlight.embedded.worker.others import Others
from firstlight.embedded.worker.patience import Patience
from firstlight.embedded.worker.peers import Follower, Leader

DEADLINE_S = 0.6


class Pair:
    """Rank 0 and rank 1, both in this process."""

    def __init__(self, deadline_s: float) -> None:
        self.board = Board(create(2))
        self.stamps = [OwnStamp(self.board, 0), OwnStamp(self.board, 1)]
        self.near, self.far = socket.socketpair()
        self.leader = Leader([self.near], Others(self.board, 0), self.stamps[0], deadline_s)
        self.follower = Follower(self.far, Others(self.board, 1), self.stamps[1], deadline_s)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(DEADLINE_S)
    yield made
    made.near.close()
    made.far.close()


def work(number: int, tokens: int = 1) -> Pass:
    return Pass(number=number, kind="decode", tokens=[1] * tokens, spans=[Span(0, 1, [3])], wanted=[0], tapped=[2])


def test_passes_come_as_they_were_sent(pair: Pair) -> None:
    for number in (1, 2):
        pair.leader.send(work(number))
        assert pair.follower.receive() == work(number)
    pair.leader.stop()
    assert pair.follower.receive() is None


def test_a_pass_larger_than_the_socket_holds(pair: Pair) -> None:
    big = work(1, tokens=1 << 20)
    sender = threading.Thread(target=pair.leader.send, args=(big,))
    sender.start()
    assert pair.follower.receive() == big
    sender.join(30)


@pytest.mark.parametrize("wrong", [3, 5, 1])
def test_a_pass_that_is_missing_or_comes_again_is_an_error(pair: Pair, wrong: int) -> None:
    for number in (3, wrong):
        pair.leader.send(work(number))
    pair.follower.receive()
    with pytest.raises(Diverged, match=f"^rank 1 was sent pass {wrong} by rank 0 where pass 4 was due$"):
        pair.follower.receive()


def test_a_follower_that_takes_nothing_is_named(pair: Pair) -> None:
    pair.stamps[1].begin(4, "decode pass 4")
    with pytest.raises(
        RankLost, match=r"^rank 1 \(pid \d+\) has made no progress for 1 s, .* at decode pass 4; rank 0"
    ):
        pair.leader.send(work(1, tokens=1 << 22))


def test_a_leader_that_says_nothing_is_named(pair: Pair) -> None:
    pair.stamps[0].begin(0, "a long thought")
    with pytest.raises(RankLost) as lost:
        pair.follower.receive()
    assert "rank 0 (pid " in str(lost.value)
    assert " at a long thought; rank 1 waits at the wait for the first pass" in str(lost.value)


def test_a_leader_that_stamps_is_waited_for(pair: Pair) -> None:
    stop = threading.Event()

    def think() -> None:
        for _ in range(40):
            pair.stamps[0].write()
            stop.wait(DEADLINE_S / 10)
        pair.leader.send(work(1))

    thinking = threading.Thread(target=think)
    thinking.start()
    assert pair.follower.receive() == work(1)
    thinking.join(30)


def test_a_socket_that_is_closed_is_said(pair: Pair) -> None:
    pair.near.close()
    with pytest.raises(RankLost, match=r"^rank 0 \(pid \d+\) has closed its socket, "):
        pair.follower.receive()
    pair.far.close()
    other = Pair(DEADLINE_S)
    other.far.close()
    with pytest.raises(RankLost, match=r"^rank 1 \(pid \d+\) has closed its socket, "):
        other.leader.send(work(1))
    other.near.close()


def test_a_rank_whose_process_is_gone_has_ended() -> None:
    board = Board(create(2))
    OwnStamp(board, 0)
    child = os.fork()
    if child == 0:
        OwnStamp(board, 1).enter("weights")
        signal.pause()
    others = Others(board, 0)
    while not board.read(1).pid:
        os.sched_yield()
    others.check_alive()
    os.kill(child, signal.SIGKILL)
    with pytest.raises(RankLost, match=rf"^rank 1 \(pid {child}\) has ended, .* in phase weights; rank 0 waits at "):
        others.check_alive(within_s=30)
    os.waitpid(child, 0)
    with pytest.raises(RankLost, match="has ended"):
        Others(board, 0).check_alive()


def test_patience_begins_again_with_every_movement() -> None:
    patience = Patience(deadline_s=0.0, pause_s=60)
    assert not patience.ended(1)
    assert not patience.ended(2)
    assert patience.ended(2)


def test_passes_survive_the_wire_whatever_is_in_them() -> None:
    whole = work(1 << 40, tokens=300)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=Pass) == whole
