"""`firstlight check`: what can be known to be wrong before a server is started."""

import os
import sys
from typing import Any

import click

from firstlight.cli.after_dashes import CommandAfterDashes

EPILOG = """\b
Examples:
  firstlight check -- vllm serve MODEL -tp 8
  firstlight check --json -- python -m sglang.launch_server --model-path MODEL --tp 8

Nothing is started and nothing is changed. Limits, shared memory, ports, proxies, file systems, lock files, what
earlier runs left behind, GPU kernels, options that exclude each other, and the model's size are looked at.

\b
Exit codes: 0 nothing speaks against it (hints may be given), 1 it cannot start like this, 2 wrong usage.
"""


@click.command(
    cls=CommandAfterDashes, epilog=EPILOG, short_help="Say what can be known to be wrong before a server is started."
)
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON array on stdout.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Look at the machine as the server of a command would find it, and say what would keep it from starting."""
    server_command: tuple[str, ...] | None = ctx.meta.get("server_command")
    if not server_command:
        raise click.UsageError("give the server's command after --")
    sys.exit(run(server_command, as_json=as_json))


def run(argv: tuple[str, ...], *, as_json: bool) -> int:
    """Check one command; returns the exit code."""
    import msgspec

    from firstlight.attempt import look_before
    from firstlight.cli.progress import progress
    from firstlight.cli.screen.results import wants_colour, width_of
    from firstlight.clock import SystemClock
    from firstlight.core.bundle import read_bundle
    from firstlight.core.vocabulary import Certainty
    from firstlight.diagnose import check
    from firstlight.engines import recognise
    from firstlight.report.terminal import findings
    from firstlight.supervise.runs.journal import redacted_json

    server = recognise(argv, os.environ)
    with progress() as say:
        bundle = look_before(server, SystemClock(), say=say)
    found = check(read_bundle(redacted_json(bundle)))  # as it may be shown
    if as_json:
        click.echo(msgspec.json.encode(found))
    elif found:
        click.echo(findings(found, width=width_of(sys.stdout), colour=wants_colour(sys.stdout)), nl=False)
    else:
        click.echo("nothing was found that speaks against this start")
    return int(any(finding.verdict == Certainty.ESTABLISHED for finding in found))
