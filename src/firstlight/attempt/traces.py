"""What a server that has ended may leave behind, to the harm of the next: asked before a launch and after its end."""

from collections.abc import Iterable, Mapping
from os import sysconf
from pathlib import Path

from firstlight import gpus
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.process import ProcessId
from firstlight.evidence.lock_files import bare_lock_files, extension_folders
from firstlight.supervise.background import Background
from firstlight.supervise.processes.ports import PortOwner, owner_of_port
from firstlight.supervise.runs.pids import alive_since

LOCKS_S = 5.0
GPUS_S = 5.0
POLL_S = 0.05


class Traces:
    """Made before the launch, in the environment of the server."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._folders = extension_folders(dict(environ))
        self._locks = {lock.path for lock in self._lock_files()}
        self._on_gpus = self._gpu_pids()

    def alive(self, ids: Iterable[ProcessId]) -> tuple[ProcessId, ...]:
        """Those of the processes that have not ended."""
        return tuple(one for one in ids if alive_since(one.pid, one.started / sysconf("SC_CLK_TCK")))

    def listener(self, port: int) -> PortOwner | Gap | None:
        """Who listens on the port, None if it is free."""
        return owner_of_port(port)

    def on_gpus(self, pids: Iterable[int]) -> frozenset[int]:
        """Those of the pids that a GPU's driver still knows, and did not before; none where it does not tell."""
        return (self._gpu_pids() & frozenset(pids)) - self._on_gpus

    def _gpu_pids(self) -> frozenset[int]:
        seen = gpus.look(Deadline(self._clock, GPUS_S, "who is on the GPUs"), self._clock)
        told = () if isinstance(seen, Gap) else (one.processes for one in seen)
        return frozenset(one.pid for those in told if not isinstance(those, Gap) for one in those)

    def stale_locks(self) -> tuple[str, ...]:
        """Lock files of extension builds that are new since the launch, beside which nobody builds any more."""
        locks = self._lock_files()
        return tuple(
            lock.path for lock in locks if lock.path not in self._locks and not (lock.holder or lock.builders)
        )

    def remove_lock(self, path: str) -> bool:
        """Remove a stale lock file; whether it is gone."""
        try:
            Path(path).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def _lock_files(self) -> tuple[Lock, ...]:
        """Within a deadline: a dead network file system is not waited for."""
        deadline = Deadline(self._clock, LOCKS_S, "lock files in caches")
        search = Background(lambda: bare_lock_files(self._folders, self._clock, deadline), deadline.name)
        while (found := search.poll()) is None and not deadline.passed:
            self._clock.sleep(POLL_S)
        return () if found is None or isinstance(found, Gap) else found
