"""The port that the server wants belongs to somebody else."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Listener
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.failures import Kind, ended, surely
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import lines

_TAKES_ANOTHER = re.compile(
    r"\b(try|us|tak|pick|choos|select|switch|mov|fall)ing\b.{0,40}\b(port|one|instead)\b|\bwill (use|try|take)\b"
    r"|\b(used|took|picked|chose|switched|moved)\b.{0,40}\b(instead|another|next)\b",
    re.IGNORECASE,
)
"""It has taken another port by itself; one that asks its user for another one has not."""
_NUMBER_OF_ERROR = re.compile(r"\b(errno|os error|code):?\s*-?\d+", re.IGNORECASE)
_IN_USE = re.compile(
    r"address (is )?(already )?in use|EADDRINUSE|errno:? 98\b|os error 98\b|AddrInUse|port\b.* is not available"
    r"|\bport\b.{0,20}\b(is|was) (already |currently )?(in use|occupied|taken)"
    r"|\bport\b.{0,20}\b(is|was) (already|currently) (used|bound|allocated)"
    r"|(could not|couldn't|can't|cannot|failed to|unable to) bind\b"
    r"(?!.*(assign|permi|denied|numa|interface|core)).*(\bport\b.{0,3}\d|socket|:\d{2,5}\b)",
    re.IGNORECASE,
)


def _refusals(scene: Scene) -> Iterator[tuple[Sighting, frozenset[int]]]:
    """Lines that say that a port is taken, of any rank, and the numbers in them that may be ports."""
    for line in lines(scene.bundle):
        if _IN_USE.search(line.message) and not _TAKES_ANOTHER.search(line.message):
            numbers = _ports(line.message)
            who = f"{line.source}: " if line.source else ""
            yield Sighting(shortened(f"log: {who}{line.message}"), (line.pid,) if line.pid else ()), numbers


def _ports(message: str) -> frozenset[int]:
    """Numbers in a line that may be ports; those of errors are none."""
    plain = _NUMBER_OF_ERROR.sub("", message)
    return frozenset(int(word) for word in re.findall(r"(?<![\d.])\d{2,5}(?![\d.])", plain))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended with its only error, that an address is in use, and exit status of its own."""
    for one in surely(scene, Kind.PORT):
        if not _TAKES_ANOTHER.search(one.message):
            port = max(_ports(one.message), default=0) or ""
            yield one.sighting._replace(what=str(port))
            yield ended(one.end)


def _refused_and_owned(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that a port is taken, the server's own or any other, and who has it was seen."""
    owners = {port: (pid, quote) for port, pid, quote in _owners(scene)}
    for sighting, numbers in _refusals(scene):
        for port in numbers & owners.keys():
            pid, quote = owners[port]
            yield Sighting(quote, (pid,), str(port))
            yield Sighting(sighting.quote)


def _owners(scene: Scene) -> Iterator[tuple[int, int, str]]:
    """Ports of others: the port, the pid and the words."""
    for one in scene.foreign_listeners:
        if one.pid:
            yield one.port, one.pid, f"{_listens(one)}, and is not part of this server"
    look = scene.last
    for left in look.leftovers if look and not isinstance(look.leftovers, Gap) else ():
        for held in left.holds:
            if re.fullmatch(r"port \d{1,5}", held):
                quote = f"pid {left.pid} ({left.name}, state {left.state}) of an earlier run holds {held}"
                yield int(held.split()[1]), left.pid, shortened(quote)


def _refused(scene: Scene) -> Iterator[Sighting]:
    """The log says that a port is taken; by whom was not seen."""
    for sighting, numbers in _refusals(scene):
        yield sighting._replace(what=str(max(numbers, default="")))


def _by_a_known_process(scene: Scene) -> Iterator[Sighting | Gap]:
    """A listener on the server's port that is none of the server's processes."""
    for one in _on_its_port(scene):
        if one.pid:
            yield Sighting(f"{_listens(one)}, and is not part of this server", (one.pid,), str(one.port))
    yield from _unseen(scene)


def _on_its_port(scene: Scene) -> list[Listener]:
    return [one for one in scene.foreign_listeners if scene.bundle.port in {0, one.port}][:1]


def _by_somebody(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in _on_its_port(scene):
        if not one.pid:
            yield Sighting(f"{_listens(one)}; it may be the server itself", what=str(one.port))
    yield from _unseen(scene)


def _unseen(scene: Scene) -> Iterator[Gap]:
    look = scene.last
    if look and isinstance(look.listeners, Gap):
        yield look.listeners


def _listens(listener: Listener) -> str:
    owner = f"pid {listener.pid}" if listener.pid else "a process that could not be seen"
    return shortened(f"{owner} listens on {listener.host} port {listener.port}")


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    owner = next((one for one in seen if one.pids and one.what and not one.quote.startswith("log:")), None)
    if owner:
        return f"port {{what}} is already taken by pid {owner.pids[0]}"
    if any(one.quote.startswith("log:") for one in seen):
        if any(one.what for one in seen):
            return "a port that the server wants ({what}) is taken"
        own = f"; its own is {scene.bundle.port}" if scene.bundle.port else ""
        return f"a port that the server wants is taken{own}"
    return "port {what} may be taken by a process that could not be seen"


CAUSE = Cause(
    id="port_in_use",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Does a process that is none of the server's listen on its port?", _by_a_known_process),
        decides("Does the log say that a port is taken that a known process has?", _refused_and_owned),
        decides("Did a process end with its only error, that an address is in use?", _ended_by_it),
        supports("Does the log say that a port is taken?", _refused),
        supports("Does somebody who could not be seen listen on its port?", _by_somebody),
        foresees("Does a process listen on the port already?", _by_a_known_process, surely=True),
        foresees("Does somebody who could not be seen listen on the port already?", _by_somebody),
    ),
    explains=frozenset({"leftover_process"}),
    advice=Advice(
        steps=("Choose another port, or end the process that holds it if an earlier run left it behind.",),
        confirm=("ss -ltnp 'sport = :{what}' shows who listens.",),
    ),
)
