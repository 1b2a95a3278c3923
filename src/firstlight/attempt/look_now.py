"""Look at a running server now: its processes twice, its log once, the machine; no question is asked of it."""

import os
from collections.abc import Callable
from contextlib import closing

import msgspec

from firstlight.attempt.bundles import bundle_at_once
from firstlight.attempt.looker import Looker
from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.engines import profile_for
from firstlight.errors import CannotLook
from firstlight.supervise.attached import Attached
from firstlight.supervise.log.listen import LogListener
from firstlight.supervise.log.phases import PhaseTracker
from firstlight.supervise.processes.exits import exit_of, status_by_zombie
from firstlight.supervise.processes.tree import ProcessTree
from firstlight.supervise.stamp import Stamps

Say = Callable[[str], None]


def look_now(
    target: Attached,
    command: ServerCommand,
    clock: Clock,
    *,
    apart_s: float,
    say: Say,
    pausing: bool = False,
) -> Bundle:
    """Everything that can be seen of a running server. `say` is told what is being done. With `pausing` its processes
    may be stopped for their native stacks.

    Raises:
        CannotLook: the server ended before it could be looked at.
    """
    environ = target.environ
    redact.remember((command.api_key, *redact.secrets_of(command.argv, (*command.env, *environ.items()))))
    profile = profile_for(command)
    with closing(ProcessTree(target.root, clock, reapers=target.reapers, identify=profile.identify)) as tree:
        say("reading its log")
        log = LogListener(target.followers, PhaseTracker(profile, clock.wall()), lambda _: True, clock, Stamps(clock))
        log.catch_up()
        members = _Members(tree, clock)
        looker = Looker(members.now, target.root.pid, command, environ, target.started, clock, pausing=pausing)
        looks = looker.twice(command.port, apart_s=apart_s, say=say)
        if not any(look.processes for look in (looks.first, looks.second)):
            raise CannotLook(f"process {target.root.pid} ended before it could be looked at")
        return bundle_at_once(
            command,
            log,
            looks,
            environ,
            started=target.started,
            exits=tuple(members.ended.values()),
            gaps=(*target.gaps, *tree.gaps),
            watchers=(os.getpid(),),
        )


class _Members:
    """The server's processes at each look. `ended` are those that were left as zombies before, or went between."""

    def __init__(self, tree: ProcessTree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self.ended: dict[ProcessId, Exit] = {}

    def now(self) -> tuple[Process, ...]:
        for id_ in self._tree.refresh().gone:
            if process := self._tree.known(id_):
                self.ended[id_] = _exit(process, self._clock.wall())
        return tuple(self._tree.processes.values())


def _exit(process: Process, at: float) -> Exit:
    """How a process ended, which a zombie still tells."""
    status = status_by_zombie(process.id)
    reaped = Gap(
        what="exit status",
        reason=GapReason.NOT_SUPPORTED,
        detail="its parent took the status, or it may not be read",
        pid=process.id.pid,
    )
    seen = exit_of(process.id, redact.text(process.name), reaped if status is None else status, at)
    return msgspec.structs.replace(seen, role=process.role, rank=process.rank, label=process.label)
