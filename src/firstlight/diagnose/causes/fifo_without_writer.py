"""A process opens or reads a FIFO whose other end nobody has: fifo(7) holds it until somebody comes."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits
from firstlight.diagnose.waits import Kind


def _alone(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        if one.wait.kind not in {Kind.OPEN, Kind.READ, Kind.POLL}:
            continue
        for file in filter(_has_no_other_end, one.wait.files):
            blocks = f"process {one.pid} blocks in {quotes.call(one.thread)}"
            yield Sighting(quotes.shortened(blocks), (one.pid,), file.target)
            yield Sighting(quotes.shortened(f"{file.target} is a FIFO (named pipe)"), (one.pid,))
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from unseen_waits(scene)


def _has_no_other_end(file: OpenFile) -> bool:
    being_opened = file.fd < 0
    return file.kind == "fifo" and (being_opened or (file.peers == () and not file.unseen))


CAUSE = Cause(
    id="fifo_without_writer",
    nature=Nature.HELD,
    title="{who} waits for FIFO {what}, and nobody opens its other end",
    clues=(decides("Does a process wait for a FIFO whose other end nobody has?", _alone),),
    advice=Advice(
        confirm=("ls -l {what} shows a p in front.",),
        repair=("Put a regular file in its place, or start the program that is to write it.",),
    ),
    each=True,
    evident=True,
)
