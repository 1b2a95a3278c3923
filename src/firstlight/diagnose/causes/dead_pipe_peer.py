"""A process reads where nobody else holds the other end: the kernel reports an end only when the last holder closes
it, and here the reader itself, or nobody who could be seen, holds the writing end."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Role
from firstlight.core.words import exit_words
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

ENDED_TOLD = 4
_BUILDERS = {Role.COMPILER, Role.HELPER}


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nobody else can write: it has no other thread, and every process was searched for the other end."""
    for one in _left_alone(scene):
        if not _others_could_write(one):
            yield from _seen(scene, one)
    yield from unseen_waits(scene)


def _probably(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in _left_alone(scene):
        if _others_could_write(one):
            yield from _seen(scene, one)
    yield from unseen_waits(scene)


def _left_alone(scene: Scene) -> Iterator[Standing]:
    for one in scene.standings:
        files = one.wait.files
        if _reads_for_good(one) and files and all(_is_left_alone(file, one.pid) for file in files):
            yield one


def _others_could_write(one: Standing) -> bool:
    return one.look.sample.threads > 1 or any(file.unseen for file in one.wait.files)


def _seen(scene: Scene, one: Standing) -> Iterator[Sighting]:
    told = [f"process {one.pid} blocks in {quotes.call(one.thread)}", *map(_other_end, one.wait.files[:3])]
    yield from (Sighting(quotes.shortened(line), (one.pid,)) for line in told)
    yield Sighting(quotes.stack(one), (one.pid,))
    for gone in _may_have_been_it(scene):
        yield Sighting(quotes.shortened(f"ended before: {of_exit(gone)} {exit_words(gone)}"), (one.pid,))


def _may_have_been_it(scene: Scene) -> tuple[Exit, ...]:
    """Whoever ended and may have held the other end: those that are missed, then the last to end."""
    others = (gone for gone in reversed(scene.ended) if gone not in scene.deaths and gone.role not in _BUILDERS)
    return (*scene.deaths, *others)[:ENDED_TOLD]


def _reads_for_good(one: Standing) -> bool:
    """A plain read, or a poll for one connection; event loops poll a socket of their own to be woken."""
    if one.wait.kind is Kind.READ:
        return True
    return one.wait.kind is Kind.POLL and any("multiprocessing/connection" in frame.file for frame in one.stack)


def _is_left_alone(file: OpenFile, pid: int) -> bool:
    if file.kind not in {"pipe", "socket"} or isinstance(file.peers, Gap):
        return False
    return all(peer == pid for peer in file.peers)


def _other_end(file: OpenFile) -> str:
    holder = "this process alone" if file.peers else "nobody"
    limit = f", as far as could be seen ({file.unseen} could not be searched)" if file.unseen else ""
    return f"the other end of descriptor {file.fd} ({file.target}) is held by {holder}{limit}"


CAUSE = Cause(
    id="dead_pipe_peer",
    nature=Nature.SYMPTOM,
    title="{who} waits for data that nobody is left to send",
    clues=(
        decides("Does a process with one thread read where nobody else has the other end?", _surely),
        supports("Does a process read where nobody else was seen to have the other end?", _probably),
    ),
    advice=Advice(steps=("Find the process that was to send: it has ended, or was never given its end.",)),
    traps=("A connection to another machine has its other end there: only local ends are searched.",),
    each=True,
    evident=True,
)
