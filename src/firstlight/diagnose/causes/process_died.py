"""The server's first process, a front, an engine, or a process that crashed, has ended."""

import re
from collections import defaultdict
from collections.abc import Iterator

from firstlight.core.vocabulary import Phase, Role
from firstlight.diagnose import deaths, quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import lines
from firstlight.diagnose.standing import Standing

_FOR_CHILDREN = ("multiprocessing/connection.py", "multiprocessing/popen_fork.py", "/subprocess.py")
_TELLS = re.compile(
    r"^(?!.*(restart|respawn|replac|retry)).*"
    r"\b(worker|engine ?core|engine|scheduler|detokenizer|actor|raylet|node|child|sub-?process|proc(ess)?)\b.{0,100}"
    r"(\bdied\b|\bwas killed\b|\bcrashed\b|marked dead|(exited|terminated) unexpectedly|exit ?code\W{1,3}-[1-9]"
    r"|exited on signal)",
    re.IGNORECASE,
)
_PID = re.compile(r"\bpid\W{1,3}(\d+)", re.IGNORECASE)
_MINOR = frozenset({Role.HELPER, Role.COMPILER})


def _missed(scene: Scene) -> Iterator[Sighting]:
    """The first of the ends that matter is not that of a rank."""
    if scene.missed and not scene.is_rank(scene.deaths[0]):
        yield from deaths.the_end(scene)


def _all_children(scene: Scene) -> Iterator[Sighting]:
    """A process waits for its children, of whom only helpers live: the others, whatever they were, have ended and
    nobody has asked for their status."""
    if scene.missed:
        return
    born = defaultdict(list)
    for one in scene.standings:
        if one.look.process.role not in _MINOR:
            born[one.look.process.ppid].append(one)
    for parent in scene.standings:
        children = born[parent.pid]
        ended = [one for one in children if one.state == "Z"]
        if ended and len(ended) == len(children) and _waits_for_children(parent):
            yield Sighting(quotes.stack(parent), (parent.pid, ended[0].pid))
            names = (scene.name(one.pid) for one in ended[:4])
            yield Sighting(shortened(f"its children have ended and are left as zombies: {', '.join(names)}"))


def _told(scene: Scene) -> Iterator[Sighting]:
    """A parent, a launcher or a cluster tells of the end of a process that nobody here saw end; one that it names by
    its pid is not there. What a server that serves has got over is left out."""
    there = {str(one.pid) for one in scene.standings if one.state not in "ZX"}
    serving = scene.bundle.phase is Phase.SERVING
    since = max(
        (span.began for span in scene.bundle.timeline if serving and span.phase is Phase.SERVING), default=0.0
    )
    for line in () if scene.ended else lines(scene.bundle):
        found = _TELLS.search(line.message) if line.at >= since else None
        if found and not there & set(_PID.findall(line.message)):
            yield Sighting(shortened(f"log: {line.message}"), (line.pid,) if line.pid else ())


def _waits_for_children(one: Standing) -> bool:
    return any(frame.file.endswith(_FOR_CHILDREN) for frame in one.stack)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if scene.missed:
        return deaths.title(scene, seen)
    if seen[0].quote.startswith("log:"):
        return "a process of the server has ended, as the log tells"
    parent = scene.name(seen[0].pids[0])
    return shortened(f"every process that {parent} started has ended, and it waits for them")


def _advice(scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if scene.missed:
        return deaths.advice(scene, seen)
    if seen[0].quote.startswith("log:"):
        return Advice(steps=("Read that process's own log from the start, and the kernel's (dmesg) for its end.",))
    return Advice(
        steps=(
            "Run the command of a child by itself: one that ends before its program begins says nothing in the log.",
        )
    )


CAUSE = Cause(
    id="process_died",
    nature=Nature.DEATH,
    together=True,
    title=_title,
    clues=(
        decides("Did a process end without which the server cannot be?", _missed),
        supports("Does the log tell of the end of a process?", _told),
        supports("Has every child that a process waits for ended?", _all_children),
    ),
    advice=_advice,
    traps=("What other processes print afterwards, a lost connection or a timeout, follows from the first end.",),
)
