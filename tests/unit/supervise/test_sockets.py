"""Bytes, ports and clients of real sockets between real processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.unit.supervise.conftest import Eventually

from firstlight.clock import HandClock
from firstlight.core.gap import Gap
from firstlight.supervise.liveness import sockets as sockets_module
from firstlight.supervise.liveness.sockets import Listening, Sockets

DEADLINE_S = 20
PEER = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
other = None
if sys.argv[1] == "itself":
    here.bind(("127.0.0.1", 0)); here.listen()
    link = socket.create_connection(here.getsockname())
    other, _ = here.accept()
    print("connected", flush=True)
elif sys.argv[1] == "listen":
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
    if verb == "receive" or other:
        left = int(count)
        while left:
            left -= len((other or link).recv(left))
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


def send(pair: tuple[Peer, Peer], count: int) -> None:
    listener, client = pair
    listener.ask("receive", count)
    client.do("send", count)
    listener.wait()


class Watched:
    """The sockets of real processes, watched by a clock that the test moves."""

    def __init__(self, port: int = 0) -> None:
        self.clock = HandClock()
        self.sockets = Sockets(self.clock, port)

    def bytes_by_pid(self, *pids: int, after_s: float = 10.0) -> dict[int, int]:
        self.clock.advance(after_s)
        answer = self.sockets.bytes_by_pid(pids)
        assert not isinstance(answer, Gap), answer
        return answer

    def listening(self, *pids: int, after_s: float = 10.0) -> Listening:
        self.clock.advance(after_s)
        return self.sockets.listening(pids)


def test_bytes_are_counted_on_both_ends_from_the_first_look_on(
    pair: tuple[Peer, Peer], eventually: Eventually
) -> None:
    listener, client = pair
    send(pair, 1_000_000)
    watched = Watched()
    assert watched.bytes_by_pid(listener.pid, client.pid) == {listener.pid: 0, client.pid: 0}
    send(pair, 100_000)
    both = {listener.pid: 100_000, client.pid: 100_000}
    eventually(lambda: watched.bytes_by_pid(listener.pid, client.pid) == both, "the last byte to be acknowledged")


def test_an_answer_is_repeated_until_the_next_pass_is_due(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    watched = Watched()
    first = watched.bytes_by_pid(listener.pid)
    send(pair, 5_000)
    assert watched.bytes_by_pid(listener.pid, after_s=0.1) == first
    assert watched.bytes_by_pid(listener.pid) == {listener.pid: 5_000}
    assert listener.pid not in watched.bytes_by_pid(client.pid)


def test_the_servers_own_port_does_not_count_but_its_clients_are_known(pair: tuple[Peer, Peer]) -> None:
    listener, _ = pair
    port = int(listener.said)
    watched = Watched(port)
    watched.bytes_by_pid(listener.pid)
    send(pair, 50_000)
    assert watched.bytes_by_pid(listener.pid) == {listener.pid: 0}
    assert watched.sockets.clients(port) == 1


def test_a_port_is_ours_if_a_member_listens_and_anothers_if_none_does(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    watched = Watched()
    assert watched.listening(client.pid) == Listening()
    assert watched.listening(listener.pid, client.pid) == Listening(ours=frozenset({int(listener.said)}))
    assert watched.listening(client.pid) == Listening()


def test_only_the_port_in_question_is_looked_for(pair: tuple[Peer, Peer]) -> None:
    listener, _ = pair
    port = int(listener.said)
    assert Sockets(HandClock()).listening([listener.pid], port).ours == {port}
    assert Sockets(HandClock()).listening([listener.pid], port - 1) == Listening()


def test_a_member_that_opens_its_port_later_is_found_though_it_was_searched_before() -> None:
    watched = Watched()
    watched.listening(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as late:
        assert late.getsockname()[1] in watched.listening(os.getpid()).ours
    assert late.fileno() == -1
    assert watched.listening(os.getpid()).ours == frozenset()


def test_where_a_member_may_not_be_searched_a_port_may_be_its_own(pair: tuple[Peer, Peer]) -> None:
    """Seen as a user without rights, to whom the descriptors of both are closed."""
    listener, client = pair
    port = int(listener.said)
    if os.geteuid() != 0:
        watched = Watched()
        assert watched.listening(1).unknown >= {port}
        return
    told = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(listener.pid), str(client.pid)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    ours, unknown = told.stdout.splitlines()
    assert ours == ""
    assert str(port) in unknown.split()


AS_NOBODY = """
import os, sys
from firstlight.clock import SystemClock
from firstlight.supervise.liveness.sockets import Sockets
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for ports in Sockets(SystemClock()).listening([int(pid) for pid in sys.argv[1:]]):
    print(*ports)
"""


def test_firstlights_own_connections_do_not_count() -> None:
    listener = Peer("listen")
    with socket.create_connection(("127.0.0.1", int(listener.said)), DEADLINE_S) as ours:
        watched = Watched()
        watched.bytes_by_pid(listener.pid)
        listener.ask("receive", 20_000)
        ours.sendall(b"x" * 20_000)
        listener.wait()
        assert watched.bytes_by_pid(listener.pid) == {listener.pid: 0}
        assert watched.sockets.clients(int(listener.said)) == 0
    listener.end()


def test_a_new_connection_of_a_known_process_counts_from_its_first_byte() -> None:
    listener = Peer("listen")
    watched = Watched()
    assert watched.bytes_by_pid(listener.pid) == {listener.pid: 0}
    client = Peer("connect", listener.said)
    send((listener, client), 30_000)
    assert watched.bytes_by_pid(listener.pid) == {listener.pid: 30_000}
    listener.end()
    client.end()


def test_a_kernel_without_sock_diag_tells_ports_and_says_that_it_does_not_count_bytes(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "_SOCK_DIAG_BY_FAMILY", 0xFF)  # a request that no kernel knows
    listener, _ = pair
    watched = Watched()
    assert isinstance(watched.sockets.bytes_by_pid([listener.pid]), Gap)
    assert watched.listening(listener.pid).ours == {int(listener.said)}


def test_what_a_process_says_to_itself_does_not_count() -> None:
    store = Peer("itself")
    watched = Watched()
    watched.bytes_by_pid(store.pid)
    store.do("send", 30_000)
    assert watched.bytes_by_pid(store.pid) == {store.pid: 0}
    store.end()


def test_a_process_that_is_gone_has_no_bytes(pair: tuple[Peer, Peer]) -> None:
    listener, client = pair
    watched = Watched()
    watched.bytes_by_pid(listener.pid, client.pid)
    client.end()
    assert set(watched.bytes_by_pid(listener.pid)) == {listener.pid}
