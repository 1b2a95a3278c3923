"""A process waits for a semaphore in shared memory that nobody posts."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Semaphore
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing

_POOLS = re.compile(
    r"/multiprocessing/(queues|pool)\.py$|/concurrent/futures/process\.py$|/_inductor/compile_worker/"
)


def _waited_for(scene: Scene) -> Iterator[tuple[Semaphore, tuple[int, ...]] | Gap]:
    """Semaphores at zero that processes of the server wait for, and who else has them mapped."""
    look = scene.last
    found = look.semaphores if look else ()
    if isinstance(found, Gap):
        yield found
        return
    own = {one.pid for one in scene.standings if not _idles_in_pool(one)}
    for one in found:
        if one.value == 0 and own & set(one.waiting):
            yield one, tuple(pid for pid in one.mapped_by if pid not in one.waiting)


def _idles_in_pool(one: Standing) -> bool:
    """Whether it is a pool's worker without work: of these one reads the queue, and the others wait for its turn."""
    return any(_POOLS.search(frame.file) for frame in one.stack)


def _nobody_left(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nobody has it mapped but those that wait for it, each with a single thread."""
    yield from _left_alone(scene, threads=False)


def _own_threads(scene: Scene) -> Iterator[Sighting | Gap]:
    """Nobody has it mapped but those that wait for it, one of which has other threads that could post it."""
    yield from _left_alone(scene, threads=True)


def _left_alone(scene: Scene, *, threads: bool) -> Iterator[Sighting | Gap]:
    for row in _waited_for(scene):
        if isinstance(row, Gap):
            yield row
            continue
        stands = [stand for pid in row[0].waiting if (stand := scene.standing(pid))]
        if not row[1] and any(stand.look.sample.threads > 1 for stand in stands) is threads:
            quote = f"{row[0].path} is at 0; only {scene.names.all(row[0].waiting)} have it, and wait for it"
            yield from _seen(scene, row[0], row[0].waiting, quote)


def _others(scene: Scene) -> Iterator[Sighting | Gap]:
    """Others have it mapped and do not post it."""
    for row in _waited_for(scene):
        if isinstance(row, Gap):
            yield row
        elif row[1]:
            waiting = scene.names.all(row[0].waiting)
            quote = f"{row[0].path} is at 0; {waiting} waits, {scene.names.all(row[1])} could post it"
            yield from _seen(scene, row[0], (*row[1], *row[0].waiting), quote)


def _seen(scene: Scene, one: Semaphore, pids: tuple[int, ...], quote: str) -> Iterator[Sighting]:
    yield Sighting(quotes.shortened(quote), pids, one.path)
    stands = (scene.standing(pid) for pid in one.waiting[:2])
    yield from (Sighting(quotes.stack(stand)) for stand in stands if stand)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    waiting = {pid for row in _waited_for(scene) if not isinstance(row, Gap) for pid in row[0].waiting}
    if seen[0].pids[0] in waiting:
        return "{who} waits for the semaphore {what}, which nobody else has"
    return "{who} should post the semaphore {what}, and does not"


CAUSE = Cause(
    id="semaphore_never_posted",
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does somebody wait for a semaphore that nobody else has?", _nobody_left),
        supports("Does a process wait for a semaphore that only threads of its own could post?", _own_threads),
        supports("Does somebody wait for a semaphore that another could post?", _others),
    ),
    advice=Advice(
        confirm=("See where those stand that have it mapped: grep -l sem. /proc/*/maps, then firstlight look PID.",),
        work_around=("Start again, all processes: whoever ended while it held the semaphore posts it no more.",),
        repair=("Take it with a deadline (sem_timedwait, acquire(timeout=…)), and post it in a finally clause.",),
    ),
    traps=(
        "Workers of a pool wait for a semaphore all their life: one of them reads the queue.",
        "A semaphore left in /dev/shm by an earlier run under the same name starts at the value that it had.",
    ),
)
