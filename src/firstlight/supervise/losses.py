"""Which of the processes that are gone the server will miss. Pure."""

from collections.abc import Iterable, Sequence

from firstlight.core.process import Exit, ProcessId
from firstlight.core.vocabulary import Role

HELPER_LIFE_S = 3.0
"""A process that failed sooner was a script, not a rank: `git rev-parse` outside a repository, `nvidia-smi` without a
GPU. Ranks import for longer than that; one that was killed counts at any age."""
MET_MAX = 4096
"""Start times remembered, the oldest forgotten first: a build starts compilers by the thousand."""


class Losses:
    """Sorts exits into lost ranks and helpers that are not missed."""

    def __init__(self) -> None:
        self.lost: tuple[Exit, ...] = ()
        self.since: float | None = None
        self._judged: set[ProcessId] = set()
        self._met_at: dict[ProcessId, float] = {}

    @property
    def certain(self) -> bool:
        """Whether one of them was a rank beyond doubt."""
        return any(_is_rank(exit_) for exit_ in self.lost)

    def see(self, alive: Iterable[ProcessId], exits: Sequence[Exit], now: float) -> None:
        """Take in who lives at `now`, and every exit so far that may be a loss."""
        for id_ in alive:
            self._met_at.setdefault(id_, now)
        for exit_ in exits:
            if exit_.id not in self._judged and self._missed(exit_, now):
                self.lost = (*self.lost, exit_)
                self.since = now
            self._judged.add(exit_.id)
        while len(self._met_at) > MET_MAX:
            del self._met_at[next(iter(self._met_at))]

    def _missed(self, exit_: Exit, now: float) -> bool:
        lived_s = now - self._met_at.get(exit_.id, now)
        return _is_rank(exit_) or exit_.signal is not None or lived_s >= HELPER_LIFE_S


def _is_rank(exit_: Exit) -> bool:
    return exit_.rank >= 0 or exit_.role in {Role.WORKER, Role.ENGINE}
