"""What this version of the engine does not support together: options that it takes and hangs with, or what it only
finds out, and says, once it works."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.log import LogLine
from firstlight.core.vocabulary import Motion, Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.devices import some_in, version
from firstlight.diagnose.failures.kinds import follows, refusal
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines


class Combination(NamedTuple):
    """Options that do not go together before version `until` of `engine`, and hang where frames match `place`.

    * in the name of an option stands for any ending. `source` tells of it.
    """

    engine: str
    until: tuple[int, ...]
    options: tuple[str, ...]
    place: str
    source: str


KNOWN = (
    Combination(
        "sglang",
        (0, 4, 7),
        ("enable-dp-attention", "speculative-algo*"),
        r"draft|eagle|nextn|\bmtp\b|spec",
        "https://github.com/sgl-project/sglang/issues/6296",
    ),
)

WENT_ON = 3
"""Lines after an exception: more, and it was got over."""
_RAISED = re.compile(r"\s{0,3}(?:\w{1,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)\b(?::|$)")
_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL", "E", "F"})
_FRAME = re.compile(r"Traceback|  ")
"""Tracebacks have the level of what they are told with."""
_MEANS_NOTHING = re.compile(r"\b(GET|HEAD) /\S|shared memory broadcast block|^Waiting for|Engine \d+: Avg")
"""What a server says regardless: probes, counts, and complaints that somebody does not come back."""
_UNSUPPORTED = re.compile(
    r"^(?!.*\[Errno).*?"
    r"(?:\b(?:is|are|does|do|was|were|has|have) ?(?:not|n't)(?: \w+)? (?:support|implement|compatible)"
    r"|\b(?:only|not) (?:yet )?(?:supported|implemented|compatible) (?:with|for|when|in|on|together)\b"
    r"|\bincompatible with\b|\bunsupported (?:combination|configuration)\b"
    r"|\bcannot be (?:used|combined) (?:with|when)\b)|^NotImplementedError: .",
    re.IGNORECASE,
)


def _stands_there(scene: Scene) -> Iterator[Sighting | Gap]:
    """The combination was given, and somebody stands where it shows."""
    for one in _given_together(scene):
        yield from both(one.seen, some_in(scene, one.combination.place))


def _says(scene: Scene) -> Iterator[Sighting]:
    """Somebody failed as something is not supported, and with nothing else since; nobody ended of it, and whoever
    asked gets no answer. Who was refused for one request, and told so, is followed by the next."""
    bundle = scene.bundle
    if scene.deaths or bundle.motion is Motion.MOVING or (bundle.phase is Phase.SERVING and not bundle.question):
        return
    told = sorted(lines(bundle), key=lambda line: line.at)
    last = next((at for at in reversed(range(len(told))) if _is_error(told[at])), None)
    after = [] if last is None else [line for line in told[last + 1 :] if not _MEANS_NOTHING.search(line.message)]
    if last is not None and len(after) <= WENT_ON:
        line = told[last]
        if _UNSUPPORTED.search(line.message) and refusal(line.message) is None:
            yield Sighting(shortened(f"log: {line.message}"), (line.pid,) if line.pid else ())


def _is_error(line: LogLine) -> bool:
    """Whether an exception or an error is told, and not that of somebody else."""
    told = bool(_RAISED.match(line.message)) or line.level.upper() in _LEVELS
    return told and not follows(line.message) and not _FRAME.match(line.message)


def _foreseen(scene: Scene) -> Iterator[Sighting]:
    yield from (sighting for one in _given_together(scene) for sighting in one.seen)


class Given(NamedTuple):
    """A combination that was given, and the words for it."""

    combination: Combination
    seen: tuple[Sighting, ...]


def _given_together(scene: Scene) -> Iterator[Given]:
    bundle, number = scene.bundle, version(scene.bundle.engine_version)
    for one in KNOWN:
        given = [_given(scene, name) for name in one.options]
        if bundle.engine == one.engine and () < number < one.until and all(given):
            together = " with ".join(f"--{name}" for name in given)
            told = shortened(f"{bundle.engine} {bundle.engine_version}: {together} ({one.source})")
            yield Given(one, (Sighting(told, what=together),))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.what for one in seen):
        return "this version does not support {what}"
    return "the server says that it does not support what it was asked for"


def _given(scene: Scene, wanted: str) -> str:
    """The option as it was given; empty if it was not."""
    names = (name for name, _ in scene.bundle.options)
    return next((name for name in names if fnmatch(name, wanted)), "")


CAUSE = Cause(
    id="unsupported_combo",
    nature=Nature.DIVERGED,
    title=_title,
    clues=(
        supports("Does somebody stand where options hang that were given together?", _stands_there),
        supports("Does the server say that something is not supported, and live on without an answer?", _says),
        foresees("Were options given together that hang in this version?", _foreseen),
    ),
    advice=Advice(
        confirm=("Start once without one of the two.",),
        work_around=("Leave one of them out.",),
        repair=("Update the engine.",),
    ),
    traps=(
        "That a start goes well without an option makes it the trigger; the version tells whether it is the cause.",
    ),
)
