"""What becomes of the server's processes when the guard, their parent, has died: firstlight inherits and reaps."""

import os
from collections.abc import Iterator

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.process import Exit, ProcessId
from firstlight.supervise.launch.ending import Member, look
from firstlight.supervise.launch.family import Family
from firstlight.supervise.launch.guard import note_exit
from firstlight.supervise.processes.exits import exit_of


class Orphans:
    """The server's own among the children of this process, which has others besides."""

    def __init__(self, family: Family, root: ProcessId, exits_file: int, clock: Clock) -> None:
        self._family = family
        self._root = root
        self._exits_file = exits_file
        self._clock = clock
        self._known: dict[int, Member] = {}

    def reap(self) -> list[Exit]:
        """Collect those that have ended. Who was not known while it lived stays a zombie until firstlight ends."""
        self._known = {member.pid: member for member in self._children()}
        return [exit_ for member in self._known.values() if not member.alive for exit_ in self._collect(member)]

    def _children(self) -> Iterator[Member]:
        for pid in procfs.children(os.getpid()):
            member = look(pid)
            if member is None:
                continue
            known = self._known.get(pid)
            if (known is not None and known.started == member.started) or self._family.includes(member):
                yield member

    def _collect(self, member: Member) -> Iterator[Exit]:
        try:
            pid, status = os.waitpid(member.pid, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        id_, at = ProcessId(pid=member.pid, started=member.started), self._clock.wall()
        facts = {"pid": pid, "started": member.started, "name": member.name, "status": status, "at": at}
        note_exit(self._exits_file, {**facts, "root": id_ == self._root})
        yield exit_of(id_, member.name, status, at)
