"""Sockets of real programs as records, in every state that a start-up can be stuck in."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight.clock import Deadline, SystemClock
from firstlight.core.look import Look, OpenFile, ProcessLook, Socket
from firstlight.evidence import files
from firstlight.evidence.inodes import Descriptor, descriptors
from firstlight.evidence.surroundings import survey, telling_sockets

LISTENING = """
    import socket, sys, time
    server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1)
    print("ready", flush=True)
    time.sleep(600)
"""


def socket_of(seen: Look | ProcessLook, state: str = "") -> Socket:
    one = seen.processes[0] if isinstance(seen, Look) else seen
    return next(
        file.socket for file in one.files if file.socket and file.socket.state == (state or file.socket.state)
    )


def test_a_connection_that_nobody_answers_is_seen_in_syn_sent(programs: Programs, eyes: Eyes) -> None:
    """A listener whose queue is full drops what comes: the black hole of a wrong address, on loopback."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        text = (
            "import socket, sys\nprint('ready', flush=True)\n"
            "socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
        )
        process = programs.python(text, str(port))
        found = socket_of(eyes.until_in("connect", process))
        telling = telling_sockets([process.id.pid])
        keys = {one.key for one in descriptors(process.id.pid)}
        for one in waiting:
            one.close()
    assert (found.family, found.state, found.peer_host, found.peer_port) == ("inet", "SYN_SENT", "127.0.0.1", port)
    assert telling & keys


def test_what_tells_something_is_kept_before_a_crowd() -> None:
    crowd = [Descriptor(1, fd, f"socket:[{fd}]", True, True) for fd in range(3, 900)]
    kept = files.interesting(crowd, set(), {"socket:[899]"})
    assert len(kept) == files.FILES_MAX
    assert kept[0].key == "socket:[899]"


def test_a_peer_that_closed_leaves_close_wait_with_what_was_not_read(programs: Programs, eyes: Eyes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = (
            "import socket, sys, time\none = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "print('ready', flush=True)\ntime.sleep(600)"
        )
        process = programs.python(text, str(server.getsockname()[1]))
        ours, _ = server.accept()
        ours.send(b"123")
        ours.close()
        found = socket_of(eyes.look(process))
    assert (found.state, found.unread) == ("CLOSE_WAIT", 4)  # the end of the stream counts as one


def test_a_listener_that_accepts_nobody_counts_who_waits(programs: Programs, eyes: Eyes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = programs.python(LISTENING, str(port))
    with socket.create_connection(("127.0.0.1", port)):
        found = socket_of(eyes.look(process))
    assert found == Socket(
        family="inet", state="LISTEN", host="127.0.0.1", port=port, unread=1, sent_bytes=0, received_bytes=0
    )


def test_an_ipv6_socket_is_told_as_one(programs: Programs, eyes: Eyes) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    process = programs.python(
        "import socket, time\nserver = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    found = socket_of(eyes.look(process))
    assert (found.family, found.host, found.state) == ("inet6", "::1", "LISTEN")


def test_bytes_that_the_other_side_does_not_read_are_unsent(programs: Programs, eyes: Eyes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = (
            "import socket, sys\none = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "print('ready', flush=True)\none.sendall(bytes(1 << 26))"
        )
        process = programs.python(text, str(server.getsockname()[1]))
        ours, _ = server.accept()
        with ours:
            found = socket_of(eyes.until_in("sendto", process))
    assert found.unsent > 0
    assert isinstance(found.sent_bytes, int)
    assert found.sent_bytes > 0
    assert found.received_bytes == 0


def test_a_reply_over_ipc_that_never_comes_shows_both_ends(programs: Programs, eyes: Eyes) -> None:
    """The way that ZeroMQ's ipc:// works: a unix socket with a path, of which the server reads nothing."""
    path = programs.folder / "engine.ipc"
    server = programs.python(
        "import socket, sys, time\nserver = socket.socket(socket.AF_UNIX)\nserver.bind(sys.argv[1])\n"
        "server.listen()\nprint('ready', flush=True)\none, _ = server.accept()\ntime.sleep(600)",
        str(path),
    )
    client = programs.python(
        "import socket, sys\none = socket.socket(socket.AF_UNIX)\none.connect(sys.argv[1])\none.send(b'question')\n"
        "print('ready', flush=True)\none.recv(1)",
        str(path),
    )
    eyes.until_in("clock_nanosleep", server)
    awaited = awaited_file(eyes.until_in("recvfrom", client))
    assert awaited.peers == (server.id.pid,)
    assert awaited.socket
    assert (awaited.socket.family, awaited.socket.peer_host, awaited.socket.unread) == ("unix", str(path), 0)
    assert awaited.socket.unsent > 0
    there = socket_of(eyes.look(server), "ESTABLISHED")
    assert (there.host, there.unread) == (str(path), len(b"question"))


def awaited_file(seen: ProcessLook) -> OpenFile:
    return next(one for one in seen.files if one.fd in seen.threads[0].fds)


def test_sockets_of_another_network_namespace_are_seen_and_the_rest_is_a_gap(
    programs: Programs, tmp_path: Path
) -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a network namespace here")
    path = tmp_path / "listen.py"
    path.write_text(
        "import socket, time\nserver = socket.socket()\nserver.bind(('0.0.0.0', 8000))\nserver.listen()\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    inside = programs.command(["unshare", "-n", sys.executable, str(path)])
    outside = programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    kept = {one.id.pid: descriptors(one.id.pid) for one in (outside, inside)}
    world = survey(kept, 0, Deadline(SystemClock(), 20, "sockets"))
    shown = [files.describe(one, world) for one in kept[inside.id.pid]]
    assert [one.socket.port for one in shown if one.socket] == [8000]
    assert [gap.pid for gap in world.gaps] == [inside.id.pid]
