"""Peers of unix sockets, asked of the real kernel; and answers of a kernel that refuses or lies."""

import os
import socket
import struct

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.unix_sockets import peers, take_answers


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def test_both_ends_of_a_pair_know_each_other() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = peers(Deadline(SystemClock(), 20, "unix sockets"))
        assert found[inode(one)] == inode(other)
        assert found[inode(other)] == inode(one)


def test_a_refusal_is_an_os_error() -> None:
    refusal = struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -1) + bytes(16)
    with pytest.raises(PermissionError):
        take_answers(refusal, {})


def test_the_last_message_ends_it() -> None:
    assert take_answers(struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4), {}) is False


@pytest.mark.parametrize("data", [b"", b"\0" * 15, struct.pack("=IHHII", 4, 20, 0, 1, 0), bytes(64)])
def test_a_torn_datagram_tells_nothing_and_ends(data: bytes) -> None:
    found: dict[int, int] = {}
    assert take_answers(data, found) is True
    assert found == {}
