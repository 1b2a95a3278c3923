"""Pids of several machines in one record. Pure.

Each machine numbers its processes by itself. Where several are one, the pids of the k-th are moved up by k times
`PIDS_A_NODE`, and a list of the machines' names, in that order, says them back: "4711 on node-2".
"""

from collections.abc import Iterable

from firstlight.core.words import printable

PIDS_A_NODE = 1 << 22
"""The kernel's PID_MAX_LIMIT on 64-bit machines (include/linux/threads.h)."""
_HOST_MAX = 60


def local(pid: int, hosts: tuple[str, ...]) -> str:
    """A pid as its machine knows it, and which machine that is where there are several."""
    node, own = divmod(pid, PIDS_A_NODE)
    return f"{own} on {printable(hosts[node], _HOST_MAX)}" if pid > 0 and node < len(hosts) else str(pid)


def by_host(pids: Iterable[int], hosts: tuple[str, ...]) -> list[tuple[str, list[int]]]:
    """Pids of several machines as each knows them, in the order of the machines; under "" those of none."""
    found: dict[str, list[int]] = {}
    for pid in sorted(pids):
        node, own = divmod(pid, PIDS_A_NODE)
        known = node < len(hosts)
        found.setdefault(printable(hosts[node], _HOST_MAX) if known else "", []).append(own if known else pid)
    return list(found.items())
