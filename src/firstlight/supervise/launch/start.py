"""Starts a server under a guard: in a session of its own, with its output going to files."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from firstlight.clock import Clock
from firstlight.core.server import ServerCommand
from firstlight.supervise.launch.family import RUN_VARIABLE, mark_of
from firstlight.supervise.launch.guardlink import GuardProcess, start_guard
from firstlight.supervise.launch.guardprocess import become_subreaper
from firstlight.supervise.launch.refusals import no_process
from firstlight.supervise.launch.server import GRACE_S, Server
from firstlight.supervise.launch.streams import Output


def launch(
    command: ServerCommand,
    folder: Path,
    clock: Clock,
    *,
    run: str = "",
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    grace_s: float = GRACE_S,
) -> Server:
    """Start the command in a session of its own, with its log in `folder` (stdout.log, stderr.log, exits.jsonl).

    `environ` is the base environment, that of this process by default; the command's own variables go on top.
    `grace_s` is what the guard allows the server when firstlight vanishes. Without `cwd` the server starts where
    firstlight is, even if that folder has been removed.

    Raises:
        CommandNotFound: the program is not there, or may not be run.
        LaunchFailed: the system refused a process, or the guard could not be started.
    """
    run = run or folder.name
    become_subreaper()
    output = Output(folder)
    env = {**(os.environ if environ is None else environ), **dict(command.env), RUN_VARIABLE: run}
    try:
        guard, message = _first_guard(command, run, env, cwd, output)
    except OSError as error:
        output.close()
        raise no_process(error.errno or 0) from error
    finally:
        output.leave_writing_to_others()
    server = Server(run, guard, output, environ=env, clock=clock, grace_s=grace_s)
    try:
        server.begin({**message, "grace_s": grace_s})
    except BaseException:
        server.close()
        raise
    return server


def _first_guard(
    command: ServerCommand, run: str, env: dict[str, str], cwd: Path | None, output: Output
) -> tuple[GuardProcess, dict[str, object]]:
    """The guard, and what it is to start. A folder that was removed still has a descriptor, though no path."""
    with ExitStack() as stack:
        here = -1
        if cwd is None:
            here = os.open(".", os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, here)
        guard = start_guard(run, [fd for fd in (here, *output.fds) if fd >= 0])
    return guard, {
        "argv": list(command.argv),
        "env": env,
        "mark": mark_of(run),
        "cwd": here if cwd is None else str(cwd),
        **output.message,
    }
