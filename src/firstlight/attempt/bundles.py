"""Everything that was seen, put into a bundle. Records in, a record out; only the environment is asked for here."""

import os
from collections.abc import Mapping
from typing import Any

from firstlight import __version__, evidence
from firstlight.attempt.looker import TwoLooks
from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.look import Look
from firstlight.core.process import Exit
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import Motion, Phase
from firstlight.diagnose import Change
from firstlight.engines import typed_options
from firstlight.supervise.log.listen import LogListener
from firstlight.supervise.watch import Watch

PENDING_WORTH_TELLING_S = 2.0
MADE_BY = f"firstlight {__version__}"


def bundle_of(watch: Watch, run: str, host: Host, looks: TwoLooks | None, gaps: tuple[Gap, ...]) -> Bundle:
    """Everything that was seen until now of a server that is watched."""
    return Bundle(
        made_by=MADE_BY,
        run=run,
        at=watch.stamp()["at"],
        engine=watch.profile.name,
        engine_version=watch.phases.version,
        phase=watch.phases.phase,
        quiet_since=watch.quiet_since,
        host=looks.host if looks else host,
        timeline=watch.phases.timeline,
        looks=(looks.first, looks.second) if looks else (),
        exits=tuple(watch.exits),
        logs=evidence.tails(watch.log.kept, watch.profile.errors().see),
        gaps=watch.gaps + gaps,
        question=question_of(watch),
        watchers=tuple(sorted(watch.target.own_pids)),
        motion=watch.judgement.motion,
        started=watch.started_wall,
        root=watch.target.root,
        **_launch(watch.command, watch.target.environ),
    )


def bundle_at_once(
    command: ServerCommand,
    log: LogListener,
    looks: TwoLooks,
    environ: Mapping[str, str],
    *,
    started: float,
    exits: tuple[Exit, ...],
    gaps: tuple[Gap, ...],
    watchers: tuple[int, ...],
) -> Bundle:
    """What two looks at a running server showed. Nobody watched it before, so nobody knows for how long it has been
    quiet."""
    profile = log.phases.profile
    return Bundle(
        made_by=MADE_BY,
        run="",
        at=looks.second.at,
        engine=profile.name,
        engine_version=log.phases.version,
        phase=log.phases.phase,
        quiet_since=0.0,
        host=looks.host,
        timeline=log.phases.timeline,
        looks=(looks.first, looks.second),
        exits=exits,
        logs=evidence.tails(log.kept, profile.errors().see),
        gaps=gaps,
        watchers=watchers,
        started=started,
        motion=Motion.MOVING if looks.difference.change is Change.MOVING else Motion.QUIET,
        **_launch(command, environ),
    )


def bundle_before(command: ServerCommand, host: Host, look: Look, *, refused: str) -> Bundle:
    """What is known of a command that has not been started: the machine, what lies in its way, and why it cannot be
    run at all (`refused`)."""
    return Bundle(
        made_by=MADE_BY,
        run="",
        at=look.at,
        engine=command.engine,
        engine_version="",
        phase=Phase.SPAWN,
        quiet_since=0.0,
        host=host,
        looks=(look,),
        watchers=(os.getpid(),),
        refused=refused,
        **_launch(command, os.environ),
    )


def _launch(command: ServerCommand, environ: Mapping[str, str]) -> dict[str, Any]:
    """What a command line says, redacted, and the environment that it runs in."""
    return {
        "command": redact.command(command.argv),
        "environment": tuple(redact.environ({**environ, **dict(command.env)}).items()),
        "options": typed_options(command),
        "ranks": command.ranks,
        "nodes": command.nodes,
        "node": command.node,
        "port": command.port,
    }


def question_of(watch: Watch) -> str:
    """What came of asking the server for a token, where it is not a token; empty if nothing was asked."""
    questions = watch.questions
    if questions.waiting_s >= PENDING_WORTH_TELLING_S:
        waited = f"{questions.waiting_s:.0f} s"
        return f"port {watch.port} is open, but a request for a token has had no answer for {waited}"
    last = questions.first.last
    return last.what if last is not None and not watch.serving else ""
