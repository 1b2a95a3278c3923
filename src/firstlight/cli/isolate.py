"""`firstlight isolate`: which option is to blame, in as few launches as possible."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.after_dashes import CommandAfterDashes
from firstlight.cli.bounds import SECONDS

if TYPE_CHECKING:
    from firstlight.cli.isolate_screen import IsolateScreen
    from firstlight.isolate.commands import Commands
    from firstlight.isolate.sitting import Sitting

EPILOG = """\b
Examples:
  firstlight isolate -- vllm serve MODEL -tp 8 --speculative-config '{…}' --enable-ep
  firstlight isolate --budget 3600 -- python -m sglang.launch_server --model-path MODEL --tp 8
  firstlight isolate --resume -- CMD …        go on with the latest, for that very command
  firstlight isolate --ladder -- CMD …        a table: as given, without speculation, without graphs …
  firstlight isolate --options my.toml -- ./serve --fast --big 8

What happens: the command is launched as given and must stall; with everything off it must come up. Then the
options and variables are halved, those first that the stall itself points to, until the smallest set is left
that still shows the same stall, and the smallest change that brings the server up. A trial ends as soon as the
stall is known again or the first token is verified. Another failure is noted and never followed. A stall that
shows only now and then is tried until the odds are clear.

Each trial is launched on a free port, one after the other, and leaves nothing behind. Ctrl-C ends the running
trial in order and says how to go on; a second one gives it no more grace.

--options is a TOML file with one [[options]] table for each option: name, names, default, needs, conflicts,
weaker ("halve", "quarter", or a list), effects, fixed, prior (0 to 9); and [[variables]] for the environment.

\b
Exit codes:
  0 an answer: what is to blame; or that it does not stall
  1 it is not an option: with all of them off it stalls, or fails, the same
  2 wrong usage
  3 the command fails in another way than by stalling
  4 firstlight could not look, or something of a trial would not go away
  5 the budget, --max-trials or a deadline passed first; --resume goes on
  130 interrupted; --resume goes on
"""


@click.command(cls=CommandAfterDashes, epilog=EPILOG, short_help="Find the option that is to blame, in few launches.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="last",
    default="",
    metavar="[ID]",
    help="Go on with an isolation of this command; without ID, with the latest. No finished launch is repeated.",
)
@click.option("--ladder", is_flag=True, help="Only the fixed order that a person would try, as a table.")
@click.option(
    "--options",
    "table",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="What is known of the options of this server, as TOML.",
)
@click.option(
    "--fresh-caches",
    is_flag=True,
    help="Give every trial empty caches of its own. By default each finds your caches as the one before left them.",
)
@click.option(
    "--deadline",
    type=SECONDS,
    default=1800.0,
    show_default=True,
    metavar="S",
    help="Give up one trial after S seconds without a stall or a first token. 0: never.",
)
@click.option("--budget", type=SECONDS, default=0.0, metavar="S", help="Give up the whole after S seconds.")
@click.option("--max-trials", type=click.IntRange(0), default=0, metavar="N", help="Give up after N launches.")
@click.option("--keep-port", is_flag=True, help="Launch on the command's own port instead of a free one.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object a line on stdout: each trial, last the answer, or why there is none.",
)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the smallest set of options and variables that still shows the same stall, and the smallest change that
    brings the server up.

    The server's command follows after `--`, exactly as you would type it.
    """
    argv: tuple[str, ...] = ctx.meta.get("server_command") or ()
    if not argv:
        raise click.UsageError("give the server's command after --")
    sys.exit(run(argv, options))


def run(argv: tuple[str, ...], options: dict[str, Any]) -> int:
    """Isolate one command; returns the exit code."""
    from firstlight.cli.follow import interruptible
    from firstlight.cli.isolate_screen import IsolateScreen
    from firstlight.clock import SystemClock
    from firstlight.isolate.commands import Commands
    from firstlight.isolate.notebook import begin, reopen
    from firstlight.isolate.sitting import Sitting, Wishes

    commands = Commands.read(argv, os.environ, options["table"])
    clock = SystemClock()
    names = commands.space.names
    if options["resume"]:
        notebook = reopen(options["resume"], argv, names)
    else:
        notebook = begin(clock, commands.engine, argv, names, fresh_caches=options["fresh_caches"])
    opened = notebook.opened
    wishes = Wishes(
        deadline_s=options["deadline"],
        budget_s=options["budget"],
        trials_max=options["max_trials"],
        fresh_caches=opened.fresh_caches if opened else options["fresh_caches"],
        keep_port=options["keep_port"],
    )
    screen = IsolateScreen(names, as_json=options["as_json"])
    try:
        with interruptible() as interrupts:
            sitting = Sitting(commands, wishes, notebook, watcher=screen, clock=clock, interrupts=interrupts)
            return _finish(sitting, commands, screen, ladder=options["ladder"])
    finally:
        screen.close()
        notebook.close()


def _finish(sitting: "Sitting", commands: "Commands", screen: "IsolateScreen", *, ladder: bool) -> int:
    """Isolate to the end, or say what is known so far and how to go on."""
    from firstlight.errors import FirstlightError
    from firstlight.isolate.isolate import isolate
    from firstlight.isolate.ladder import climb_down

    try:
        if ladder:
            table = climb_down(sitting, commands)
            sitting.conclude(table.headline)
            screen.table(table)
            return table.exit_code
        answer = isolate(sitting, commands)
        sitting.conclude(answer.headline)
    except FirstlightError as error:
        screen.broken_off(error, sitting.so_far(), sitting.notebook.path, again=bool(sitting.trials))
        return error.exit_code
    screen.answer(answer)
    return answer.exit_code
