"""Begin an attempt: make the run, start or join the server, put the watcher together, follow it."""

import os
from collections.abc import Mapping
from contextlib import ExitStack, closing

from firstlight import evidence
from firstlight.attempt.before import not_started, port_taken
from firstlight.attempt.ending import Ending, EndingOfOurs
from firstlight.attempt.follow import Attempt
from firstlight.attempt.scene import Scene
from firstlight.attempt.state import first_state
from firstlight.core import redact
from firstlight.core.events import Started
from firstlight.core.report import Report
from firstlight.core.server import ServerCommand
from firstlight.engines import profile_for
from firstlight.errors import CommandNotFound, LaunchFailed
from firstlight.gpus.watching import GpuReader
from firstlight.supervise.attached import Attached
from firstlight.supervise.launch.server import Server
from firstlight.supervise.launch.start import launch
from firstlight.supervise.liveness.history import History, machine_id
from firstlight.supervise.liveness.judge import Liveness
from firstlight.supervise.liveness.sampling import Sampler
from firstlight.supervise.processes.exits import ExitWatch
from firstlight.supervise.processes.leftovers import ShmWatch
from firstlight.supervise.processes.tree import ProcessTree
from firstlight.supervise.questions.seek import Questions
from firstlight.supervise.runs.folders import RunFolder, new_run
from firstlight.supervise.runs.journal import StateFile
from firstlight.supervise.runs.places import home
from firstlight.supervise.watch import Watch


def start(command: ServerCommand, scene: Scene, environ: Mapping[str, str] | None = None) -> Report:
    """Start the server and follow it. When this returns the server is gone, unless it was to be kept.

    `environ` is what it is started in, that of this process by default; the command's own variables go on top.
    """
    _remember_secrets(command)
    folder = new_run(scene.clock, command.engine)
    if (refused := port_taken(command)) is not None:
        return not_started(command, folder, scene, refused)
    shm = ShmWatch(scene.clock)
    StateFile(folder).write(first_state(command, folder, scene.clock))
    try:
        server = launch(
            command,
            folder.path,
            scene.clock,
            run=folder.id,
            grace_s=scene.options.grace_s,
            environ={**(os.environ if environ is None else environ), **evidence.asking_by_signal(folder.dumps)},
        )
    except (CommandNotFound, LaunchFailed) as error:
        return not_started(command, folder, scene, error)
    with closing(shm), closing(server):
        return _follow(server, EndingOfOurs(server, shm), command, folder, scene)


def join(target: Attached, command: ServerCommand, scene: Scene) -> Report:
    """Follow a server that is running already. It is never signalled."""
    _remember_secrets(command)
    folder = new_run(scene.clock, command.engine)
    return _follow(target, target, command, folder, scene)


def _follow(
    target: Server | Attached, ending: Ending, command: ServerCommand, folder: RunFolder, scene: Scene
) -> Report:
    clock, options = scene.clock, scene.options
    history = History(home() / "history.sqlite", machine_id())
    profile = profile_for(command)
    with ExitStack() as stack:
        exits = stack.enter_context(closing(ExitWatch(clock)))
        sampler = stack.enter_context(closing(Sampler(clock, port=command.port, gpus=GpuReader(clock.monotonic()))))
        tree = stack.enter_context(
            closing(ProcessTree(target.root, clock, reapers=target.reapers, identify=profile.identify))
        )
        watch = Watch(
            target,
            command,
            profile,
            tree=tree,
            exits=exits,
            sampler=sampler,
            liveness=Liveness(),
            history=history,
            questions=Questions(
                command,
                clock,
                prompt=options.prompt,
                max_tokens=options.max_tokens,
                canary_s=options.canary_s,
            ),
            clock=clock,
            attached=isinstance(target, Attached),
            show_log=options.show_log,
        )
        attempt = Attempt(watch, ending, folder, scene)
        attempt.publish([_started(watch, folder)])
        if watch.attached:
            watch.log.catch_up()
        return attempt.run()


def _started(watch: Watch, folder: RunFolder) -> Started:
    command = watch.command
    return Started(
        **watch.stamp(),
        run=folder.id,
        engine=command.engine,
        command=redact.command(command.argv),
        pid=watch.target.root.pid,
        url=watch.url,
        folder=str(folder.path),
        attached=watch.attached,
    )


def _remember_secrets(command: ServerCommand) -> None:
    """Before anything is written: what must never be."""
    redact.remember((command.api_key, *redact.secrets_of(command.argv, (*command.env, *os.environ.items()))))
