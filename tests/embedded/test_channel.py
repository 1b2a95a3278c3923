"""Messages over the socket, whole and in pieces."""

import socket
from collections.abc import Iterator

import pytest

from firstlight.embedded.channel import HEADER, MAX_FRAME, Channel, body_length, frame, from_worker
from firstlight.embedded.errors import EngineError, PeerGone
from firstlight.embedded.messages import Cancel, Ready, Sampling, Submit

SUBMIT = Submit(request=1, prompt=[1, 2], max_tokens=3, stop_tokens=[2], sampling=Sampling(temperature=0.5, seed=9))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    ours, theirs = socket.socketpair()
    yield ours, Channel(theirs)
    ours.close()
    theirs.close()


def test_messages_come_out_as_they_went_in(ends: tuple[socket.socket, Channel]) -> None:
    ours, channel = ends
    ours.sendall(frame(SUBMIT) + frame(Cancel(request=1)))
    assert channel.receive(5) == [SUBMIT, Cancel(request=1)]


def test_a_message_in_pieces_waits_for_its_end(ends: tuple[socket.socket, Channel]) -> None:
    ours, channel = ends
    raw = frame(SUBMIT)
    for byte in raw[:-1]:
        ours.sendall(bytes([byte]))
        assert channel.receive(5) == []
    ours.sendall(raw[-1:])
    assert channel.receive(5) == [SUBMIT]


def test_nothing_there_is_nothing_after_the_deadline(ends: tuple[socket.socket, Channel]) -> None:
    assert ends[1].receive(0) == []


def test_what_is_sent_can_be_read(ends: tuple[socket.socket, Channel]) -> None:
    ours, channel = ends
    channel.send(Ready(max_model_len=5, vocab_size=7))
    header = ours.recv(HEADER.size)
    assert from_worker.decode(ours.recv(body_length(header))) == Ready(max_model_len=5, vocab_size=7)


def test_a_peer_that_ended_is_noticed_both_ways(ends: tuple[socket.socket, Channel]) -> None:
    ours, channel = ends
    ours.close()
    with pytest.raises(PeerGone):
        channel.receive(5)
    with pytest.raises(PeerGone):
        channel.send(Ready(max_model_len=5, vocab_size=7))


def test_an_absurd_length_is_not_waited_for(ends: tuple[socket.socket, Channel]) -> None:
    ours, channel = ends
    ours.sendall(HEADER.pack(MAX_FRAME + 1))
    with pytest.raises(EngineError, match="does not speak our protocol"):
        channel.receive(5)
