"""What a number on the command line may be: wrong usage is said at once, not found out an hour later."""

import math
from typing import Any

import click

PORT = click.IntRange(0, 65535)
"""0 where a command line does not name one."""


class Finite(click.FloatRange):
    """A number within bounds, and a number: no comparison is true of "nan", and nobody waits for "inf" seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return number


SECONDS = Finite(min=0)
