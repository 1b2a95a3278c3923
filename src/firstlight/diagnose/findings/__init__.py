"""What the facts in a bundle decide: one function a finding, the most telling first. Pure.

Only what is seen is said: `established` where the facts leave nothing else, `supported` where they speak for it and
something unseen could still speak against it. What no function recognises stays unknown.
"""

from collections.abc import Callable, Iterator

from firstlight.core.report import Finding
from firstlight.diagnose.findings import deaths, files, pipes, ports, ranks, stops, threads
from firstlight.diagnose.scene import Scene

_ALL: tuple[Callable[[Scene], Iterator[Finding]], ...] = (
    deaths.a_death,
    ports.port_taken,
    stops.stopped,
    files.fifo_alone,
    files.stale_lock_file,
    files.file_lock_held,
    threads.lock_inversion,
    threads.holds_the_gil,
    pipes.dead_peer,
    pipes.full,
    ranks.elsewhere,
    threads.spinning,
)


def findings_of(scene: Scene) -> tuple[Finding, ...]:
    """Every finding that the scene supports."""
    return tuple(finding for find in _ALL for finding in find(scene))
