"""What the facts in a bundle decide: one function a finding, the most telling first. Pure.

Only what is seen is said: `established` where the facts leave nothing else, `supported` where they speak for it and
something unseen could still speak against it. What no function recognises stays unknown.
"""

from collections.abc import Callable, Iterator

import msgspec

from firstlight.core.report import Finding
from firstlight.diagnose.findings import deaths, files, pipes, ports, ranks, stops, threads
from firstlight.diagnose.quotes import ESTABLISHED
from firstlight.diagnose.scene import Scene

_ALL: tuple[Callable[[Scene], Iterator[Finding]], ...] = (
    deaths.a_death,
    ports.port_taken,
    stops.stopped,
    files.fifo_alone,
    files.stale_lock_file,
    files.file_lock_held,
    threads.lock_inversion,
    pipes.dead_peer,
    pipes.full,
    ranks.elsewhere,
    threads.spinning,
    threads.holds_the_gil,
    deaths.a_failure,
)


def findings_of(scene: Scene) -> tuple[Finding, ...]:
    """Every finding that the scene supports, what is established first."""
    found = sorted((one for find in _ALL for one in find(scene)), key=lambda one: one.verdict != ESTABLISHED)
    certain = {pid for one in found if one.verdict == ESTABLISHED for pid in one.pids}
    return tuple(_without_needless_advice(one, certain) for one in found)


def _without_needless_advice(finding: Finding, certain: set[int]) -> Finding:
    """Who runs a server can do nothing about a held interpreter lock, and need not where a cause is known."""
    if finding.id == "gil_held" and certain.intersection(finding.pids):
        return msgspec.structs.replace(finding, advice=())
    return finding
