"""What lies around a server's processes: GPUs, the kernel's log, pressure, caches, what earlier runs left behind.

Each probe is started at once, runs beside the look at the processes, and is waited for only at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from firstlight import gpus
from firstlight.clock import Clock, Deadline
from firstlight.core.look import ProcessLook
from firstlight.evidence import folders
from firstlight.evidence.semaphores import semaphores
from firstlight.evidence.workers import Probe

SHARE = 0.7
"""The part of a stage that a probe may use which keeps partial results itself."""


class Around:
    """The probes of the whole machine, under way. With `deep` also those that tell the same at every look."""

    def __init__(self, pids: Sequence[int], clock: Clock, stage: Deadline, *, since: float, deep: bool) -> None:
        self._pids = pids
        self._clock = clock
        self._deep = deep
        within = Deadline(clock, stage.left * SHARE, "a probe of the machine")
        self._under_way: dict[str, Probe[Any]] = {"gpus": Probe("GPUs", partial(gpus.look, within, clock))}

    def told(self, processes: Sequence[ProcessLook], environ: Mapping[str, str], stage: Deadline) -> dict[str, Any]:
        """The fields of `Look` that speak of the machine. `environ` is the server's."""
        within = Deadline(self._clock, stage.left * SHARE, "a probe of the machine")
        words = [word for one in processes for word in one.process.cmdline]
        uses = folders.used_by(environ, words, _paths(processes))
        self._under_way["folders"] = Probe("folders", partial(folders.folders, uses, within))
        if self._deep:
            self._under_way["semaphores"] = Probe("semaphores", partial(semaphores, self._pids, processes, within))
        return {name: probe.result(stage) for name, probe in self._under_way.items()}


def _paths(processes: Sequence[ProcessLook]) -> Iterator[str]:
    return (file.target for one in processes for file in one.files if file.kind == "file")
