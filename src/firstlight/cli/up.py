"""`firstlight up`: start a server, follow it, and end with its first token or the reason why not."""

import os
import sys
from typing import Any

import click

from firstlight.cli.after_dashes import CommandAfterDashes
from firstlight.cli.bounds import PORT, SECONDS

ENGINES = ("vllm", "sglang", "embedded", "generic")

EPILOG = """\b
Examples:
  firstlight up                                   the embedded engine with the demo model
  firstlight up ~/models/Llama-3.2-1B             the embedded engine with a model of yours
  firstlight up -- vllm serve MODEL -tp 8         any vLLM command, exactly as you would type it
  firstlight up -- python -m sglang.launch_server --model-path MODEL --tp 8
  firstlight up --once --on-stall stop -- CMD …   for scripts: one verdict, nothing left running

\b
Exit codes:
  0 serving: the first token was verified        3 the server exited
  1 a stall was found                            4 the server could not be looked at
  2 wrong usage, or it could not be started      5 your deadline passed while it still moved

With --json the server is followed to the same end if nobody reads stdout any more: a reader that goes away must not
take a server down. A script that wants only the verdict adds --once.
"""


@click.command(cls=CommandAfterDashes, epilog=EPILOG, short_help="Start a server and follow it to its first token.")
@click.argument("model", required=False, metavar="[MODEL | -- CMD …]")
@click.option("--once", is_flag=True, help="End after the verdict and stop the server.")
@click.option("--keep", is_flag=True, help="End after the verdict and leave the server running.")
@click.option(
    "--on-stall",
    type=click.Choice(["report", "stop", "wait"]),
    default="report",
    show_default=True,
    help="report: say so and go on watching. stop: say so and end the server. wait: note it and wait on.",
)
@click.option(
    "--deadline", type=SECONDS, default=0.0, metavar="S", help="Give up after S seconds without a first token."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout; the last is the verdict.")
@click.option("--port", type=PORT, metavar="N", default=0, help="The server's port, where its command does not tell.")
@click.option(
    "--name", default="", help="The model's name in requests, where the server's own list is not to be used."
)
@click.option("--engine", type=click.Choice(ENGINES), help="Treat the command as this engine.")
@click.option("--api-key", envvar="FIRSTLIGHT_API_KEY", default="", help="Key for the request that asks for a token.")
@click.option(
    "--prompt", default="The capital of France is", show_default=True, help="What the first token is asked with."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    metavar="N",
    help="Length of that completion.",
)
@click.option(
    "--canary",
    type=SECONDS,
    default=30.0,
    show_default=True,
    metavar="S",
    help="While serving: after S idle seconds ask for one token, to tell idle from hung. 0: never.",
)
@click.option("--show-log", is_flag=True, help="Show the server's log lines on stderr as they come.")
@click.pass_context
def command(ctx: click.Context, /, model: str | None, **options: Any) -> None:
    """Start a server, follow every phase of its start-up, and end with its first verified token, or with a plain
    statement of which process is stuck where.

    Without a command the embedded engine is started, with MODEL: a Hugging Face folder, demo (the default) or
    demo-4bit. `up` stays in the foreground while the server serves and goes on watching; Ctrl-C ends both.
    """
    server_command: tuple[str, ...] | None = ctx.meta.get("server_command")
    if server_command is not None and model is not None:
        raise click.UsageError("give either a MODEL or a command after --, not both")
    if server_command == ():
        raise click.UsageError("there is no command after --")
    if options["once"] and options["keep"]:
        raise click.UsageError("--once stops the server and --keep leaves it: choose one")
    from firstlight.cli.embedded import embedded_command

    sys.exit(run(server_command or embedded_command(model, options["port"], quiet=options["as_json"]), options))


def run(argv: tuple[str, ...], options: dict[str, Any]) -> int:
    """Follow one server command; returns the exit code."""
    import msgspec

    from firstlight.attempt import OnStall, Options, Stay, start
    from firstlight.cli.follow import following
    from firstlight.engines import recognise

    command = recognise(argv, os.environ)
    changes = {
        "engine": options["engine"],
        "port": options["port"],
        "served_name": options["name"],
        "api_key": options["api_key"],
    }
    command = msgspec.structs.replace(command, **{name: value for name, value in changes.items() if value})
    stay = Stay.ONCE if options["once"] else Stay.KEEP if options["keep"] else Stay.STAY
    wanted = Options(
        stay=stay,
        on_stall=OnStall(options["on_stall"]),
        deadline_s=options["deadline"],
        prompt=options["prompt"],
        max_tokens=options["max_tokens"],
        canary_s=options["canary"],
        show_log=options["show_log"],
    )
    with following(wanted, json=options["as_json"], show_log=options["show_log"]) as scene:
        return start(command, scene).exit_code
