"""A report in the form that was asked for, to stdout or into a file."""

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

import click

from firstlight.core.report import Report
from firstlight.errors import UsageError

FORMATS = ("terminal", "markdown", "html", "json")
SUFFIXES = {".md": "markdown", ".html": "html", ".htm": "html", ".json": "json"}


def form_of(form: str | None, output: Path | None, *, as_json: bool) -> str:
    """The form that was named, or that the file's suffix tells, or the terminal's."""
    if form or as_json:
        return form or "json"
    return SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal"


def write_report(report: Report, form: str, output: Path | None) -> None:
    """Say it on stdout, or write it to `output`."""
    text = render(report, form, colour=output is None)
    if output is None:
        click.echo(text, nl=False)
        return
    write_file(output, text.encode(errors="replace"), "report")


def write_file(output: Path, data: bytes, what: str) -> None:
    """Write a whole file, or leave the old one as it was; and say so.

    Raises:
        UsageError: it could not be written.
    """
    try:
        _put(output, data)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"the {what} could not be written: {why}: {output}", "Name another file with -o") from error
    click.echo(f"written to {output}", err=True)


def _put(output: Path, data: bytes) -> None:
    """A file is replaced at once. What is none (a pipe), or has a folder that takes no names, is written in place."""
    real = Path(os.path.realpath(output))
    beside = real.with_name(f".firstlight-{secrets.token_hex(4)}.new")
    if real.exists() and not (real.is_file() and os.access(real.parent, os.W_OK) and os.access(real, os.W_OK)):
        output.write_bytes(data)
        return
    try:
        with beside.open("xb") as file:
            file.write(data)
        if real.exists():
            beside.chmod(real.stat().st_mode & 0o777)
        beside.replace(real)
    finally:
        with suppress(OSError):
            beside.unlink()


def render(report: Report, form: str, *, colour: bool = False) -> str:
    """The report in one of the forms, ending in a newline."""
    from firstlight.core.record import to_json
    from firstlight.report.html import html
    from firstlight.report.markdown import markdown
    from firstlight.report.terminal import terminal

    if form == "json":
        return to_json(report).decode() + "\n"
    if form == "terminal":
        from firstlight.cli.screen.results import wants_colour, width_of

        return terminal(report, width=width_of(sys.stdout), colour=colour and wants_colour(sys.stdout))
    return html(report) if form == "html" else markdown(report)
