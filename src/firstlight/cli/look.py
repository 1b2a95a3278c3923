"""`firstlight look`: collect the evidence about a running server now, into one file."""

import sys
from pathlib import Path
from typing import Any

import click

from firstlight.cli.bounds import PORT, SECONDS

EPILOG = """\b
Examples:
  firstlight look 4711                      the server whose first process is 4711
  firstlight look 4712                      the same, if 4712 is a rank of it; with --alone only that one
  firstlight look :8000 -o stuck.json       the server that listens on port 8000
  firstlight look 4711 --json | firstlight why -
  firstlight why node0.json node1.json      what the looks at several nodes come to, together

The server is read from outside and asked nothing. A process that computes is paused for some milliseconds while its
Python stack is read, one that waits is not. Secrets are replaced before anything is written.

\b
Exit codes: 0 looked, 2 wrong usage or no such process, 4 it could not be looked at.
"""


@click.command(epilog=EPILOG, short_help="Collect the evidence about a running server now, into one file.")
@click.argument("target", metavar="PID|:PORT")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; look-PID.json by default."
)
@click.option("--json", "as_json", is_flag=True, help="Write the bundle to stdout, and no file unless -o names one.")
@click.option(
    "--apart",
    type=SECONDS,
    default=4.0,
    show_default=True,
    metavar="S",
    help="Seconds between the two looks: slow or stuck is a difference.",
)
@click.option(
    "--native",
    is_flag=True,
    help="Also stop each process for its native stacks (eu-stack, pystack, py-spy or gdb, whichever is there): for "
    "milliseconds to seconds, which can wake the very stall that is looked at.",
)
@click.option(
    "--port", type=PORT, metavar="N", default=0, help="The server's port, where its command line does not tell."
)
@click.option("--alone", is_flag=True, help="Look at process PID itself, even if it is a part of a server.")
def command(target: str, **options: Any) -> None:
    """Look at a running server: every process with its stacks, files, sockets and locks, the log's last words, the
    GPUs and the machine, twice, some seconds apart. The result is a bundle, which `firstlight why` weighs here or
    anywhere else.
    """
    sys.exit(run(target, options))


def run(target: str, options: dict[str, Any]) -> int:
    """Look once; returns the exit code."""
    import msgspec

    from firstlight.attempt import look_now
    from firstlight.cli.attach import who
    from firstlight.cli.progress import progress
    from firstlight.cli.rendered import write_file
    from firstlight.clock import SystemClock
    from firstlight.core.bundle import read_bundle
    from firstlight.core.words import printable
    from firstlight.diagnose import reported
    from firstlight.engines import recognise
    from firstlight.supervise.attached import Attached, command_of
    from firstlight.supervise.runs.journal import redacted_json

    pid, port = who(target)
    if not options["alone"]:
        pid = _whole_server(pid)
    clock = SystemClock()
    attached = Attached(pid, clock)
    server = recognise(*command_of(pid))
    server = msgspec.structs.replace(server, port=options["port"] or port or server.port)
    with progress() as say:
        bundle = look_now(attached, server, clock, apart_s=options["apart"], say=say, pausing=options["native"])
    data = redacted_json(bundle)
    output: Path | None = options["output"]
    if options["as_json"]:
        click.echo(data, nl=False)
    elif output is None:
        output = Path(f"look-{pid}.json")
    if output is not None:
        write_file(output, data, "bundle")
    if not options["as_json"]:
        # Of what was written, not of what was seen: the secrets are out of that.
        click.echo(printable(reported(read_bundle(data)).headline))
        click.echo(f"`firstlight why {output}` says what speaks for it", err=True)
    return 0


def _whole_server(pid: int) -> int:
    """The first process of the server that a process plainly is a part of; else the process itself."""
    from firstlight.supervise.attached import first_process

    try:
        first = first_process(pid, plainly=True)
    except OSError:
        return pid  # whoever looks at it says why it cannot be seen
    if first != pid:
        click.echo(
            f"process {pid} is a part of the server whose first process is {first}, which is looked at; with --alone "
            f"only {pid} is",
            err=True,
        )
    return first
