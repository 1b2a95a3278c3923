"""Every cause that firstlight knows, one a file: `CAUSE` in each module of this folder. Pure.

To add one, add a file. docs/causes/ tells what each rests on, and how it fares on public reports.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from firstlight.diagnose.clues import Cause


@cache
def all_causes() -> tuple[Cause, ...]:
    """Every cause, by the name of its file."""
    names = sorted(module.name for module in iter_modules(__path__))
    return tuple(import_module(f"{__name__}.{name}").CAUSE for name in names)
