"""Pids of a merged bundle as people know them: "pid 4711 on node-2". Pure.

`merge` moves the pids of other machines up, so that no two are the same; every sentence is translated back here, at
the end, whoever wrote it.
"""

import re
from collections.abc import Callable

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.graph import WaitGraph
from firstlight.core.hosts import PIDS_A_NODE, local
from firstlight.core.report import Finding
from firstlight.diagnose.merge import NAMES_CHILD, pids_of

_NUMBER = re.compile(r"(?<![\w.])(?P<word>(?:pids?|process|threads?) )?(?P<number>\d{1,10})(?!\w|\.\d)")
_SAID = " on "
"""What follows a pid that says whose it is already."""


def translator(bundle: Bundle) -> Callable[[str], str]:
    """What puts the pids in a sentence back; only numbers that are pids of the bundle are touched. One of the first
    machine was not moved and may be any number: it must be called a pid."""
    known = pids_of(msgspec.structs.replace(bundle, machines=())) - {0}

    def number(found: re.Match[str]) -> str:
        pid, word = int(found["number"]), found["word"] or ""
        said = found.string.startswith(_SAID, found.end())
        surely = pid >= PIDS_A_NODE or (word and not said)
        return f"{word}{local(pid, bundle.hosts)}" if surely and pid in known else found[0]

    return lambda text: _NUMBER.sub(number, NAMES_CHILD.sub(_own_child, text))


def _own_child(found: re.Match[str]) -> str:
    """The child that a system call names, as its machine numbers it."""
    pid = int(found["pid"], 16)
    return f"{found['call']}{pid % PIDS_A_NODE if pid < 1 << 31 else pid:#x}"


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
