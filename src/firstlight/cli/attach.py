"""`firstlight attach`: watch a server that is already running."""

import sys
from typing import Any

import click

from firstlight.cli.bounds import PORT, SECONDS
from firstlight.errors import UsageError

PORT_MAX = 65535
PID_MAX = 4194304
"""The most that Linux can be told to use (PID_MAX_LIMIT, proc_sys_kernel(5))."""

EPILOG = """\b
Examples:
  firstlight attach 4711             the server whose first process is 4711
  firstlight attach :8000            the server that listens on port 8000
  firstlight attach --once :8000     one verdict, for scripts

\b
Exit codes: as for `firstlight up`. The server is never signalled and never stopped.
"""


@click.command(epilog=EPILOG, short_help="Watch a server that is already running; never signals it.")
@click.argument("target", metavar="PID|:PORT")
@click.option("--once", is_flag=True, help="End after the verdict; the server goes on.")
@click.option("--deadline", type=SECONDS, default=0.0, metavar="S", help="Give up after S seconds without a token.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout; the last is the verdict.")
@click.option(
    "--port", type=PORT, metavar="N", default=0, help="The server's port, where its command line does not tell."
)
@click.option("--api-key", envvar="FIRSTLIGHT_API_KEY", default="", help="Key for the request that asks for a token.")
@click.option("--canary", type=SECONDS, default=30.0, show_default=True, metavar="S", help="As for `firstlight up`.")
@click.option("--show-log", is_flag=True, help="Show the server's log, where it can be read.")
def command(target: str, **options: Any) -> None:
    """Watch a running server as `firstlight up` watches one that it started: phases, progress, stalls, lost ranks.

    Its log is followed where its output goes to a file, or where `firstlight up --keep` started it.
    """
    sys.exit(run(target, options))


def run(target: str, options: dict[str, Any]) -> int:
    """Follow one running server; returns the exit code."""
    import msgspec

    from firstlight.attempt import OnStall, Options, Stay, join
    from firstlight.cli.follow import following
    from firstlight.engines import recognise
    from firstlight.supervise.attached import Attached, command_of

    pid, port = who(target)
    wanted = Options(
        stay=Stay.ONCE if options["once"] else Stay.STAY,
        on_stall=OnStall.REPORT,
        deadline_s=options["deadline"],
        canary_s=options["canary"],
        show_log=options["show_log"],
    )
    with following(wanted, json=options["as_json"], show_log=options["show_log"]) as scene:
        attached = Attached(pid, scene.clock)
        server = recognise(*command_of(pid))
        port = options["port"] or port or server.port
        server = msgspec.structs.replace(server, port=port, api_key=options["api_key"] or server.api_key)
        return join(attached, server, scene).exit_code


def who(target: str) -> tuple[int, int]:
    """The pid and, where it was named, the port."""
    from firstlight.core.gap import Gap
    from firstlight.supervise.attached import first_process
    from firstlight.supervise.processes.ports import owner_of_port

    if not (target.isascii() and target.removeprefix(":").isdecimal()):
        raise UsageError(f"{target!r} is neither a pid nor a port", "A pid is given as 4711, a port as :8000")
    if not target.startswith(":"):
        pid = int(target)
        if not 0 < pid <= PID_MAX:
            raise UsageError(f"{target} is not a pid", f"Pids go from 1 to {PID_MAX}; a port is given as :8000")
        return pid, 0
    port = int(target[1:])
    if not 0 < port <= PORT_MAX:
        raise UsageError(f"{target!r} is not a port", f"Ports go from 1 to {PORT_MAX}")
    owner = owner_of_port(port)
    if owner is None:
        raise UsageError(f"nobody listens on port {port}", "If the server is still starting, name its pid")
    if isinstance(owner, Gap):
        raise UsageError(f"port {port} is taken, but it may not be seen by whom", "Run as root, or name the pid")
    return first_process(owner.pid), port
