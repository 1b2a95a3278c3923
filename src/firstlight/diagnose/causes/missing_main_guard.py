"""A spawned child runs the user's script again from the top, since its start is not under a main guard."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Frame
from firstlight.diagnose import frames
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.quotes import chain
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
        at = next((at for at, frame in enumerate(thread.stack) if frame.function in _RUNS_MAIN), 0)
        inner = thread.stack[:at]
        imports = any(frame.file.startswith(_IMPORTS) for frame in inner)
        starts = next((frame for frame in inner if _starts(frame)), None) if not imports else None
        if starts:
            script = next((frame for frame in reversed(inner) if not frames.is_plumbing(frame)), starts)
            pid = one.process.id.pid
            told = chain(f"{scene.name(pid)} runs the script again: ", (starts, script, thread.stack[at]))
            yield Sighting(told, (pid,), script.file)


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
    ),
    advice=Advice(
        repair=('Put the start of the engine under a main guard (if __name__ == "__main__").',),
    ),
    traps=("The parent only shows that it waits for its child.",),
)
