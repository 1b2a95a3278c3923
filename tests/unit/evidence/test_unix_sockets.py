"""Unix sockets, asked of the real kernel; and answers of a kernel that refuses or lies."""

import os
import socket
import struct
from pathlib import Path

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.unix_sockets import UnixSocket, take_answers, unix_sockets


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def seen() -> dict[int, UnixSocket]:
    return unix_sockets(Deadline(SystemClock(), 20, "unix sockets"))


def test_both_ends_of_a_pair_know_each_other_and_what_is_unread() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"12345")
        found = seen()
        assert found[inode(one)].peer == inode(other)
        assert found[inode(other)] == UnixSocket("ESTABLISHED", peer=inode(one), unread=5)
        assert found[inode(one)].unsent > 0


def test_a_listener_tells_its_path_and_whom_it_lets_wait(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.ipc")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen(7)
        client.connect(path)
        found = seen()
        assert found[inode(server)] == UnixSocket("LISTEN", path=path, unread=1)
        accepted, _ = server.accept()
        with accepted:
            assert seen()[inode(accepted)] == UnixSocket("ESTABLISHED", peer=inode(client), path=path)


def test_an_abstract_path_begins_with_an_at_sign() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(b"\0firstlight-test")
        assert seen()[inode(server)].path == "@firstlight-test"


def test_a_refusal_is_an_os_error() -> None:
    refusal = struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -1) + bytes(16)
    with pytest.raises(PermissionError):
        take_answers(refusal, {})


def test_the_last_message_ends_it() -> None:
    assert take_answers(struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4), {}) is False


@pytest.mark.parametrize("data", [b"", b"\0" * 15, struct.pack("=IHHII", 4, 20, 0, 1, 0), bytes(64)])
def test_a_torn_datagram_tells_nothing_and_ends(data: bytes) -> None:
    found: dict[int, UnixSocket] = {}
    assert take_answers(data, found) is True
    assert found == {}
