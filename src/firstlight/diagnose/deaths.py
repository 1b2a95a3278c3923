"""What is told of an end: who ended, with what words, who went later, and who still waits for it. Pure."""

from collections.abc import Iterator
from signal import Signals

from firstlight.core.bundle import Bundle
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Phase
from firstlight.core.words import exit_words
from firstlight.core.words import seconds as length
from firstlight.diagnose.clues import Advice, Sighting
from firstlight.diagnose.logwords import LastWords, first_error, is_silent
from firstlight.diagnose.losses import CRASHES, was_asked
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene


def the_end(scene: Scene) -> Iterator[Sighting]:
    """The end that the others follow from, and what came with it."""
    gone = scene.deaths[0]
    waiting = scene.waiters_for((gone.id.pid,))
    yield Sighting(_when(gone, scene.bundle), (gone.id.pid, *waiting))
    yield from map(Sighting, _words(scene, gone))
    yield from (Sighting(_later(other, gone)) for other in scene.deaths[1:5])
    yield from (Sighting(f"{scene.name(pid)} still waits") for pid in waiting[:4])


def first_end(scene: Scene) -> Iterator[Sighting]:
    """The first of the ends that matter, in short, if there is one."""
    for gone in scene.deaths[:1]:
        yield Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,))


def title(scene: Scene, _seen: tuple[Sighting, ...]) -> str:
    """Who ended, and how."""
    gone = scene.deaths[0]
    return f"{of_exit(gone)} {exit_words(gone)}"


def advice(scene: Scene, _seen: tuple[Sighting, ...]) -> Advice:
    """What to do about the end."""
    return Advice(steps=(_advice(scene, scene.deaths[0]),))


def _when(gone: Exit, bundle: Bundle) -> str:
    """A look that finds a zombie cannot tell since when it is one."""
    found = not bundle.run and bool(bundle.looks) and gone.at <= bundle.looks[0].at
    passed = f"{'at least ' if found else ''}{length(bundle.at - gone.at)}"
    ago = f" {passed} before this was seen" if gone.at < bundle.at else ""
    return shortened(f"process {gone.id.pid} ({gone.name or 'unnamed'}) ended{ago}")


def _words(scene: Scene, gone: Exit) -> list[str]:
    """The first error of all, and the last words of whoever ended."""
    error = first_error(scene.bundle)
    said = LastWords(scene.bundle).of(gone.id.pid, gone.label)
    quoted = [f"first error in the log: {error.message}"] if error else []
    quoted += [f"its last words: {said}"] if said and not (error and error.message == said) else []
    return [shortened(words) for words in quoted]


def _later(other: Exit, cause: Exit) -> str:
    when = "later" if other.at >= cause.at else "ended with it"
    return shortened(f"{when}, {of_exit(other)} {exit_words(other)}")


def _advice(scene: Scene, gone: Exit) -> str:
    if gone.oom:
        return "Give the server more memory, or let it need less: fewer workers, a smaller model, a smaller cache."
    if was_asked(gone) or (gone.clean and _was_at_work(scene)):
        return "Somebody or something asked it to end: a supervisor, `kill`, a closed terminal."
    if gone.signal is not None:
        return _by_signal(gone.signal)
    if gone.clean and gone.id != scene.root and scene.alive:
        return "It ended as if its work were done while others still need it: find out why it left its work."
    if gone.clean:
        return "It ended as if its work were done: check that the command starts a server and not a one-off task."
    return _read(scene)


def _by_signal(signal: int) -> str:
    if signal in CRASHES:
        return "Start it again with PYTHONFAULTHANDLER=1 to see where it crashed, and look for a core file."
    if signal == Signals.SIGKILL:
        return "Find out who sent the signal: the out-of-memory killer (dmesg), an orchestrator's probe, a person."
    return "Find out who sent the signal: a person, a script, another process of the server."


def _was_at_work(scene: Scene) -> bool:
    """Whether a clean end was no end of a task: the server served, or its ranks were ended with it."""
    return scene.bundle.phase is Phase.SERVING or any(map(was_asked, scene.deaths))


def _read(scene: Scene) -> str:
    if first_error(scene.bundle):
        return "Read the first error; what other processes print afterwards follows from it."
    if is_silent(scene.bundle):
        return "It printed nothing; run its command by itself to see."
    return "No line of the log names an error; read its last lines, and run its command by itself to see more."
