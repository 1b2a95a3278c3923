"""A process waits for a ZeroMQ message, and whoever should send it idles or is gone."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ProcessLook
from firstlight.core.vocabulary import Role
from firstlight.diagnose import quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.network import WEB_PORTS
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

_PATIENT = re.compile(r"/zmq/|/(queue|threading)\.py$")
_WAITS = r"(recv\w*|poll|_poll\w*|select) .*/zmq/"


class _Waiter(NamedTuple):
    """A main thread that waits for a message, and how that was seen."""

    look: ProcessLook
    quote: str

    @property
    def pid(self) -> int:
        return self.look.process.id.pid


def _waiting(scene: Scene) -> Iterator[_Waiter | Gap]:
    """Main threads that wait for a message; helpers do so all their life."""
    found = set()
    for there in where.at(scene, _WAITS):
        if isinstance(there, Gap):
            yield there
        elif there.main and there.thread.state != "R" and there.look.process.role is not Role.HELPER:
            found.add(there.pid)
            yield _Waiter(there.look, where.shown(scene, there).quote)
    for one in scene.standings:
        if one.pid not in found and one.look.process.role is not Role.HELPER and _in_mailbox(one.look):
            yield _Waiter(one.look, quotes.stack(one))


def _in_mailbox(look: ProcessLook) -> bool:
    """Whether the main thread waits as libzmq does, which leaves no frame of its own in a Python stack: in a poll for
    one eventfd, in a process with threads of ZeroMQ's."""
    main = next((one for one in look.threads if one.tid == look.process.id.pid), None)
    if main is None or isinstance(main.syscall, Gap) or not main.syscall.startswith(("poll(", "ppoll(")):
        return False
    waited = [file for file in look.files if file.fd in main.fds]
    serves = any(thread.name.startswith("ZMQbg/") for thread in look.threads)
    return serves and len(main.fds) == 1 and all("eventfd" in file.target for file in waited)


def _peers(there: _Waiter) -> set[int]:
    """Who holds the other end of its ipc:// and tcp:// connections."""
    files = (file for file in there.look.files if _is_link(file))
    ends = (file.peers for file in files if not isinstance(file.peers, Gap))
    return {pid for peers in ends for pid in peers} - {there.pid}


def _is_link(file: OpenFile) -> bool:
    """Whether a socket may be one of ZeroMQ's: a unix socket with a path at either end, or TCP to no web port."""
    one = file.socket
    if one is None or one.state == "LISTEN":
        return False
    return bool(one.host or one.peer_host) if one.family == "unix" else one.peer_port not in WEB_PORTS


def _idle_peer(scene: Scene) -> Iterator[Sighting | Gap]:
    """Everybody at the other end sleeps, or waits for a message, too."""
    for there in _waiting(scene):
        if isinstance(there, Gap):
            yield there
            continue
        others = [one for pid in _peers(there) if (one := scene.standing(pid))]
        if others and all(_idles(one) for one in others):
            yield Sighting(there.quote, (*(one.pid for one in others), there.pid))
            yield from (Sighting(quotes.stack(one)) for one in others[:2])


def _idles(one: Standing) -> bool:
    """Whether it waits for nobody that could be named: it sleeps, or waits for a message, a queue or an event."""
    here = where.main_place(one.look)
    patient = here is not None and any(_PATIENT.search(frame.file) for frame in here.frames)
    waits = one.wait.kind is Kind.SLEEPS or (patient and not one.wait.pids)
    return waits and not one.moves and not one.spins


def _nobody(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nobody of the server is left but the one that waits, and its helpers."""
    others = {one.pid for one in scene.standings if one.look.process.role is not Role.HELPER}
    for there in _waiting(scene):
        if isinstance(there, Gap):
            yield there
        elif others == {there.pid} and not _peers(there) and scene.ended:
            yield Sighting(f"{there.quote}; nobody is connected", (there.pid,))


def _moves(scene: Scene) -> Iterator[Sighting]:
    yield from where.moving(scene)


CAUSE = Cause(
    id="zmq_no_reply",
    nature=Nature.SYMPTOM,
    title="a ZeroMQ message is waited for that {who} does not send",
    clues=(
        supports("Does whoever should send a message idle, or wait for one, too?", _idle_peer),
        supports("Is nobody connected any more to send it?", _nobody),
        rules_out("Does somebody of the server move?", _moves),
    ),
    advice=Advice(
        confirm=("ss -xp | grep ipc shows who is connected; firstlight look PID shows where it stands.",),
        repair=("Receive with a deadline (RCVTIMEO, poll(timeout)), and say which peer was waited for.",),
    ),
    traps=("Most processes of a server wait for messages when nothing is to do: the question is who should send.",),
)
