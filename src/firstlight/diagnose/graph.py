"""The wait-for graph: the links of a scene with names, its cycles and its sinks. Pure."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice

from firstlight.core.graph import Edge, Node, WaitGraph
from firstlight.core.vocabulary import Role
from firstlight.core.words import printable
from firstlight.diagnose.clauses import doing
from firstlight.diagnose.cycles import cycles
from firstlight.diagnose.links import End, Link, links, process
from firstlight.diagnose.scene import Scene

NODES_MAX = 400
EDGES_MAX = 2000
FIRST_MAX = 200
"""Nodes that are blamed, in a circle, or waited for: they come first, and leave room for those that wait."""
_LABEL_MAX = 120
_KERNEL_LOCKS = {"mutex", "gil"}


def wait_graph(scene: Scene, blamed: Collection[str] = (), notes: Mapping[int, str] | None = None) -> WaitGraph:
    """Who waits for whom.

    Args:
        scene: a bundle that was read.
        blamed: ids of the nodes that findings name as those that the others wait for.
        notes: what each process does, by pid; worked out if it is not given.
    """
    found = links(scene)
    circles = _circles(scene)
    sinks = _sinks(found, circles)
    places = _places(scene, found)
    kept = _kept(scene, places, found, [*blamed, *(id_ for one in circles for id_ in one), *sinks])
    said = notes if notes is not None else what_each_does(scene)
    edges = [link for link in found if link.source.id in kept and link.target.id in kept][:EDGES_MAX]
    return WaitGraph(
        nodes=tuple(_node(scene, places[id_], said, blamed=id_ in blamed) for id_ in kept),
        edges=tuple(
            Edge(
                source=link.source.id, target=link.target.id, kind=link.kind, label=printable(link.label, _LABEL_MAX)
            )
            for link in edges
        ),
        cycles=tuple(one for one in circles if set(one) <= set(kept)),
        sinks=tuple(one for one in sinks if one in kept),
    )


def what_each_does(scene: Scene) -> dict[int, str]:
    """A clause for each process, by pid."""
    there = ((place, one) for place in scene.machines for one in place.standings)
    return {one.pid: doing(one, place.names, place.bare_locks) + _for_whom(scene, one.pid) for place, one in there}


def _for_whom(scene: Scene, pid: int) -> str:
    """Whom one waits for at a queue in shared memory, which its call does not tell."""
    others = scene.queued.get(pid, ())
    return f", for {scene.names.all(others)}" if others else ""


def circles_of_locks(scene: Scene) -> tuple[tuple[Link, ...], ...]:
    """Cycles of threads that hold what the next one wants, told by the locks themselves: mutexes and the GIL."""
    return circles(scene, _KERNEL_LOCKS)


def circles(scene: Scene, kinds: Collection[str] = ()) -> tuple[tuple[Link, ...], ...]:
    """Cycles of firm waits, as their links in order; only of some `kinds` of edge if they are given."""
    firm = [link for link in links(scene) if link.firm and (not kinds or link.kind in kinds)]
    by_ends = {(link.source.id, link.target.id): link for link in firm}
    return tuple(
        tuple(by_ends[one, other] for one, other in zip(ids, (*ids[1:], ids[0]), strict=True))
        for ids in cycles(_after(firm))
    )


def waited_on(scene: Scene, pids: Iterable[int]) -> dict[int, int]:
    """How many wait for each of these processes, through others too."""
    ids = {process(pid).id: pid for pid in pids}
    return {ids[id_]: count for id_, count in _counted(ids, _before(links(scene))).items()}


def _counted(ids: Iterable[str], before: Mapping[str, list[str]]) -> dict[str, int]:
    """How many wait for each of these nodes, through others too. Most have the same waiters, which are followed
    once."""
    reached: dict[tuple[str, ...], set[str]] = {}
    found = {}
    for id_ in ids:
        waiting = tuple(before.get(id_, ()))
        if waiting not in reached:
            reached[waiting] = _reach(waiting, before)
        found[id_] = len(reached[waiting]) - (id_ in reached[waiting])
    return found


def waiters(scene: Scene, others: Collection[int]) -> set[int]:
    """The processes that wait for another one of `others`, be it through a lock or a meeting."""
    found = links(scene)
    after = _after(found)
    pids = {end.id: end.pid for link in found for end in (link.source, link.target)}
    return {one.pid for one in scene.standings if _waits_for_another(one.pid, after, pids, others)}


def _waits_for_another(
    pid: int, after: Mapping[str, list[str]], pids: Mapping[str, int], others: Collection[int]
) -> bool:
    seen = {process(pid).id}
    waiting = list(seen)
    while waiting:
        for id_ in after.get(waiting.pop(), ()):
            if pids[id_] in others and pids[id_] != pid:
                return True
            if id_ not in seen:
                seen.add(id_)
                waiting.append(id_)
    return False


def to_blame(scene: Scene, pids: Collection[int], accused: Collection[int]) -> set[str]:
    """The nodes that a finding about `pids` names as those that others wait for: the `accused`, or whom of these pids
    they wait for themselves, or a file, lock or device."""
    ahead_of = _by_source(scene)
    blamed: set[str] = set()
    for pid in accused:
        ahead = [link.target for link in ahead_of.get(process(pid).id, ()) if link.kind != "collective"]
        ends = {end.id for end in ahead if end.pid != pid and (end.pid in pids or not end.pid)}
        around = {
            id_ for one in _circles(scene) if any(id_.partition("t")[0] == f"p{pid}" for id_ in one) for id_ in one
        }
        blamed |= around or ends or {process(pid).id}
    return blamed


@lru_cache(maxsize=1)
def _by_source(scene: Scene) -> dict[str, list[Link]]:
    found: dict[str, list[Link]] = defaultdict(list)
    for link in links(scene):
        found[link.source.id].append(link)
    return dict(found)


@lru_cache(maxsize=1)
def _circles(scene: Scene) -> tuple[tuple[str, ...], ...]:
    return cycles(_after(link for link in links(scene) if link.firm))


def _after(found: Iterable[Link]) -> dict[str, list[str]]:
    after: dict[str, list[str]] = defaultdict(list)
    for link in found:
        after[link.source.id].append(link.target.id)
    return dict(after)


def _before(found: Iterable[Link]) -> dict[str, list[str]]:
    before: dict[str, list[str]] = defaultdict(list)
    for link in found:
        before[link.target.id].append(link.source.id)
    return dict(before)


def _reach(starts: Iterable[str], after: Mapping[str, list[str]]) -> set[str]:
    """Everything that is reached from `starts`, themselves included."""
    reached = set(starts)
    waiting = deque(reached)
    while waiting:
        for other in after.get(waiting.popleft(), ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def _sinks(found: tuple[Link, ...], circles: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    before = _before(found)
    waiting = {link.source.id for link in found}
    in_circles = {id_ for one in circles for id_ in one}
    ends = [id_ for id_ in before if id_ not in waiting and id_ not in in_circles]
    counted = _counted(ends, before)
    return tuple(sorted(ends, key=lambda id_: -counted[id_]))


def _places(scene: Scene, found: tuple[Link, ...]) -> dict[str, End]:
    """Every node by its id: the processes of the look, those that are missed, and whoever a link names."""
    places = [process(one.pid) for one in scene.standings]
    places += [process(gone.id.pid) for gone in scene.deaths]
    places += [end for link in found for end in (link.source, link.target)]
    places += [process(end.pid) for end in places if end.kind == "thread"]
    return {place.id: place for place in places}


def _kept(scene: Scene, places: Mapping[str, End], found: tuple[Link, ...], first: Iterable[str]) -> dict[str, None]:
    """The ids to show, in a stable order: those that tell most if there are too many, and no helpers on their own."""
    degree: dict[str, int] = defaultdict(int)
    for link in found:
        degree[link.source.id] += 1
        degree[link.target.id] += 1
    telling = dict.fromkeys(islice((id_ for id_ in first if id_ in places), FIRST_MAX), -1)
    gone = {process(one.id.pid).id for one in scene.deaths}
    for id_, place in places.items():
        one = scene.standing(place.pid) if place.kind == "process" else None
        idle = one is not None and one.look.process.role in {Role.HELPER, Role.COMPILER}
        if degree[id_] or id_ in gone or not idle:
            telling.setdefault(id_, 0 if id_ in gone or place.kind != "process" else 1 if degree[id_] else 2)
    chosen = set(sorted(telling, key=lambda id_: (telling[id_], -degree[id_]))[:NODES_MAX])
    return dict.fromkeys(id_ for id_ in places if id_ in chosen)


def _node(scene: Scene, place: End, notes: Mapping[int, str], *, blamed: bool) -> Node:
    one = scene.standing(place.pid)
    return Node(
        id=place.id,
        kind=place.kind,
        label=printable(label(scene, place), _LABEL_MAX),
        note=printable(notes.get(place.pid, ""), _LABEL_MAX) if place.kind == "process" else "",
        pid=place.pid,
        rank=one.rank if one else -1,
        blamed=blamed,
        gone=place.kind == "process" and place.pid in scene.gone,
    )


def label(scene: Scene, place: End) -> str:
    """What people read of a node."""
    if place.kind == "process":
        return scene.name(place.pid)
    if place.kind != "thread":
        return place.label
    one = scene.standing(place.pid)
    name = next((thread.name for thread in one.look.threads if thread.tid == place.tid), "") if one else ""
    return f"thread {place.tid} ({printable(name, 40)}) of {scene.name(place.pid)}"
