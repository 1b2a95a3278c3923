"""`firstlight serve`: the embedded engine alone; its options are the engine's own."""

import click

CONTEXT = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=CONTEXT, add_help_option=False, short_help="Run the embedded engine alone.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Serve a model folder over HTTP until told to stop."""
    from firstlight.embedded.__main__ import main

    return main(list(arguments), prog="firstlight serve")
