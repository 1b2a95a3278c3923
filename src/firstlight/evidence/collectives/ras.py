"""Communicators as NCCL itself sees them, asked of its RAS service.

Price: asks. Since 2.24 every NCCL job answers on a socket, localhost:28028 unless NCCL_RAS_ADDR says otherwise
(src/ras/client_support.cc; user guide, "RAS"). One line a question, a line of answer each, then the status until the
end of the stream: JSON since 2.28.7, words before. Only loopback is asked, and only once a stall is suspected.
"""

import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.collective import Communicator
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.collectives.ras_answers import from_json, from_text
from firstlight.evidence.workers import Probe

WHAT = "NCCL communicators"
PORT = 28028
LINE_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 16 * 1024 * 1024
CRASHES = frozenset({"2.27.3"})
"""Versions in which a question has been seen to end the job (github.com/NVIDIA/nccl/issues/1762)."""

_LOOPBACK = {"localhost": ("127.0.0.1", "::1"), "127.0.0.1": ("127.0.0.1",), "::1": ("::1",)}


def ras_address(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Where a server with this environment answers; None if it switched the service off or named nonsense. Pure."""
    if environ.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        return None
    host, _, port = environ.get("NCCL_RAS_ADDR", f"localhost:{PORT}").strip().rpartition(":")
    return (host.strip("[]") or "localhost", int(port)) if port.isdecimal() and int(port) < 1 << 16 else None


def is_safe_to_ask(versions: set[str]) -> bool:
    """Whether none of the NCCL versions that a server has loaded is known to die of being asked. Pure."""
    return not versions & CRASHES


def communicators(
    host: str, port: int, deadline: Deadline, pids: Collection[int] = ()
) -> tuple[Communicator, ...] | Gap:
    """Every communicator of the job that answers there; a gap if nobody does, or not in time, or not with sense.

    All processes of all jobs on a machine share one port unless they are told otherwise (SO_REUSEPORT), and any of
    them may answer. So with `pids`, the processes of the server, nobody is asked if others listen there, too.
    """
    addresses = _LOOPBACK.get(host, ())
    if not addresses:
        return _gap(GapReason.NOT_SUPPORTED, f"it answers on {host[:100]}, which is not this machine's loopback")
    return Probe(WHAT, partial(_ask_any, addresses, port, pids, deadline)).result(deadline)


def _strangers(port: int, pids: Collection[int]) -> str:
    """Why whoever listens on a port is not, or not surely, the server; empty if it is."""
    listening = {row.inode for row in procfs.tcp_sockets() if row.state == "LISTEN" and row.local[1] == port}
    own: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            own |= listening.intersection(procfs.sockets(pid))
    if not own and listening:
        return f"port {port} belongs to somebody else, or the server's sockets may not be seen"
    return f"several jobs answer on port {port}: give each its own NCCL_RAS_ADDR" if listening - own else ""


def _ask_any(
    addresses: tuple[str, ...], port: int, pids: Collection[int], deadline: Deadline
) -> tuple[Communicator, ...] | Gap:
    if pids and (why := _strangers(port, pids)):
        return _gap(GapReason.NOT_SUPPORTED, why)
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=max(0.01, deadline.left)) as link:
                return _ask(link, deadline)
        except (ConnectionRefusedError, TimeoutError):
            continue
    return _gap(
        GapReason.FAILED, f"nobody answers on port {port}: NCCL before 2.24, not yet started, or switched off"
    )


def _ask(link: socket.socket, deadline: Deadline) -> tuple[Communicator, ...] | Gap:
    greeting = _answer(link, "CLIENT PROTOCOL 2", deadline)
    if not greeting.upper().startswith("SERVER PROTOCOL "):
        return _gap(GapReason.FAILED, f"what answers is not NCCL's RAS service: {greeting[:100]!r}")
    # What the peers do not tell within this time is reported as missing, so leave time for that report.
    _answer(link, f"TIMEOUT {max(1, int(deadline.left / 2))}", deadline)
    is_json = _answer(link, "SET FORMAT json", deadline).upper() == "OK"
    link.sendall(b"VERBOSE STATUS\n")
    status = _rest(link, deadline)
    if status is None:
        return _gap(GapReason.TIMED_OUT, f"no whole answer within {deadline.seconds:g} s")
    try:
        return from_json(status) if is_json else from_text(status.decode(errors="replace"))
    except ValueError as error:
        return _gap(GapReason.FAILED, f"the answer makes no sense: {error}"[:300])


def _answer(link: socket.socket, question: str, deadline: Deadline) -> str:
    """One line for one line. Empty if none came; what follows then fails by itself."""
    link.sendall(f"{question}\n".encode())
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        link.settimeout(max(0.01, deadline.left))
        try:
            data = link.recv(LINE_BYTES_MAX)
        except (TimeoutError, ConnectionResetError):
            break
        if not data:
            break
        line += data
    return line.decode(errors="replace").strip()


def _rest(link: socket.socket, deadline: Deadline) -> bytes | None:
    """Everything until the other side closes; None if it goes on for too long."""
    parts: list[bytes] = []
    size = 0
    while not deadline.passed and size <= ANSWER_BYTES_MAX:
        link.settimeout(max(0.01, deadline.left))
        try:
            data = link.recv(1 << 18)
        except TimeoutError:
            return None
        if not data:
            return b"".join(parts)
        parts.append(data)
        size += len(data)
    return None


def _gap(reason: GapReason, detail: str) -> Gap:
    return Gap(what=WHAT, reason=reason, detail=detail)
