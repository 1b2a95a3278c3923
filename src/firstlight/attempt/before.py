"""Before a launch: what speaks against it, and the state that a run begins with."""

import os

from firstlight.attempt.scene import Scene
from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.events import Verdict
from firstlight.core.gap import Gap
from firstlight.core.report import Finding, Report
from firstlight.core.server import ServerCommand
from firstlight.core.state import RunState
from firstlight.core.vocabulary import Motion, Outcome, Phase
from firstlight.errors import FirstlightError, UsageError
from firstlight.supervise.processes.ports import owner_of_port
from firstlight.supervise.runs.folders import RunFolder
from firstlight.supervise.runs.journal import Journal, StateFile, redacted_json
from firstlight.supervise.runs.pids import pid_space


class PortTaken(UsageError):
    """Another process listens on the server's port already."""

    def __init__(self, port: int, pid: int, name: str) -> None:
        who = f"{name} (pid {pid})" if pid else "a process that may not be seen from here"
        super().__init__(
            f"port {port} is already taken by {who}; the server was not started",
            f"End that process, or give the server another port; `ss -ltnp sport = :{port}` shows who listens.",
        )
        self.pid = pid


def port_taken(command: ServerCommand) -> PortTaken | None:
    """Why the server could never listen, None if nothing speaks against it.

    Some engines bind their port only after minutes of loading, and fail then; so this is asked first.
    """
    if not command.port:
        return None
    owner = owner_of_port(command.port)
    if owner is None:
        return None
    if isinstance(owner, Gap):
        return PortTaken(command.port, 0, "")
    pid, name = owner
    return PortTaken(command.port, pid, name)


def not_started(command: ServerCommand, folder: RunFolder, scene: Scene, why: FirstlightError) -> Report:
    """The report of a server that was not started, said and kept like any other."""
    now = scene.clock.wall()
    taken = isinstance(why, PortTaken)
    finding = Finding(
        id="port_in_use" if taken else "not_startable",
        title=why.what,
        verdict="established",
        pids=(why.pid,) if isinstance(why, PortTaken) and why.pid else (),
    )
    report = Report(
        run=folder.id,
        outcome=Outcome.NOT_STARTED,
        headline=why.what,
        engine=command.engine,
        engine_version="",
        command=redact.command(command.argv),
        started=now,
        ended=now,
        phase=Phase.SPAWN,
        url=command.url if command.port else "",
        findings=(finding,),
        gaps=folder.gaps,
        next_steps=(why.way_out,) if why.way_out else (),
    )
    verdict = Verdict(at=now, t=0.0, report=report)
    Journal(folder).write(verdict)
    folder.write("report.json", redacted_json(report))
    StateFile(folder).write(first_state(command, folder, scene.clock, Outcome.NOT_STARTED))
    scene.observer.event(verdict)
    return report


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
