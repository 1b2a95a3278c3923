"""Somebody outside ended a server that was still on its way: a probe, a supervisor, a timeout of its launcher."""

import re
from collections.abc import Iterator
from itertools import takewhile
from signal import Signals

from firstlight.core.gap import Gap
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.core.words import exit_words
from firstlight.core.words import seconds as length
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.losses import TOGETHER_S
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, kernel_said, lines, processes, said

_MOVED = frozenset({Motion.MOVING, Motion.SLOW})
_FROM_OUTSIDE = frozenset({Signals.SIGTERM, Signals.SIGHUP})
"""Sent by supervisors and by whoever closes a session. SIGINT is a person at the terminal, who knows."""
_COUNTS = re.compile(r"(?P<done>\d+)/(?P<total>\d+)\b|(?P<share>\d+)(?:\.\d+)?%|progress\D{0,5}0?\.(?P<part>\d+)")
_BAR = re.compile(
    r"\b(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d\d)<"
)
"""As tqdm writes it: done/total [elapsed<left."""
STEADY_S = 60.0
PACES = 3
KILLED_STATUS = 128 + Signals.SIGKILL
INTERRUPTED_STATUS = 128 + Signals.SIGINT
RECENT_S = 120.0
_GIVES_UP = (
    r"(liveness|startup|readiness) probe (failed|errored)"
    r"|timed out waiting for .*(to start|runner|server|worker|engine)"
    r"|(health ?check|worker).*(is pending|timed? ?out)|did not (start|become ready|become healthy) (with)?in"
    r"|still loading,? .*elapsed|startup.?timeout"
    r"|\b(start-?up|launch|load(ing)?|readiness|liveness)\b.{0,40}\b(timed out|deadline exceeded|took too long)"
    r"|marking it unhealthy|unhealthy.{0,40}(restart|kill|terminat)"
    r"|CANCELLED AT .* DUE TO (TIME LIMIT|PREEMPTION)|timeout: sending signal"
)
_ASKED = (
    r"\b(received|got|caught|handling|handler called with)\b.{0,20}\b(SIGTERM|signal\W{1,3}15)\b|SIGTERM received"
    r"|^KeyboardInterrupt: terminated$"
)
"""What a program says that is asked to end, and ends by itself; the last one is vLLM's handler of SIGTERM."""
_REFUSED_CHECK = re.compile(r"(GET|HEAD) /(healthz?|live\w*|ready\w*|startup|ping|v1/models)\b\S* HTTP\S* [45]\d\d\b")
_OOM = r"out of memory|oom-kill|Killed process"
_OOM_DAEMON = r"running low on memory|\b(early|systemd-)?oomd?\b.{0,40}(sending SIG|killed)|memory monitor.{0,40}kill"
"""Whoever ends processes before the kernel has to: Ray's monitor, earlyoom, systemd-oomd."""


def _ended_from_outside(scene: Scene) -> Exit | None:
    """The end that somebody outside is to thank for: the server's first process was asked to end, or was killed by
    SIGKILL, and nobody of it had ended before, or only who was asked with it."""
    ended = [one for one in scene.ended if one.role is not Role.COMPILER]
    asked = list(takewhile(lambda gone: _was_asked(scene, gone), ended))
    main = next((one for one in asked if _is_main(scene, one)), None)
    if main and main.at - ended[0].at <= TOGETHER_S:
        return main
    first = next(iter(ended), None)
    if first is None or first.oom or not (_is_main(scene, first) or not processes(scene)):
        return None
    killed = first.signal == Signals.SIGKILL or first.code == KILLED_STATUS
    return first if _was_asked(scene, first) or killed else None


def _is_main(scene: Scene, gone: Exit) -> bool:
    return gone.id == scene.root or gone.role is Role.FRONT


def _was_asked(scene: Scene, gone: Exit) -> bool:
    """Whether it was asked to end: by how it ended, or, where it ended by itself, by what it said."""
    by_itself = gone.code in {0, INTERRUPTED_STATUS} or gone.signal == Signals.SIGINT
    return _was_told(gone) or (by_itself and any(said(scene, _ASKED)))


def _was_told(gone: Exit) -> bool:
    by_status = isinstance(gone.code, int) and gone.code - 128 in _FROM_OUTSIDE
    return gone.signal in _FROM_OUTSIDE or by_status


def _end(scene: Scene, *, asked: bool) -> Iterator[Sighting]:
    gone = _ended_from_outside(scene)
    if gone is not None and _was_asked(scene, gone) is asked:
        age = f" {length(gone.at - scene.bundle.started)} after the start" if scene.bundle.started else ""
        yield Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}{age}"), (gone.id.pid,))


def _was_moving(scene: Scene) -> Iterator[Sighting]:
    """It moved until then: by the signals of progress, by two looks, or by a counter in the log."""
    if scene.bundle.phase is not Phase.SERVING and scene.bundle.motion in _MOVED:
        yield Sighting(f"it was {scene.bundle.motion} in phase {scene.bundle.phase}")
    yield from _counted_on(scene)
    yield from _was_under_way(scene)


def _was_under_way(scene: Scene) -> Iterator[Sighting]:
    """A bar of progress, of which a bundle keeps the last state, moved shortly before the end for its own pace."""
    end = min((gone.at for gone in scene.ended), default=scene.bundle.at)
    for line in lines(scene.bundle):
        bar = _BAR.search(line.message)
        if bar and 0 < int(bar["done"]) < int(bar["total"]):
            passed = 60 * int(bar["minutes"]) + int(bar["seconds"]) + 3600 * int(bar["hours"] or 0)
            if 0 <= end - line.at <= max(STEADY_S, PACES * passed / int(bar["done"])):
                yield Sighting(shortened(f"the log had counted to {bar[0]}, {length(end - line.at)} before the end"))


def _counted_on(scene: Scene) -> Iterator[Sighting]:
    """A counter in the log rose until shortly before the end."""
    end = min((gone.at for gone in scene.ended), default=scene.bundle.at)
    found: dict[str, list[tuple[int, str]]] = {}
    for line in lines(scene.bundle):
        match = _COUNTS.search(line.message)
        if match and end - line.at <= RECENT_S:
            counted = next(group for group in (match["done"], match["share"], match["part"]) if group)
            found.setdefault(match["total"] or "", []).append((int(counted[:9]), match[0]))
    for rows in found.values():
        if len(rows) > 1 and rows[-1][0] > rows[0][0]:
            yield Sighting(shortened(f"the log counted on: {rows[0][1]} … {rows[-1][1]}"))


def _asked_while_moving(scene: Scene) -> Iterator[Sighting | Gap]:
    """Asked to end (SIGTERM), which the kernel never does by itself, nor engines of whom nobody has failed."""
    if not _failed_beside(scene):
        yield from _while_moving(scene, asked=True)


def _asked(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _while_moving(scene, asked=True)


def _failed_beside(scene: Scene) -> bool:
    """Whether another process failed by itself at about that time: engines end their own parents with SIGTERM."""
    main = _ended_from_outside(scene)
    failed = [one for one in scene.ended if isinstance(one.code, int) and not (one.clean or _was_asked(scene, one))]
    return any(main and one is not main and abs(one.at - main.at) <= TOGETHER_S for one in failed)


def _while_moving(scene: Scene, *, asked: bool) -> Iterator[Sighting | Gap]:
    """The log is searched for counters only where somebody ended so."""
    end = list(_end(scene, asked=asked))
    yield from both(end, _was_moving(scene)) if end else ()


def _killed_without_oom(scene: Scene) -> Iterator[Sighting | Gap]:
    """Killed by SIGKILL, and neither the kernel's log nor the control groups know of memory running out."""
    yield from both(_while_moving(scene, asked=False), _no_oom(scene))


def _no_oom(scene: Scene) -> Iterator[Sighting | Gap]:
    look = scene.bundle.looks[-1] if scene.bundle.looks else None
    if look is None or isinstance(look.kernel_log, Gap):
        yield from [look.kernel_log] if look and isinstance(look.kernel_log, Gap) else []
        return
    counts = [one.facts.cgroup.oom_kills for each in scene.bundle.looks for one in each.processes]
    if counts and all(count == 0 for count in counts) and not any(_oom(scene)):
        yield Sighting("the kernel's log and the control group tell of no process killed for memory")


def _killed(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _while_moving(scene, asked=False)


def _given_up(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log tells that somebody lost patience, while the server moves or moved."""
    told = list(said(scene, _GIVES_UP))
    yield from both((*_was_moving(scene), *where.moving(scene)), told) if told else ()


def _gave_up_and_killed(scene: Scene) -> Iterator[Sighting | Gap]:
    """One process says that it lost patience with another, and one was ended by a signal at that moment."""
    told = [line for line in lines(scene.bundle) if re.search(_GIVES_UP, line.message, re.IGNORECASE)]
    for gone in scene.ended if told else ():
        near = next((line for line in told if abs(gone.at - line.at) <= TOGETHER_S), None)
        if near and not gone.oom and (gone.signal == Signals.SIGKILL or _was_told(gone)):
            yield Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,))
            yield Sighting(shortened(f"log: {near.message}"))


def _refused_probe(scene: Scene) -> Iterator[Sighting | Gap]:
    """Asked to end after its health check had been answered with an error, again and again until shortly before."""
    end = list(_end(scene, asked=True))
    at = min((gone.at for gone in scene.ended), default=scene.bundle.at)
    told = [
        Sighting(shortened(f"log: {line.message}"))
        for line in (lines(scene.bundle) if end else ())
        if 0 <= at - line.at <= RECENT_S and _REFUSED_CHECK.search(line.message)
    ]
    yield from both(end, told if len(told) > 1 else ())


def _oom(scene: Scene) -> Iterator[Sighting]:
    """Memory ran out."""
    yield from (one for one in kernel_said(scene, _OOM) if isinstance(one, Sighting))
    yield from said(scene, _OOM_DAEMON)
    for gone in scene.ended:
        if gone.oom:
            yield Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,))


def _title(scene: Scene, _seen: tuple[Sighting, ...]) -> str:
    """A signal does not tell who sent it."""
    if any(_while_moving(scene, asked=True)):
        return "it was asked to end while it was still on its way"
    if any(_killed(scene)):
        return "it was killed while it was still on its way"
    return "somebody outside lost patience with a server that was still on its way"


CAUSE = Cause(
    id="probe_kill",
    nature=Nature.DEATH,
    title=_title,
    clues=(
        decides("Was it asked to end while it moved?", _asked_while_moving),
        decides("Was it killed while it moved, and not for memory?", _killed_without_oom),
        supports("Was it asked to end while it moved, whoever failed with it?", _asked),
        supports("Was it killed while it moved?", _killed),
        supports("Does the log say that somebody gave up while it moved?", _given_up),
        supports("Was one ended by a signal when another said that it gave up?", _gave_up_and_killed),
        supports("Was it asked to end after its health check was refused again and again?", _refused_probe),
        rules_out("Did memory run out?", _oom),
    ),
    advice=Advice(
        confirm=(
            "kubectl describe pod: events of probes; journalctl; the age at which it ended is the same each time.",
        ),
        work_around=(
            (
                "Kubernetes: a startupProbe whose failureThreshold x periodSeconds covers the load, before "
                "any livenessProbe (firstlight probe --startup tells moving from stuck); SGLang router "
                "--worker-startup-timeout-secs."
            ),
        ),
        repair=("Shorten the start: weights on a local disk, warm compile caches.",),
    ),
    traps=("SIGKILL also comes from the machine's own OOM killer: see dmesg on the host.",),
)
