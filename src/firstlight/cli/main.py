"""The command line: a table of commands that are imported only when they run, and one place where errors end."""

import errno
import importlib
import io
import os
import sys
from typing import NamedTuple, NoReturn

import click

from firstlight import __version__
from firstlight.errors import FirstlightError

BUG = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended, as `firstlight runs | head -1` does."""

NOT_WRITTEN = 2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write to stdout is refused with where that is a file."""

EPILOG = """\b
Examples:
  firstlight up                                      a small real model in the embedded engine
  firstlight up -- vllm serve Qwen/Qwen3-8B -tp 2    follow vLLM from launch to its first verified token
  firstlight up --once --json -- CMD ... | tail -1   the verdict as JSON, for scripts
  firstlight attach 4711                             watch a server that is already running
  firstlight look 4711 && firstlight why look-4711.json
                                                     who waits for whom in it, and why
  firstlight isolate -- vllm serve MODEL -tp 8       which option is to blame for a stall
  firstlight report last --format markdown           the last verdict, ready to paste into an issue

\b
Exit codes:
  0    serving: the first token was verified; or a clean answer
  1    a stall was found
  2    wrong usage
  3    the server exited
  4    firstlight could not look
  5    the deadline passed while the server still moved
  70   a bug of firstlight
  130  interrupted before there was a verdict
"""


class Lazy(NamedTuple):
    """A command by its place ("module:attribute") and its line in the help."""

    place: str
    help: str


COMMANDS = {
    "up": Lazy("firstlight.cli.up:command", "Start a server and follow it to its first verified token."),
    "attach": Lazy("firstlight.cli.attach:command", "Watch a server that is already running; never signals it."),
    "probe": Lazy("firstlight.cli.probe:command", "Answer a Kubernetes probe: moving, stalled since, serving."),
    "look": Lazy("firstlight.cli.look:command", "Collect the evidence about a running server now, into one file."),
    "why": Lazy("firstlight.cli.why:command", "Say who waits for whom and why, from a bundle or a run."),
    "check": Lazy("firstlight.cli.check:command", "Say what can be known to be wrong before a server is started."),
    "isolate": Lazy("firstlight.cli.isolate:command", "Find the option that is to blame, in few launches."),
    "serve": Lazy("firstlight.cli.serve:command", "Run the embedded engine alone."),
    "runs": Lazy("firstlight.cli.runs:command", "List past and present runs."),
    "report": Lazy("firstlight.cli.report:command", "Show the report of a run: terminal, Markdown, HTML or JSON."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="firstlight %(version)s")
def firstlight() -> None:
    """Take a large-language-model server from "it loaded" to "it works", and prove it.

    firstlight starts the server, follows every phase of it, and ends with one of two things: the first verified
    token, or a plain statement of which process is stuck, where, and since when.
    """


def main() -> NoReturn:
    """The entry point of the `firstlight` script."""
    _reopen_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a bar shows question marks
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        code = _not_written(error)
    if code in {BROKEN_PIPE, NOT_WRITTEN}:
        _drop_stdout()
    sys.exit(code)


def _reopen_closed_streams() -> None:
    """Whoever starts firstlight may have closed stdin, stdout or stderr; the next file would come to lie there.

    An open takes the lowest number that is free, so they are looked at in order.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def run(argv: list[str]) -> int:
    """Run one command line; every error ends here, as words on stderr and an exit code."""
    try:
        result = firstlight.main(args=argv, prog_name="firstlight", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except FirstlightError as error:
        _say(error.what, error.way_out)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last line of defence; a bug must say that it is one
        return _not_written(error) if isinstance(error, OSError) and _is_full(error) else _bug(error)
    return result if isinstance(result, int) else 0


def _bug(error: Exception) -> int:
    from firstlight.cli.crash import write_crash

    _say("this is a bug of firstlight, please report it", f"What happened is written in {write_crash(error)}")
    return BUG


def _is_full(error: OSError) -> bool:
    """Whether a write to stdout may have been refused so: errors about files of ours name the file."""
    return error.errno in _FULL and not error.filename


def _not_written(error: OSError) -> int:
    _say(f"the output could not be written: {error.strerror}", "")
    return NOT_WRITTEN


def _say(what: str, way_out: str) -> None:
    click.echo(f"firstlight: {what}", err=True)
    if way_out:
        click.echo(f"  {way_out}", err=True)


def _drop_stdout() -> None:
    """Nobody reads any more; without this the interpreter complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
