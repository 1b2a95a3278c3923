"""Bytes, ports and clients of real sockets between real processes."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from firstlight.core.gap import Gap
from firstlight.supervise import sockets as sockets_module
from firstlight.supervise.sockets import Sockets

DEADLINE_S = 20
PEER = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
if sys.argv[1] == "listen":
    here.bind(("127.0.0.1", 0)); here.listen()
    print(here.getsockname()[1], flush=True)
    link, _ = here.accept()
else:
    here.connect(("127.0.0.1", int(sys.argv[2])))
    link = here
    print("connected", flush=True)
for command in sys.stdin:
    verb, count = command.split()
    if verb == "send":
        link.sendall(b"x" * int(count))
    else:
        left = int(count)
        while left:
            left -= len(link.recv(left))
    print("done", flush=True)
"""


class Peer:
    """A process with one TCP connection, which does what it is told."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", PEER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.said = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, verb: str, count: int) -> None:
        self.ask(verb, count)
        self.wait()

    def ask(self, verb: str, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {count}\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._line() == "done"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def pair() -> Iterator[tuple[Peer, Peer]]:
    listener = Peer("listen")
    client = Peer("connect", listener.said)
    yield listener, client
    listener.end()
    client.end()


def seen(answer: object) -> dict[int, int]:
    assert not isinstance(answer, Gap), answer
    assert isinstance(answer, dict)
    return answer


def send(pair: tuple[Peer, Peer], count: int) -> None:
    listener, client = pair
    listener.ask("receive", count)
    client.do("send", count)
    listener.wait()


def test_bytes_are_counted_on_both_ends_from_the_first_look_on(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    send(pair, 1_000_000)
    sockets = Sockets()
    pids = [listener.pid, client.pid]
    assert seen(sockets.bytes_by_pid(pids, now=0.0)) == {listener.pid: 0, client.pid: 0}
    send(pair, 100_000)
    assert seen(sockets.bytes_by_pid(pids, now=10.0)) == {listener.pid: 100_000, client.pid: 100_000}


def test_an_answer_is_repeated_until_the_next_pass_is_due(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    sockets = Sockets()
    first = sockets.bytes_by_pid([client.pid], now=0.0)
    send(pair, 5_000)
    assert sockets.bytes_by_pid([client.pid], now=0.1) == first
    assert seen(sockets.bytes_by_pid([client.pid], now=10.0)) == {client.pid: 5_000}
    assert listener.pid not in seen(sockets.bytes_by_pid([client.pid], now=20.0))


def test_the_servers_own_port_does_not_count_but_its_clients_are_known(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    sockets = Sockets(port=int(listener.said))
    sockets.bytes_by_pid([listener.pid], now=0.0)
    send(pair, 50_000)
    assert seen(sockets.bytes_by_pid([listener.pid], now=10.0)) == {listener.pid: 0}
    assert sockets.clients(int(listener.said)) == 1
    assert sockets.listening([listener.pid, client.pid], now=10.0) == {int(listener.said)}
    assert sockets.listening([client.pid], now=20.0) == frozenset()


def test_firstlights_own_connections_do_not_count() -> None:
    listener = Peer("listen")
    with socket.create_connection(("127.0.0.1", int(listener.said)), DEADLINE_S) as ours:
        sockets = Sockets()
        sockets.bytes_by_pid([listener.pid], now=0.0)
        listener.ask("receive", 20_000)
        ours.sendall(b"x" * 20_000)
        listener.wait()
        assert seen(sockets.bytes_by_pid([listener.pid], now=10.0)) == {listener.pid: 0}
        assert sockets.clients(int(listener.said)) == 0
    listener.end()


def test_a_new_connection_of_a_known_process_counts_from_its_first_byte() -> None:
    listener = Peer("listen")
    sockets = Sockets()
    assert seen(sockets.bytes_by_pid([listener.pid], now=0.0)) == {listener.pid: 0}
    client = Peer("connect", listener.said)
    send((listener, client), 30_000)
    assert seen(sockets.bytes_by_pid([listener.pid], now=10.0)) == {listener.pid: 30_000}
    listener.end()
    client.end()


def test_a_kernel_without_sock_diag_tells_ports_and_says_that_it_does_not_count_bytes(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "_SOCK_DIAG_BY_FAMILY", 0xFF)  # a request that no kernel knows
    listener, _ = pair
    sockets = Sockets()
    assert isinstance(sockets.bytes_by_pid([listener.pid], now=0.0), Gap)
    assert sockets.listening([listener.pid], now=0.0) == {int(listener.said)}


def test_a_process_that_is_gone_has_no_bytes(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    sockets = Sockets()
    sockets.bytes_by_pid([listener.pid, client.pid], now=0.0)
    client.end()
    assert set(seen(sockets.bytes_by_pid([listener.pid], now=10.0))) == {listener.pid}
