"""Questions to the kernel about sockets, a kernel that refuses, and answers that are torn."""

import os
import socket
import struct

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.sock_diag import attributes, dump, messages
from firstlight.evidence.tcp_bytes import carried


def within(seconds: float = 20) -> Deadline:
    return Deadline(SystemClock(), seconds, "sockets")


def test_a_refusal_is_an_os_error() -> None:
    with pytest.raises(OSError, match="refused"):
        list(dump(b"no question", within()))


@pytest.mark.parametrize("data", [b"", b"\0" * 15, struct.pack("=IHHII", 4, 20, 0, 1, 0), bytes(64)])
def test_a_torn_datagram_tells_nothing_and_ends(data: bytes) -> None:
    assert list(messages(data)) == []


def test_attributes_end_where_they_are_torn() -> None:
    whole = struct.pack("=HHI", 8, 7, 99)
    assert attributes(whole + struct.pack("=HH", 0, 1)) == {7: struct.pack("=I", 99)}
    assert attributes(b"\1\0") == {}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_bytes_of_a_connection_are_counted_at_both_ends(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as one,
    ):
        other, _ = server.accept()
        with other:
            one.sendall(bytes(5000))
            left = 5000
            while left:
                left -= len(other.recv(left))
            other.sendall(b"!")
            assert one.recv(1) == b"!"
            found = carried(within())
            here, there = (found[os.fstat(end.fileno()).st_ino] for end in (one, other))
    assert (here.received, there.received) == (1, 5000)
    assert here.sent >= 5000
