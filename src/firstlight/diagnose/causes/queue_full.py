"""Writing blocks, or putting into a bounded queue: whoever is to take it does not."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import network, quotes, storage
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

_TERMINAL = re.compile(r"n_tty_write|tty_write|pty_write")


def _full(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        writes = _writes(one) and not any(network.sent(scene, one.look, file) > 0 for file in one.wait.files)
        if writes or _puts(one):
            what = "terminal" if _on_terminal(one) else "pipe" if writes else "queue"
            blocks = f"process {one.pid} blocks in {quotes.call(one.thread)}"
            yield Sighting(quotes.shortened(blocks), (one.pid, *one.wait.pids), what)
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from unseen_waits(scene)


def _writes(one: Standing) -> bool:
    return _into_end(one) or _on_terminal(one)


def _on_terminal(one: Standing) -> bool:
    """A terminal that was stopped (Ctrl-S), or whose window nobody reads."""
    functions = storage.kernel_functions(one.thread) if one.thread else ()
    terminal = not isinstance(functions, Gap) and any(map(_TERMINAL.search, functions))
    return one.wait.kind is Kind.WRITE and terminal


def _into_end(one: Standing) -> bool:
    return one.wait.kind is Kind.WRITE and any(file.kind in {"pipe", "fifo", "socket"} for file in one.wait.files)


def _puts(one: Standing) -> bool:
    operation = one.place.operation if one.place else None
    if operation is None:
        return False
    in_queue = re.search(r"(^|\.)put$", operation.function) is not None and one.wait.kind is Kind.FUTEX
    by_zmq = "/zmq/" in operation.file and operation.function.rpartition(".")[2].startswith("send")
    return in_queue or (by_zmq and one.wait.kind in {Kind.POLL, Kind.FUTEX} and not one.moves)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    readers = seen[0].pids[1:]
    should = f"; {scene.names.all(readers)} should read it" if readers else ""
    return f"{{who}} waits for room in a {{what}} that nobody empties{should}"


_SEE = "See what the reading side does: it is the one that is stuck, or it never started to read."
_READ = "Read the pipe, or use communicate() where a Popen made it: who has its other end does not read it."


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if any(one.what == "terminal" for one in seen):
        return Advice(steps=("Press Ctrl-Q in its terminal, or send the output to a file.",))
    return Advice(steps=(_READ, _SEE) if any(one.what == "pipe" for one in seen) else (_SEE,))


CAUSE = Cause(
    id="queue_full",
    nature=Nature.HELD,
    title=_title,
    clues=(supports("Does a process wait for room in a pipe or a queue?", _full),),
    advice=_advice,
    each=True,
    evident=True,
)
