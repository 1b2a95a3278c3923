"""`firstlight why`: weigh what was seen, offline, as often as you like."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.rendered import FORMATS, form_of, write_report

if TYPE_CHECKING:
    from firstlight.core.bundle import Bundle

EPILOG = """\b
Examples:
  firstlight why look-4711.json                    what the look at process 4711 comes to
  firstlight why last                              the newest run that left a bundle
  firstlight why node0.json node1.json             several nodes of one server, merged by rank
  firstlight why look-4711.json -o why.html        the wait-for graph as a picture, in one file
  firstlight look 4711 --json | firstlight why -

A cause is established, supported, or open; "unknown" comes with what to collect next. Nothing is asked of the server
or of the machine: the answer rests on the bundle alone.

\b
Exit codes: 0 an answer was given, 2 no such bundle or run, or one that cannot be read.
"""


@click.command(epilog=EPILOG, short_help="Say who waits for whom and why, from a bundle or a run.")
@click.argument("bundles", metavar="BUNDLE|RUN…", nargs=-1)
@click.option("--format", "form", type=click.Choice(FORMATS), help="By default from the suffix of -o, or terminal.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
def command(bundles: tuple[str, ...], form: str | None, as_json: bool, output: Path | None, **_: Any) -> None:
    """Weigh the evidence in a bundle (a file, `-` for stdin, a run, or `last`): who waits for whom, which causes the
    facts establish, support or exclude, and what to do. Several bundles are the nodes of one server, or looks at
    several of its processes.
    """
    from firstlight.diagnose import merge, reported

    read = [_named(name) for name in bundles or ("last",)]
    report = reported(merge(read) if len(read) > 1 else read[0])
    write_report(report, form_of(form, output, as_json=as_json), output)


def _named(name: str) -> "Bundle":
    """One bundle; what is wrong with it names it, since it may be one of many."""
    from firstlight.errors import BundleError

    try:
        return _read(name)
    except BundleError as error:
        raise BundleError(error.what if name in error.what else f"{name}: {error.what}", error.way_out) from error


def _read(name: str) -> "Bundle":
    """One bundle by the name of its file, by its run, or from stdin."""
    from firstlight.core.bundle import BUNDLE_BYTES_MAX, read_bundle
    from firstlight.errors import BundleError

    if name == "-":
        return read_bundle(sys.stdin.buffer.read(BUNDLE_BYTES_MAX + 1))
    path = Path(name)
    if not path.is_file():
        if _names_a_file(path):
            raise BundleError(f"there is no file {name}", "`firstlight look PID` makes a bundle now")
        path = _of_run(name)
    try:
        with path.open("rb") as file:
            return read_bundle(file.read(BUNDLE_BYTES_MAX + 1))
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error}") from error


def _names_a_file(path: Path) -> bool:
    """Whether it can be no run: a run's name has neither slash nor suffix, and the folder of one is there."""
    return not path.is_dir() and ("/" in str(path) or bool(path.suffix))


def _of_run(name: str) -> Path:
    """The last bundle of a run; of `last`, that of the newest run which has one.

    Raises:
        RunNotFound: no such file and no such run, or it left no bundle.
    """
    from firstlight.errors import RunNotFound
    from firstlight.supervise.runs.folders import find_run, list_runs

    runs = [find_run(name)] if name != "last" else list_runs()
    newest = next((run.bundles[-1] for run in runs if run.bundles), None)
    if newest is None:
        raise RunNotFound(
            f"{name} has no bundle" if runs else "there is no run yet",
            "A run leaves one for every verdict that is not serving; `firstlight look PID` makes one now",
        )
    return newest
