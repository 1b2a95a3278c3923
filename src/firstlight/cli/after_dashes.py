"""Commands that take a server's command after `--`."""

import click


class CommandAfterDashes(click.Command):
    """Everything after `--` belongs to the server and is passed on untouched, as `ctx.meta["server_command"]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta["server_command"] = tuple(args[cut + 1 :])
            args = args[:cut]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"firstlight {ctx.info_name} -- {_COMMAND} {error.option_name} …"
            raise click.UsageError(
                f"{error.format_message()} Options of the server follow its command: {where}", ctx
            ) from error


_COMMAND = "firstlight serve MODEL"
"""A server's command as an example: the one that everybody has who has firstlight."""
