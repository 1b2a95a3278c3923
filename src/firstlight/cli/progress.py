"""What is being done, on stderr, for commands that take more than a moment."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that is told what is being done: one line that is overwritten on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield status.update
