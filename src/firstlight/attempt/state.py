"""The state file of a run: how its server stands, for `firstlight runs` and `firstlight probe`."""

import os

from firstlight.clock import Clock
from firstlight.core.report import FirstToken
from firstlight.core.server import ServerCommand
from firstlight.core.state import RunState
from firstlight.core.vocabulary import Motion, Outcome, Phase
from firstlight.supervise.runs.folders import RunFolder
from firstlight.supervise.runs.journal import StateFile
from firstlight.supervise.runs.pids import pid_space
from firstlight.supervise.watch import Watch


def first_state(command: ServerCommand, folder: RunFolder, clock: Clock, outcome: Outcome | None = None) -> RunState:
    """The state before a launch. It takes its place on the disk before a server's log may fill that: a probe must
    find a state to read.
    """
    now = clock.wall()
    return RunState(
        run=folder.id,
        supervisor=os.getpid(),
        server=0,
        url=command.url if command.port else "",
        phase=Phase.SPAWN,
        motion=Motion.MOVING,
        why="about to start",
        since=now,
        quiet_s=0.0,
        progress="",
        serving=False,
        outcome=outcome,
        at=now,
        boottime=clock.boottime(),
        engine=command.engine,
        model=command.served_name or command.model,
        started=now,
        pid_space=pid_space(),
    )


class KeptState:
    """The state file of a server that is followed, and since when it moves or stands still."""

    def __init__(self, watch: Watch, folder: RunFolder, clock: Clock) -> None:
        self._watch = watch
        self._run = folder.id
        self._file = StateFile(folder)
        self._clock = clock
        self._motion = Motion.MOVING
        self._since = clock.wall()

    def write(self, outcome: Outcome | None, token: FirstToken | None) -> None:
        """Write down how things stand now; `outcome` is None while the attempt goes on."""
        watch, judgement, counter = self._watch, self._watch.judgement, self._watch.phases.counter
        if judgement.motion != self._motion:
            self._motion, self._since = judgement.motion, self._clock.wall() - judgement.quiet_s
        self._file.write(
            RunState(
                run=self._run,
                supervisor=os.getpid(),
                server=watch.target.root.pid,
                url=watch.url,
                phase=watch.phases.phase,
                motion=judgement.motion,
                why=judgement.why,
                since=self._since,
                quiet_s=round(judgement.quiet_s, 1),
                progress=f"{counter.done:g}/{counter.total:g} {counter.unit}" if counter else "",
                serving=watch.serving and judgement.motion != Motion.STALLED,
                outcome=outcome,
                at=self._clock.wall(),
                boottime=self._clock.boottime(),
                engine=watch.profile.name,
                model=watch.command.served_name or watch.command.model,
                started=watch.started_wall,
                first_token_s=token.after_launch_s if token else None,
                pid_space=pid_space(),
            )
        )
