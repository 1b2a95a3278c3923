"""The options of a command as they were typed, whatever the engine makes of them."""

from collections.abc import Sequence

from firstlight.core import redact
from firstlight.core.server import ServerCommand
from firstlight.engines.command import engine_words

Typed = tuple[tuple[str, tuple[str, ...]], ...]


def typed_options(command: ServerCommand) -> Typed:
    """Every option of the engine's own part of the command with the words that follow it, in order.

    Names come without the dashes in front and with - for _ ("tensor-parallel-size", "tp"); what `--x=v` gives is one
    word. An option given twice is there twice. Secrets are replaced.
    """
    return _typed(redact.command(engine_words(command)))


def _typed(words: Sequence[str]) -> Typed:
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("-") and not _is_number(word) and word.strip("-"):
            name, equals, value = word.partition("=")
            found.append((name.lstrip("-").replace("_", "-"), [value] if equals else []))
        elif found:
            found[-1][1].append(word)
    return tuple((name, tuple(values)) for name, values in found)


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdecimal()
