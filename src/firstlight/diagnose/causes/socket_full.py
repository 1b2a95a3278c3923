"""A socket is full: one end cannot send on, because the other does not read."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile
from firstlight.core.words import size
from firstlight.diagnose import network, quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

FULL_BYTES = 4096
_POLLS = re.compile(r"(epoll_p?wait2?|p?poll|p?select6?)\(")


def _senders(scene: Scene) -> Iterator[tuple[Standing, OpenFile]]:
    """Who blocks in sending, on which socket."""
    for one in scene.standings:
        if one.wait.kind is Kind.WRITE:
            yield from ((one, file) for file in one.wait.files if file.kind == "socket")


def _unread(scene: Scene, pid: int, sender: OpenFile) -> int:
    """The bytes that wait unread, at both looks, at the end of `pid`; 0 if it reads, or its end was not seen."""
    reader, old = scene.standing(pid), where.before(scene, pid)
    if reader is None or old is None:
        return 0
    waited = {file.target: file.socket.unread for file in old.files if file.socket}
    both_looks = [
        min(file.socket.unread, waited.get(file.target, 0))
        for file in reader.look.files
        if file.socket and file.kind == "socket" and _are_ends(sender, file)
    ]
    return max(both_looks, default=0)


def _are_ends(one: OpenFile, other: OpenFile) -> bool:
    """Whether two sockets may be the ends of one connection: by address, or of one unix socket."""
    a, b = one.socket, other.socket
    if a is None or b is None or a.family != b.family:
        return False
    if a.family == "unix":
        return a.peer_host == b.host or a.host == b.peer_host
    return (a.host, a.port) == (b.peer_host, b.peer_port) and (b.host, b.port) == (a.peer_host, a.peer_port)


def _both_ends(scene: Scene) -> Iterator[Sighting | Gap]:
    """One end blocks in sending, and at the other bytes lie unread all the while."""
    for one, file in _senders(scene):
        for pid in one.wait.pids:
            lying = _unread(scene, pid, file)
            if lying >= FULL_BYTES:
                quote = f"{scene.name(pid)} leaves {size(lying)} unread that {scene.name(one.pid)} sent"
                yield Sighting(quotes.shortened(quote), (pid, one.pid))
                yield Sighting(quotes.shortened(f"process {one.pid} blocks in {quotes.call(one.thread)}"))
                reader = scene.standing(pid)
                yield from [Sighting(quotes.stack(reader))] if reader else []
    yield from unseen_waits(scene)


def _one_end(scene: Scene) -> Iterator[Sighting]:
    """One end blocks in sending, and its own queue is full; the other end was not seen, or is elsewhere."""
    for one, file in _senders(scene):
        if file.socket and file.socket.unsent >= FULL_BYTES:
            quote = f"{scene.name(one.pid)} blocks in sending, with {size(file.socket.unsent)} unsent ({file.detail})"
            yield Sighting(quotes.shortened(quote), (*one.wait.pids[:1], one.pid))


def _both_queues(scene: Scene) -> Iterator[Sighting]:
    """Bytes lie unread at one end and unsent at the other, at both looks, whatever whoever sends waits in: libraries
    send from threads of their own, which poll."""
    for one in scene.standings:
        polls = any(_POLLS.match(quotes.call(thread)) for thread in one.look.threads)
        for file in one.look.files if polls and where.before(scene, one.pid) else ():
            unsent = file.socket.unsent if file.socket and file.kind == "socket" else 0
            if unsent < FULL_BYTES or network.sent(scene, one.look, file) or isinstance(file.peers, Gap):
                continue
            for pid in file.peers:
                lying = _unread(scene, pid, file)
                reader = scene.standing(pid)
                if lying >= FULL_BYTES and reader and not reader.moves:
                    quote = f"{scene.name(pid)} leaves {size(lying)} unread, and {scene.name(one.pid)} cannot send on"
                    yield Sighting(quotes.shortened(quote), (pid, one.pid))


def _drains(scene: Scene) -> Iterator[Sighting]:
    """Whoever should read moves, or the bytes go their way: a full queue on a slow line."""
    for one, file in _senders(scene):
        sent = network.sent(scene, one.look, file)
        if sent >= FULL_BYTES:
            yield Sighting(quotes.shortened(f"{size(sent)} were taken between the looks ({file.detail})"), (one.pid,))
    readers = {pid for one, _ in _senders(scene) for pid in one.wait.pids}
    for one in scene.standings:
        if one.pid in readers and one.moves and one.change:
            yield Sighting(quotes.shortened(f"{scene.name(one.pid)} {one.change.why}"), (one.pid,))


CAUSE = Cause(
    id="socket_full",
    nature=Nature.HELD,
    title="{who} does not read a socket, and whoever sends into it is stuck",
    clues=(
        decides("Do bytes lie unread at one end while the other blocks in sending?", _both_ends),
        supports("Does somebody block in sending, with its queue full?", _one_end),
        supports("Do bytes lie unread at one end and unsent at the other, at both looks?", _both_queues),
        rules_out("Does the reader move, or do the bytes go on?", _drains),
    ),
    advice=Advice(
        confirm=("ss -tnp (or ss -xp): Recv-Q at the reader, Send-Q at the sender, both unchanged.",),
        repair=("See where the reader stands: it is the one that is stuck, or it never started to read.",),
    ),
    traps=("The sender is only the victim, even if it is the one that prints warnings.",),
    explains=frozenset({"queue_full"}),
)
