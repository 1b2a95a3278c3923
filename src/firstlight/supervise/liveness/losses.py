"""Which of the processes that are gone the server will miss. Pure.

Compilers and helpers come and go, and who ends with code 0 has done its work, unless it is a rank; what a rank forked
for a moment is called like it, and is none. A *peer* is missed for certain: a rank, a process with the name of one
that lives on (numbers aside), or one that crashed or was killed.
Anything else that failed may have been a helper; one that failed young was a script (`git rev-parse` outside a
repository, `nvidia-smi` without a GPU) and does not count at all.
"""

import re
import signal
from collections.abc import Iterable, Sequence

from firstlight.core.process import Exit, ProcessId
from firstlight.core.vocabulary import Role
from firstlight.supervise.liveness.activity import ProcessMotion

SCRIPT_LIFE_S = 3.0
"""Ranks import for longer than that."""
MET_MAX = 4096
"""Start times remembered, the oldest forgotten first: a build starts compilers by the thousand."""
ASKED_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM})
"""How a server ends helpers that it no longer needs. Other deadly signals are crashes, or the OOM killer's."""

_NUMBER = re.compile(r"\d+")


class Losses:
    """Sorts exits into lost peers, lost others and those that nobody misses."""

    def __init__(self) -> None:
        self.lost: tuple[Exit, ...] = ()
        self.since: float | None = None
        self.peer = False
        """Whether a peer is among the lost."""
        self._judged: set[ProcessId] = set()
        self._met_at: dict[ProcessId, float] = {}

    def see(self, alive: Iterable[ProcessMotion], exits: Sequence[Exit], now: float) -> None:
        """Take in who lives at `now`, and every exit so far but the root's."""
        living = tuple(alive)
        names = {_numberless(process.name) for process in living}
        for process in living:
            self._met_at.setdefault(process.id, now)
        for exit_ in exits:
            if exit_.id not in self._judged and _may_be_missed(exit_):  # how it ended may be known only later
                self._judged.add(exit_.id)
                if not _was_forked(exit_, living):
                    self._judge(exit_, names, now)
        while len(self._met_at) > MET_MAX:
            del self._met_at[next(iter(self._met_at))]

    def _judge(self, exit_: Exit, names: set[str], now: float) -> None:
        lived_s = now - self._met_at.get(exit_.id, now)
        peer = _is_rank(exit_) or _crashed(exit_) or _numberless(exit_.label or exit_.name) in names
        if peer or lived_s >= SCRIPT_LIFE_S:
            self.lost = (*self.lost, exit_)
            self.since = now
            self.peer = self.peer or peer


def _may_be_missed(exit_: Exit) -> bool:
    """A worker or engine however it went; anything else that was killed or failed and is no compiler or helper."""
    if exit_.role in {Role.WORKER, Role.ENGINE}:
        return True
    failed = exit_.signal is not None or (isinstance(exit_.code, int) and exit_.code != 0)
    return failed and exit_.role not in {Role.COMPILER, Role.HELPER}


def _was_forked(exit_: Exit, living: Iterable[ProcessMotion]) -> bool:
    """Whether it did its work for one that was there before, has its name and lives on."""
    called = (exit_.label or exit_.name, exit_.rank)
    return exit_.code == 0 and any(
        (process.name, process.rank) == called and process.id.started < exit_.id.started for process in living
    )


def _is_rank(exit_: Exit) -> bool:
    return exit_.rank >= 0 or exit_.role in {Role.WORKER, Role.ENGINE}


def _crashed(exit_: Exit) -> bool:
    return exit_.signal is not None and exit_.signal not in ASKED_TO_END


def _numberless(name: str) -> str:
    return _NUMBER.sub("#", name)
