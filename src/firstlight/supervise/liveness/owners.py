"""Whose socket is whose, among the processes of a server: found by search, and only while one is not known.

The kernel lists sockets cheaply, but to learn who holds one the descriptors of every process must be read, at some
5 µs each, and eight ranks may hold ten thousand. So a search is paid from savings of CPU time, stops when they are
spent, and goes on where it stopped once there are new ones: it costs little and always ends. What was searched for
and not found is remembered, and doubted only rarely: a socket can also be handed over (SCM_RIGHTS, unix(7)).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from firstlight import procfs
from firstlight.clock import Clock

CHUNK = 256
"""Descriptors between two looks at what the search has cost."""
DOUBTED_AFTER_S = 60.0
DOUBT_SHARE = 0.001
"""Of a core, for searching again: the longer a whole search takes, the rarer it is repeated."""

_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Scan:
    """One process whose descriptors are being read, and the sockets that were wanted when that began."""

    pid: int
    wanted: frozenset[int]
    sockets: Iterator[int]


class Owners:
    """Owners of sockets, by inode. `share` of a core is spent on the search, up to `savings_s` of CPU at once."""

    def __init__(self, clock: Clock, *, share: float, savings_s: float) -> None:
        self._clock = clock
        self._share = share
        self._most_s = self._savings_s = savings_s
        self._paid_at = clock.monotonic()
        self._owners: dict[int, int] = {}
        self._absent: dict[int, frozenset[int]] = {}
        self._queue: deque[int] = deque()
        self._scan: _Scan | None = None
        self._doubted: set[int] = set()
        self._doubt_at = self._paid_at + DOUBTED_AFTER_S
        self._spent_s = 0.0

    def search(self, inodes: Iterable[int], pids: Sequence[int]) -> None:
        """Look for whoever of `pids`, the likeliest first, holds these sockets, as far as the savings go."""
        wanted = frozenset(inodes)
        self._forget_all_but(wanted, frozenset(pids))
        self._save(pids)
        if self._scan is None and not self._queue:
            unknown = wanted - self._owners.keys()
            self._queue.extend(pid for pid in pids if unknown and self._has_to_be_searched(pid, unknown))
        while self._savings_s > 0 and wanted - self._owners.keys():
            if self._scan is None:
                if not self._queue:
                    return
                pid = self._queue.popleft()
                self._scan = _Scan(pid, wanted, procfs.sockets(pid))
            self._go_on(self._scan)

    def of(self, inode: int) -> int | None:
        """The pid that holds a socket; None if nobody is known to."""
        return self._owners.get(inode)

    def may_be_ours(self, inode: int) -> bool:
        """Whether a socket of unknown owner may belong to a process that could not be searched, or not yet."""
        return inode not in self._owners and any(inode not in absent for absent in self._absent.values())

    def _has_to_be_searched(self, pid: int, unknown: frozenset[int]) -> bool:
        return pid in self._doubted or not unknown <= self._absent[pid]

    def _forget_all_but(self, wanted: frozenset[int], members: frozenset[int]) -> None:
        self._owners = {inode: pid for inode, pid in self._owners.items() if inode in wanted and pid in members}
        self._absent = {pid: self._absent.get(pid, _NOTHING) for pid in members}
        self._queue = deque(pid for pid in self._queue if pid in members)
        if self._scan is not None and self._scan.pid not in members:
            self._scan = None

    def _save(self, pids: Iterable[int]) -> None:
        now = self._clock.monotonic()
        self._savings_s = min(self._most_s, self._savings_s + (now - self._paid_at) * self._share)
        self._paid_at = now
        if now >= self._doubt_at:
            self._doubted = set(pids)
            self._doubt_at = now + max(DOUBTED_AFTER_S, self._spent_s / DOUBT_SHARE)
            self._spent_s = 0.0

    def _go_on(self, scan: _Scan) -> None:
        """Read some more descriptors; at the last of them it is known what this process does not hold."""
        began = self._clock.cpu()
        try:
            seen = list(islice(scan.sockets, CHUNK))
            self._owners.update(dict.fromkeys(scan.wanted.intersection(seen), scan.pid))
            if len(seen) < CHUNK:
                self._end(scan, absent=scan.wanted)
        except PermissionError:
            self._end(scan, absent=_NOTHING)
        except OSError:
            self._end(scan, absent=scan.wanted)  # it is gone, and holds nothing any more
        spent_s = self._clock.cpu() - began
        self._savings_s -= spent_s
        self._spent_s += spent_s

    def _end(self, scan: _Scan, *, absent: frozenset[int]) -> None:
        self._absent[scan.pid] = absent
        self._doubted.discard(scan.pid)
        self._scan = None
