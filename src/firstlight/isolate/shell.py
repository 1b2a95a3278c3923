"""The line that a shell is told to run, where it is one plain command and can be changed without a doubt. Pure."""

import re
import shlex
from collections.abc import Sequence

from firstlight.core.record import Record
from firstlight.engines.words import shell_commands
from firstlight.errors import UsageError

_SINGLE_QUOTED = re.compile(r"'[^']*'")
_MEANS_MORE = re.compile(r"[$`\\*?~#!\[\]<>|&;(){}\n]")
_ASSIGNMENT = re.compile(r"(?s)([A-Za-z_]\w*=)(.*)")


class ShellLine(Record):
    """The words of the line, and the words of the command before and after it."""

    words: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...] = ()

    def argv(self, words: Sequence[str]) -> tuple[str, ...]:
        """The command with other words in its line."""
        return (*self.before, " ".join(map(quoted, words)), *self.after)


def shell_line(argv: Sequence[str]) -> ShellLine | None:
    """None if no shell is told to run a line.

    Raises:
        UsageError: it is more than one plain command, so that parts of it cannot be left out safely.
    """
    commands = shell_commands(argv)
    if not commands:
        return None
    for index, word in enumerate(argv):
        plain = _plain_words(word)
        if plain and [plain] == commands:
            return ShellLine(words=plain, before=tuple(argv[:index]), after=tuple(argv[index + 1 :]))
    raise UsageError(
        "The command is a line for a shell that does more than start one program with plain words: options cannot be"
        " taken out of it safely.",
        "Give the server's own command: firstlight isolate -- vllm serve … , with its variables in front.",
    )


def _plain_words(line: str) -> tuple[str, ...]:
    """The words of a line in which nothing means more than it says; none if something does."""
    if _MEANS_MORE.search(_SINGLE_QUOTED.sub("", line)):
        return ()
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return ()


def quoted(word: str) -> str:
    """A word as a shell reads it back; of an assignment only the value, so that it stays one."""
    assignment = _ASSIGNMENT.fullmatch(word)
    return assignment[1] + shlex.quote(assignment[2]) if assignment else shlex.quote(word)


def typed_line(words: Sequence[str]) -> str:
    """A command as one line for a shell: only in front of it is `NAME=value` an assignment, elsewhere a word."""
    front = next((index for index, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    return " ".join((*map(quoted, words[:front]), *map(shlex.quote, words[front:])))
