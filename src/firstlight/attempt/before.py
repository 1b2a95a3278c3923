"""Before a launch: what speaks against it, and the report where something does."""

from firstlight.attempt.scene import Scene
from firstlight.attempt.state import first_state
from firstlight.core import redact
from firstlight.core.events import Verdict
from firstlight.core.gap import Gap
from firstlight.core.report import Finding, Report
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import Outcome, Phase
from firstlight.errors import FirstlightError, UsageError
from firstlight.supervise.processes.ports import owner_of_port
from firstlight.supervise.runs.folders import RunFolder
from firstlight.supervise.runs.journal import Journal, StateFile, redacted_json


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
