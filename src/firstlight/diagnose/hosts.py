"""Pids of a merged bundle as people know them: "pid 4711 on node-2". Pure.

`merge` moves the pids of other machines up, so that no two are the same; every sentence is translated back here, at
the end, whoever wrote it.
"""

import re
from collections.abc import Callable

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.graph import WaitGraph
from firstlight.core.report import Finding
from firstlight.core.words import printable
from firstlight.diagnose.merge import PIDS_A_NODE

_HOST_MAX = 60
_NUMBER = re.compile(r"(?<![\w.])\d{7,}(?![\w.])")


def local(pid: int, hosts: tuple[str, ...]) -> str:
    """A pid of a merged bundle as its machine knows it."""
    node, own = divmod(pid, PIDS_A_NODE)
    return f"{own} on {printable(hosts[node], _HOST_MAX)}" if 0 <= node < len(hosts) else str(pid)


def translator(bundle: Bundle) -> Callable[[str], str]:
    """What puts the pids in a sentence back; only numbers that are pids of the bundle are touched."""
    known = _known(bundle)

    def spoken(text: str) -> str:
        return _NUMBER.sub(
            lambda found: local(int(found[0]), bundle.hosts) if int(found[0]) in known else found[0], text
        )

    return spoken


def _known(bundle: Bundle) -> set[int]:
    """Pids and thread ids that were moved."""
    looks = [one for look in bundle.looks for one in look.processes]
    known = {one.process.id.pid for one in looks} | {one.process.ppid for one in looks}
    known |= {thread.tid for one in looks for thread in one.threads} | {gone.id.pid for gone in bundle.exits}
    for look in bundle.looks:
        locks = look.locks if isinstance(look.locks, tuple) else ()
        known |= {pid for lock in locks for pid in (lock.holder, *lock.waiters, *lock.builders)}
        listeners = look.listeners if isinstance(look.listeners, tuple) else ()
        known |= {listener.pid for listener in listeners}
    return {pid for pid in known if pid >= PIDS_A_NODE}


def spoken_finding(finding: Finding, say: Callable[[str], str]) -> Finding:
    """The finding with every sentence translated."""
    said = {name: tuple(map(say, getattr(finding, name))) for name in ("evidence", "advice", "against", "unseen")}
    return msgspec.structs.replace(finding, title=say(finding.title), **said)


def spoken_graph(graph: WaitGraph, say: Callable[[str], str]) -> WaitGraph:
    """The graph with every label translated."""
    replace = msgspec.structs.replace
    return replace(
        graph,
        nodes=tuple(replace(node, label=say(node.label), note=say(node.note)) for node in graph.nodes),
        edges=tuple(replace(edge, label=say(edge.label)) for edge in graph.edges),
    )
