"""Where to ask: the port that the server itself listens on."""

from collections.abc import Iterable

from firstlight.core.gap import Gap
from firstlight.core.process import Process
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.liveness.sampling import Sampler


class OwnPort:
    """The port of one server. Another's port does not count.

    The port that the command names also counts if nobody can tell whose it is.
    Where the command does not name one and several are open (a rendezvous store, metrics), they take turns.
    `number` is the port as far as it is known, be it open or not.
    """

    def __init__(self, named: int, sampler: Sampler) -> None:
        """`named` is the port that the command names, 0 if it names none."""
        self.number = named
        self.gaps: tuple[Gap, ...] = ()
        self._named = named
        self._sampler = sampler

    def find(self, processes: Iterable[Process], *, turn: int, asking: bool) -> int:
        """The port if it is open, 0 if it is not yet; the one of last time while somebody is `asking` there."""
        listening = self._sampler.listening_ports(processes, self._named)
        if self._named:
            self.gaps = (_unknown_owner(self._named),) if self._named in listening.unknown else ()
            return self._named if self._named in listening.ours | listening.unknown else 0
        if not asking:
            ports = sorted(listening.ours)
            self.number = ports[turn % len(ports)] if ports else 0
        return self.number


def _unknown_owner(port: int) -> Gap:
    return Gap(
        what=f"who listens on port {port}",
        reason=GapReason.NO_PERMISSION,
        detail="not every process of the server could be searched for it; it is taken to be the server's own",
    )
