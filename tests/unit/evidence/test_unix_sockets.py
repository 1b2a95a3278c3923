"""Unix sockets, asked of the real kernel."""

import os
import socket
from pathlib import Path

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.unix_sockets import UnixSocket, unix_sockets


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
