"""`firstlight report`: a run's verdict as text, Markdown, HTML or JSON."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstlight.cli.rendered import FORMATS, form_of, write_report
from firstlight.core.report import Report
from firstlight.errors import CannotLook

if TYPE_CHECKING:
    from firstlight.supervise.runs.folders import RunFolder

REPORT_BYTES_MAX = 64 * 1024 * 1024

EPILOG = """\b
Examples:
  firstlight report last                          on the terminal
  firstlight report last --format markdown        to paste into an issue; secrets are already removed
  firstlight report a3f -o report.html            one file to send around; part of a run's name is enough
  firstlight report ./copied-run --format json    a run's folder from another machine
"""


@click.command(epilog=EPILOG, short_help="Show the report of a run: terminal, Markdown, HTML or JSON.")
@click.argument("run", default="last", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), help="By default from the suffix of -o, or terminal.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
def command(run: str, form: str | None, as_json: bool, output: Path | None) -> int:
    """Render the report of RUN: its id, a part of it, its folder, or `last` (the default)."""
    write_report(load(run), form_of(form, output, as_json=as_json), output)
    return 0


def load(name: str) -> Report:
    """The report of a run. `last` is the newest of which anything can be read; if that is not the newest it says so.

    Raises:
        RunNotFound: there is no such run.
        CannotLook: neither a report nor a journal that tells of a start can be read.
    """
    from firstlight.supervise.runs.folders import find_run, list_runs

    newest = find_run(name)
    try:
        return _report_of(newest)
    except CannotLook:
        if name != "last":
            raise
        older = next((found for run in list_runs()[1:] if (found := _readable(run)) is not None), None)
        if older is None:
            raise
    click.echo(f"firstlight: nothing can be read of {newest.id}, the newest run; this is {older.run}", err=True)
    return older


def _readable(run: "RunFolder") -> Report | None:
    try:
        return _report_of(run)
    except CannotLook:
        return None


def _report_of(run: "RunFolder") -> Report:
    """The report as it was written, or made from the journal where the run ended without one."""
    import msgspec

    from firstlight.report.rebuilt import rebuild
    from firstlight.supervise.runs.journal import read_journal

    try:
        with run.report.open("rb") as file:
            return msgspec.json.decode(file.read(REPORT_BYTES_MAX), type=Report)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # none yet, or torn by a full disk: the journal knows as well
    try:
        report = rebuild(read_journal(run.journal))
    except OSError as error:
        raise CannotLook(
            f"nothing can be read of {run.id}: {error}", "`firstlight runs` lists what is there"
        ) from error
    if report is None:
        raise CannotLook(f"the journal of {run.id} holds no start of a server", f"Look into {run.path}")
    return report
