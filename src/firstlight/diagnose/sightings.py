"""The questions that clues ask again and again: what the log said, where threads stand, what is mapped and set. Pure.

Each yields sightings with the observation quoted, and a gap where it could not be seen.
"""

import re
from collections.abc import Iterable, Iterator

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.log import LogLine
from firstlight.core.look import ProcessLook, ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose import places
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.quotes import outwards, shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.waits import Kind

NO_LOOK = Gap(what="processes", reason=GapReason.NOT_SUPPORTED, detail="the bundle holds no look at them")


def lines(bundle: Bundle) -> Iterator[LogLine]:
    """Every line of the log that the bundle kept: first errors, warnings and last words, each once."""
    seen = set()
    for tail in bundle.logs:
        for line in (*([tail.first_error] if tail.first_error else []), *tail.warnings, *tail.lines):
            if (line.at, line.text) not in seen:
                seen.add((line.at, line.text))
                yield line


SUPPOSES = re.compile(
    r"\b(can|may|might|could) (also )?(cause|lead to|result in)\b|\bconsider (increasing|raising|setting)\b"
    r"|\bfalling back\b|\bfell back\b|\busing \S+ (\S+ )?instead\b",
    re.IGNORECASE,
)
"""What a line warns of, or has got over, did not happen."""


def said(scene: Scene, pattern: str) -> Iterator[Sighting]:
    """Lines of the log that match `pattern` (a regular expression, case ignored), and tell what happened: not what
    might, nor what was got over."""
    wanted = re.compile(pattern, re.IGNORECASE)
    for line in lines(scene.bundle):
        if wanted.search(line.message) and not SUPPOSES.search(line.message):
            who = f"{line.source}: " if line.source else ""
            yield Sighting(shortened(f"log: {who}{line.message}"), pids=(line.pid,) if line.pid else ())


def kernel_said(scene: Scene, pattern: str) -> Iterator[Sighting | Gap]:
    """Lines of the kernel's log that match `pattern`."""
    look = scene.last
    told = look.kernel_log if look else ()
    if isinstance(told, Gap):
        yield told
        return
    for line in told:
        if re.search(pattern, line, re.IGNORECASE):
            yield Sighting(shortened(f"kernel log: {line}"))


def processes(scene: Scene) -> tuple[ProcessLook, ...]:
    """Every process of the last look."""
    look = scene.last
    return look.processes if look else ()


def gpus(scene: Scene) -> tuple[Gpu, ...] | Gap:
    """The GPUs of the last look."""
    look = scene.last
    return look.gpus if look else ()


def stands_in(scene: Scene, pattern: str, *, native: bool = False, waiting: bool = False) -> Iterator[Sighting | Gap]:
    """Threads with a Python frame (or with `native` a native one) that matches `pattern`, as "function (file)".

    With `waiting` only threads that do not run. A process of which no stack could be seen gives its gap.
    """
    for there in places.found(scene, re.compile(pattern), words_of, native=native):
        if isinstance(there, Gap):
            yield there
        elif not (waiting and there.thread.state == "R"):
            shown = outwards(places.texts(there.stack, words_of), there.depth)
            yield Sighting(shortened(f"{scene.name(there.pid)}: {shown}"), (there.pid,))


def unseen_waits(scene: Scene) -> Iterator[Gap]:
    """What kept it from being seen what some process waits for."""
    if scene.last is None:
        yield NO_LOOK
    for one in scene.standings:
        if one.thread is None:
            yield from one.look.gaps
        elif one.wait.kind is Kind.UNKNOWN and isinstance(one.thread.syscall, Gap):
            yield one.thread.syscall


def unseen_stacks(scene: Scene) -> Iterator[Gap]:
    """What kept a Python stack from being seen."""
    if scene.last is None:
        yield NO_LOOK
    for one in scene.standings:
        if one.thread is None:
            yield from one.look.gaps
        else:
            yield from (thread.stack for thread in one.look.threads if isinstance(thread.stack, Gap))


def libraries(scene: Scene, *kinds: str) -> Iterator[tuple[ProcessLook, Library] | Gap]:
    """The mapped libraries of these kinds, by process."""
    for one in processes(scene):
        mapped = one.facts.libraries
        if isinstance(mapped, Gap):
            yield mapped
            continue
        yield from ((one, library) for library in mapped if library.kind in kinds)


def variables(scene: Scene) -> dict[str, str]:
    """The environment of the launch, and what processes have set beyond it."""
    found: dict[str, str] = {}
    for one in processes(scene):
        if not isinstance(one.facts.environment, Gap):
            found |= dict(one.facts.environment)
    return {**found, **dict(scene.bundle.environment)}


def variable(scene: Scene, pattern: str) -> Iterator[Sighting]:
    """Variables whose name matches all of `pattern`, as NAME=value."""
    for name, value in variables(scene).items():
        if re.fullmatch(pattern, name):
            yield Sighting(shortened(f"environment: {name}={value}"), what=name)


def threads(scene: Scene) -> Iterator[tuple[ProcessLook, ThreadLook]]:
    """Every thread of every process."""
    for one in processes(scene):
        for thread in one.threads:
            yield one, thread


def both(first: Iterable[Sighting | Gap], second: Iterable[Sighting | Gap]) -> Iterator[Sighting | Gap]:
    """The sightings of both questions if each has one; otherwise what kept the other from being seen."""
    answers = [list(first), list(second)]
    if all(any(isinstance(one, Sighting) for one in answer) for answer in answers):
        yield from (one for answer in answers for one in answer if isinstance(one, Sighting))
        return
    for answer in answers:
        if not any(isinstance(one, Sighting) for one in answer):
            yield from (one for one in answer if isinstance(one, Gap))
