"""The error that ended somebody, joined with its end: what was raised shortly before, in which frames. Pure.

An error that somebody got over is none: its source went on with its work. What was raised first, over all ranks, is
the failure; what others tell afterwards, of a lost connection or a failed child, follows from it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from firstlight.core.bundle import LogTail
from firstlight.core.log import LogLine
from firstlight.core.process import Exit
from firstlight.core.words import exit_words
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.failures.kinds import Kind, follows, refusal
from firstlight.diagnose.losses import is_orderly
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import SUPPOSES

BEFORE_S, AFTER_S = 60.0, 15.0
"""A server that has failed takes its time to end, and its last words may be read after its end."""
WENT_ON, WENT_ON_RAISED = 3, 10
"""Ordinary lines of the same source after an error: more, and it was got over. Several ranks may be one source, and
others go on for a while after one has raised an exception."""
LATER_S = 1.0
"""What another stream says so much later was said later: of two streams the order is not known to the moment."""
PROMPT_S = 30.0
"""A server that has failed takes its time to end, but not as long as this."""
FRAMES_MAX = 40
ERRORS_MAX = 400
"""Errors that are considered, the first; what comes later follows from them."""
_FRAME = re.compile(r'^\W{0,4}File "(?P<file>[^"]{1,400})", line \d{1,7}(?:, in (?P<function>.{1,120}))?')
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_CHAINED = re.compile(r"above exception was the direct cause|another exception occurred")
_RAISED = re.compile(
    r"^\s{0,3}(?:\w{1,60}\.){0,8}_?[A-Z]\w{0,60}(?:Error|Exception|Exit|Failure|Timeout)\b(?::|$)"
    r"|^\s{0,3}Exception\b(?! ignored)"
)
_NAMED = re.compile(r"^(?:\w{1,60}\.){0,8}[A-Z][a-z]\w{1,60}(?::|$)")
"""An exception whose name does not say so, right after the frames of a traceback."""
_ORDINARY = re.compile(r"\b(?:INFO|DEBUG|WARN|WARNING)\b|\b(?:User|Future|Deprecation|Runtime)Warning\b|\bI\d{4} ")
_ENDING = re.compile(r"shut|stop|exit|clean|terminat|wait\w* for|kill|destroy|usage:", re.IGNORECASE)
_AFTERMATH = re.compile(
    r"^\W*$|^Exception ignored|^Failures?:|Root Cause|\bFAILED\b|resource_tracker|ProcessGroup|^sys:1:", re.IGNORECASE
)
"""What interpreters and launchers add to an exception that ended a process."""
_STATUSES = frozenset({1, 3})
"""What Python exits with after an exception, and uvicorn."""
_WEAK = frozenset({Kind.REFUSED, Kind.UNREACHABLE, Kind.NAME})
"""What others tell of somebody who has gone before."""


class Frame(NamedTuple):
    """A frame of a traceback as it was printed, with its line of source where it has one."""

    file: str
    function: str
    source: str


class Error(NamedTuple):
    """A line that tells of an error. `raised` if Python raised it; `frames` are those of its traceback, innermost
    last; `chained` if another was raised because of the one before."""

    line: LogLine
    raised: bool
    frames: tuple[Frame, ...]
    chained: bool = False


class Failure(NamedTuple):
    """What ended somebody. `what` is what it is about, `end` the first end that it explains."""

    kind: Kind
    what: str
    error: Error
    end: Exit

    @property
    def message(self) -> str:
        return self.error.line.message

    @property
    def sighting(self) -> Sighting:
        line = self.error.line
        who = f"{line.source}: " if line.source else ""
        return Sighting(shortened(f"log: {who}{line.message}"), (self.end.id.pid,), shortened(self.what))


def failed(scene: Scene, *kinds: Kind) -> Iterator[Sighting]:
    """The errors of these kinds that ended somebody, and the end."""
    for one in failures(scene):
        if one.kind in kinds:
            yield one.sighting
            yield ended(one.end)


def surely(scene: Scene, kind: Kind) -> Iterator[Failure]:
    """The error of this kind, where whoever ended is known to have failed by itself, with an exit status, nobody told
    of another exception or refusal, but those that were raised because of it or before it, and nothing tells that
    the server went on after it."""
    told = failures(scene)
    if not told or {one.kind for one in told} != {kind} or not _ended_with(scene, told[0]):
        return
    chains = _chains(_fatal(scene))
    if not chains or (len({chain[-1].line.message for chain in chains}) == 1 and told[0].error in chains[0]):
        yield told[0]


def is_last(scene: Scene, one: Failure) -> bool:
    """Whether nothing tells that the server went on after an error: its end came soon, and no other words between."""
    error = one.error.line
    return one.end.at - error.at <= PROMPT_S and not any(_is_other(error, line) for line in _after(scene, error))


def _ended_with(scene: Scene, one: Failure) -> bool:
    """Whether an error was the last of whoever ended, with an exit status that fits it."""
    code = one.end.code
    fits = code in _STATUSES if one.error.raised else isinstance(code, int) and code > 0
    return fits and is_last(scene, one)


def _after(scene: Scene, error: LogLine) -> Iterator[LogLine]:
    """What whoever told of an error may have said after it: its own source, and streams that name no source."""
    for tail in scene.bundle.logs:
        kept = _in_order(tail)
        if error in kept:
            yield from kept[kept.index(error) + 1 :]
        elif not error.source:
            yield from (line for line in kept if not line.source and line.at > error.at + LATER_S)


def _is_other(error: LogLine, line: LogLine) -> bool:
    """Whether a line is about something else than an error and the end that came of it."""
    words = line.message
    if line.pid != error.pid or line.source != error.source or words[:1].isspace() or follows(words):
        return False
    belongs = (_FRAME, _TRACEBACK, _CHAINED, _RAISED)
    return not (any(one.search(words) for one in (*belongs, _AFTERMATH, _ENDING)) or refusal(words))


def _chains(errors: Sequence[Error]) -> list[list[Error]]:
    """Exceptions, those together that were raised because of each other."""
    chains: list[list[Error]] = []
    for one in errors:
        if one.raised and one.chained and chains:
            chains[-1].append(one)
        elif one.raised:
            chains.append([one])
    return chains


def ended(gone: Exit) -> Sighting:
    """An end in short."""
    return Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,))


def raised_in(scene: Scene, pattern: str, error: str = ".") -> Iterator[Sighting]:
    """Exceptions that ended somebody and match `error`, raised where the innermost frame's "file: function: source"
    matches `pattern`."""
    for one in _fatal(scene):
        inner = one.frames[-1:] if one.raised else ()
        place = "".join(f"{frame.file}: {frame.function}: {frame.source}" for frame in inner)
        if place and re.search(pattern, place) and re.search(error, one.line.message, re.IGNORECASE):
            yield Sighting(shortened(f"log: {one.line.message}"), (scene.deaths[0].id.pid,))
            yield Sighting(shortened(f"raised in {place}"))


def raised(scene: Scene) -> Iterator[Error]:
    """Exceptions that ended somebody."""
    yield from (one for one in _fatal(scene) if one.raised)


@lru_cache(maxsize=8)
def failures(scene: Scene) -> tuple[Failure, ...]:
    """What ended somebody; empty where nobody ended by itself, or no line tells."""
    found = []
    for one in _fatal(scene):
        told = _refused(one)
        if told:
            kind, what = told
            found.append(Failure(kind, what, one, scene.deaths[0]))
    return tuple(found)


_NAMED_ALONE = re.compile(r"\[Errno 2\] [^:]{1,60}: '[\w+-]{1,40}'")
_STARTS = re.compile(r"subprocess|\bPopen\b|\b_?exec|spawn", re.IGNORECASE)


def _refused(one: Error) -> tuple[Kind, str] | None:
    """What an error tells to have been refused. A name without a folder is a program's only where one was started."""
    told = refusal(one.line.message)
    if told is None:
        return _by_call(one)
    place = "".join(f"{frame.file} {frame.source}" for frame in one.frames[-1:])
    is_file = place and _NAMED_ALONE.search(one.line.message) and not _STARTS.search(place)
    return (Kind.PATH, told.what) if is_file and told.kind is Kind.INSTALLATION else told


_CALLS = ((Kind.BINDING, re.compile(r"sched_setaffinity|set_mempolicy|numa_(?:set|bind|run)\w*\(")),)
_NUMBER_ONLY = re.compile(r"\[Errno \d+\] (?:Invalid argument|Operation not permitted)$")


def _by_call(one: Error) -> tuple[Kind, str] | None:
    """A number of the system alone tells little; the call that was refused tells the rest."""
    if not one.frames or not _NUMBER_ONLY.search(one.line.message):
        return None
    return next(((kind, "") for kind, call in _CALLS if call.search(one.frames[-1].source)), None)


@lru_cache(maxsize=8)
def _fatal(scene: Scene) -> tuple[Error, ...]:
    """The errors from which the first end follows, in the order in which they were told.

    Once an exception was raised that ended a process, the lost connections of others are no news.
    """
    gone = next(iter(scene.deaths), None)
    if gone is None or is_orderly(gone):
        return ()
    told = [one for tail in scene.bundle.logs for one in _errors(tail) if _is_near(one, gone, scene)]
    earliest = sorted(told, key=lambda one: one.line.at)[:ERRORS_MAX]
    told = [one for one in earliest if not follows(one.line.message)]
    first = next((at for at, one in enumerate(told) if one.raised), None)
    if first is None:
        return tuple(told)
    return tuple(one for at, one in enumerate(told) if at <= first or one.chained or not _is_weak(one))


def _is_weak(one: Error) -> bool:
    told = refusal(one.line.message)
    return told is not None and told.kind in _WEAK


def _is_near(one: Error, gone: Exit, scene: Scene) -> bool:
    """Whether it was told around the end; when one ended that a look found gone, nobody knows."""
    return gone not in scene.bundle.exits or -AFTER_S <= gone.at - one.line.at <= BEFORE_S


def _errors(tail: LogTail) -> Iterator[Error]:
    """The errors of one source that it did not get over."""
    lines = _in_order(tail)
    ordinary = [at for at, line in enumerate(lines) if _went_on(line)]
    for at, one in _told(lines):
        if sum(after > at for after in ordinary) <= (WENT_ON_RAISED if one.raised else WENT_ON):
            yield one


def _in_order(tail: LogTail) -> list[LogLine]:
    """All lines that were kept of a source, each once."""
    first = (tail.first_error,) if tail.first_error else ()
    kept = {(line.at, line.text): line for line in (*first, *tail.warnings, *tail.lines)}
    return sorted(kept.values(), key=lambda line: line.at)


def _told(lines: Sequence[LogLine]) -> Iterator[tuple[int, Error]]:
    """Each line that tells of an error, with its number; what a traceback quotes is none."""
    frames: list[Frame] = []
    chained = quoted = pending = False
    for at, line in enumerate(lines):
        words = line.message
        place = _FRAME.match(words)
        if place:
            frames = [*frames[-FRAMES_MAX:], Frame(place["file"], place["function"] or "", "")]
            pending = True
        elif quoted and words.startswith("  "):
            frames[-1] = frames[-1]._replace(source=frames[-1].source or words.strip()[:200])
        elif _TRACEBACK.search(words):
            frames = []
        elif _CHAINED.search(words):
            chained = True
        elif _is_error(line):
            raised = bool(frames) and bool(_RAISED.match(words) or (pending and _NAMED.match(words)))
            pending = pending and not raised
            yield at, Error(line, raised, tuple(frames), chained)
            chained = chained and not raised
        quoted = bool(place) or (quoted and words.startswith("  "))


def _is_error(line: LogLine) -> bool:
    """Whether a line may tell of an error: it says no less than that, by its level or in lack of one."""
    mild = line.level.upper() in {"INFO", "DEBUG", "WARNING", "WARN", "I", "W", "TRACE"}
    ordinary = mild or (not line.level and "NCCL WARN" not in line.message and _ORDINARY.search(line.message[:80]))
    return bool(line.message.strip()) and not ordinary and not SUPPOSES.search(line.message)


def _went_on(line: LogLine) -> bool:
    """Whether a line tells of ordinary work, rather than of an end."""
    ordinary = line.level.upper() in {"INFO", "DEBUG"} or _ORDINARY.search(line.message[:80])
    return bool(ordinary) and not _ENDING.search(line.message)
