"""A spawned child runs the user's script again from the top, since its start is not under a main guard."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, ThreadLook
from firstlight.diagnose import frames, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import ended, raised
from firstlight.diagnose.quotes import chain, shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import said, threads

_TOLD = r"current process has finished its bootstrapping phase"
"""A line of its own in Python's error, which wraps its text."""
_RUNS_MAIN = ("_fixup_main_from_path", "_fixup_main_from_name")
_STARTS_PROCESS = re.compile(r"^(start|_launch|__init__) \S*/multiprocessing/(process|popen_\w+|context)\.py$")
_STARTS_ENGINE = re.compile(
    r"^(__init__|from_engine_args|launch_server|run_server) \S*/(vllm|sglang|tensorrt_llm|lmdeploy)/"
    r"\S*(engine|llm|entrypoints|pipeline)"
)
_IMPORTS = "<frozen importlib"


def _told(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from said(scene, _TOLD)


def _starts_again(scene: Scene) -> Iterator[Sighting | Gap]:
    """A child that is still reading the main script starts an engine or a process itself."""
    for one, thread in threads(scene):
        if isinstance(thread.stack, Gap):
            yield thread.stack
            continue
        inner, main = _within_main(thread)
        starts = next((frame for frame in inner if _starts(frame)), None)
        if starts and main:
            script = next((frame for frame in reversed(inner) if not frames.is_plumbing(frame)), starts)
            pid = one.process.id.pid
            told = chain(f"{scene.name(pid)} runs the script again: ", (starts, script, main))
            yield Sighting(told, (pid,), script.file)


def _within_main(thread: ThreadLook) -> tuple[tuple[Frame, ...], Frame | None]:
    """What a child that reads the main script does there, innermost first, unless it imports; and the frame of
    multiprocessing that reads it."""
    stack = () if isinstance(thread.stack, Gap) else thread.stack
    at = next((at for at, frame in enumerate(stack) if frame.function in _RUNS_MAIN), None)
    if at is None or any(frame.file.startswith(_IMPORTS) for frame in stack[:at]):
        return (), None
    return stack[:at], stack[at]


def _works_again(scene: Scene) -> Iterator[Sighting]:
    """A child does what the script does at its top, at either look, and no import."""
    for one, thread in threads(scene):
        inner, main = _within_main(thread)
        script = _top(inner)
        earlier = where.before(scene, one.process.id.pid)
        then = next((other for other in (earlier.threads if earlier else ()) if other.tid == thread.tid), None)
        old = _top(_within_main(then)[0]) if then else None
        if main and script and old and old.file == script.file:
            pid = one.process.id.pid
            told = chain(f"{scene.name(pid)} runs the script again: ", (*dict.fromkeys((inner[0], script)), main))
            yield Sighting(told, (pid,), script.file)


def _top(inner: tuple[Frame, ...]) -> Frame | None:
    """The script's own top, if it is the only module that is being read."""
    tops = [frame for frame in inner if frame.function == "<module>"]
    return tops[0] if len(tops) == 1 and not frames.is_plumbing(tops[0]) else None


def _raised_again(scene: Scene) -> Iterator[Sighting]:
    """A child ended by what the script does at its top, and no import."""
    for one in raised(scene):
        names = [frame.function for frame in one.frames]
        at = next((at for at, name in enumerate(names) if name in _RUNS_MAIN), len(names))
        tops = [frame for frame in one.frames[at:] if frame.function == "<module>"]
        if len(tops) == 1:
            told = f"raised in {tops[0].file} at its top, as {names[at]} read it: {one.line.message}"
            yield Sighting(shortened(told), (scene.deaths[0].id.pid,), tops[0].file)
            yield ended(scene.deaths[0])


def _starts(frame: Frame) -> bool:
    words = f"{frame.function.rsplit('.', 1)[-1]} {frame.file}"
    return bool(_STARTS_PROCESS.search(words) or _STARTS_ENGINE.search(words))


CAUSE = Cause(
    id="missing_main_guard",
    nature=Nature.DIVERGED,
    title="a spawned process runs the user's script again, for want of a main guard",
    clues=(
        decides("Does multiprocessing say that a child starts processes while it is still starting?", _told),
        decides("Does a child, still reading the main script, start an engine or process of its own?", _starts_again),
        supports("Does a child go on doing what the main script does at its top, beside imports?", _works_again),
        supports("Did a child end by what the main script does at its top, beside imports?", _raised_again),
    ),
    advice=Advice(
        repair=('Put the start of the engine under a main guard (if __name__ == "__main__").',),
    ),
    traps=("The parent only shows that it waits for its child.",),
)
