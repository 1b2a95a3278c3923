"""What lies around a server's processes: GPUs, the kernel's log, pressure, caches, what earlier runs left behind.

Each probe is started at once, runs beside the look at the processes, and is waited for only at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from firstlight import gpus
from firstlight.clock import Clock, Deadline
from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.gap import Gap
from firstlight.core.host import Coverage
from firstlight.core.look import Folder, Look, ProcessLook
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import collectives, folders
from firstlight.evidence.coverage import coverage
from firstlight.evidence.host import root_of
from firstlight.evidence.kernel_log import kernel_log
from firstlight.evidence.leftovers import leftovers
from firstlight.evidence.pressure import pressure
from firstlight.evidence.semaphores import semaphores
from firstlight.evidence.workers import Probe

ASKING_S = 0.5
SHARE = 0.7
"""The part of a stage that a probe may use which keeps partial results itself."""


class Around:
    """The probes of the whole machine, under way. With `deep` also those that tell the same at every look."""

    def __init__(self, pids: Sequence[int], clock: Clock, stage: Deadline, *, since: float, deep: bool) -> None:
        self._pids = pids
        self._clock = clock
        self._since = since
        self._deep = deep
        within = Deadline(clock, stage.left * SHARE, "a probe of the machine")
        self._under_way: dict[str, Probe[Any]] = {
            "gpus": Probe("GPUs", partial(gpus.look, within, clock)),
            "pressure": Probe("pressure", pressure),
        }
        if deep:
            self._under_way["kernel_log"] = Probe("kernel log", partial(kernel_log, since, clock, within))
            self._under_way["leftovers"] = Probe("leftovers", partial(leftovers, pids, clock, within))

    def told(self, processes: Sequence[ProcessLook], environ: Mapping[str, str], stage: Deadline) -> dict[str, Any]:
        """The fields of `Look` that speak of the machine. `environ` is the server's."""
        within = Deadline(self._clock, stage.left * SHARE, "a probe of the machine")
        words = [word for one in processes for word in one.process.cmdline]
        uses = folders.used_by(environ, words, _paths(processes))
        later: dict[str, Probe[Any]] = {"folders": Probe("folders", partial(_folders, uses, self._pids, within))}
        if self._deep:
            records = partial(_flight_records, environ, self._since, within)
            later["semaphores"] = Probe("semaphores", partial(semaphores, self._pids, processes, within))
            later["collectives"] = Probe("flight records", records)
            later["communicators"] = Probe(
                "communicators", partial(_communicators, environ, processes, self._pids, within)
            )
        found = {name: probe.result(stage) for name, probe in (self._under_way | later).items()}
        return _with_xids({name: value for name, value in found.items() if _fits(name, value)})


def _folders(uses: Sequence[tuple[str, Path]], pids: Sequence[int], deadline: Deadline) -> tuple[Folder, ...]:
    """What lies in the folders that the server uses, in its container if it lives in one."""
    return folders.folders(uses, deadline, root_of(pids[0] if pids else 0).path)


def _paths(processes: Sequence[ProcessLook]) -> Iterator[str]:
    return (file.target for one in processes for file in one.files if file.kind == "file")


def _fits(name: str, value: object) -> bool:
    """Records with gaps in their own fields, and lists without one of their own, keep their defaults."""
    return not (isinstance(value, Gap) and name in {"pressure", "folders"})


def _with_xids(found: dict[str, Any]) -> dict[str, Any]:
    cards, lines = found.get("gpus"), found.get("kernel_log")
    if isinstance(cards, tuple) and isinstance(lines, tuple):
        found["gpus"] = gpus.with_xids(cards, lines)
    return found


def _flight_records(environ: Mapping[str, str], since: float, deadline: Deadline) -> tuple[CollectiveCall, ...] | Gap:
    """What torch has written of collectives since the server was started."""
    return collectives.flight_records(collectives.flight_folders(environ), deadline, since)


def ask_for_flight_records(look: Look, environ: Mapping[str, str], clock: Clock) -> None:
    """Have torch write down its collectives now, where the server's user has set it up for that; price: asks."""
    ranks = sorted({one.process.rank for one in look.processes if one.process.rank >= 0})
    pipes = collectives.dump_pipes(environ, ranks)
    if pipes:
        collectives.ask_for_dumps(pipes, Deadline(clock, ASKING_S, "asking for flight records"))


def _communicators(
    environ: Mapping[str, str], processes: Sequence[ProcessLook], pids: Sequence[int], deadline: Deadline
) -> tuple[Communicator, ...] | Gap:
    """Asked of NCCL only where one is loaded, and of none that is known to suffer from the question."""
    versions = _nccl_versions(processes)
    address = collectives.ras_address(environ)
    if not versions:
        return ()
    if address is None or not collectives.is_safe_to_ask(versions):
        why = (
            "NCCL_RAS_ENABLE or NCCL_RAS_ADDR switched it off"
            if address is None
            else "this NCCL may die of being asked"
        )
        return Gap(what="NCCL communicators", reason=GapReason.NOT_SUPPORTED, detail=why)
    return collectives.communicators(*address, deadline, pids)


def kernels_covered(look: Look, clock: Clock, seconds: float) -> tuple[Coverage, ...]:
    """For which of the machine's GPUs the kernel libraries that the server has loaded have machine code."""
    if isinstance(look.gpus, Gap) or not look.gpus:
        return ()
    libraries = {path for one in look.processes for path in _mapped(one, "kernels")}
    architectures = sorted({gpu.architecture for gpu in look.gpus if gpu.architecture})
    deadline = Deadline(clock, seconds, "kernel coverage")
    read = Probe("kernel coverage", partial(coverage, sorted(libraries), architectures, deadline)).result(deadline)
    return () if isinstance(read, Gap) else read


def _mapped(one: ProcessLook, kind: str) -> Iterator[str]:
    libraries = () if isinstance(one.facts.libraries, Gap) else one.facts.libraries
    return (library.path for library in libraries if library.kind == kind)


def _nccl_versions(processes: Sequence[ProcessLook]) -> set[str]:
    mapped = (one.facts.libraries for one in processes if not isinstance(one.facts.libraries, Gap))
    return {library.version for libraries in mapped for library in libraries if library.kind == "nccl"}
