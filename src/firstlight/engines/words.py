"""The words of a command: variables in front of it, wrappers around it, a shell line inside it."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?(?:-\w+)?")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_OPERATOR = re.compile(r"[();<>|&]+")
_LINE_BREAK = re.compile(r"(?<!\\)\n")


class Found(NamedTuple):
    """Where a launch begins in a command, and where its own arguments begin."""

    begin: int
    arguments: int


def is_python(word: str) -> bool:
    """True for a Python interpreter, by any path and version."""
    return _PYTHON.fullmatch(PurePath(word).name) is not None


def find_launch(words: Sequence[str], launch: str) -> Found | None:
    """Where the words of `launch` ("vllm serve", "-m sglang.launch_server") stand next to each other.

    The first of them may also be the end of a path.
    """
    wanted = launch.split()
    for begin in range(len(words) - len(wanted) + 1):
        first = words[begin]
        if (first == wanted[0] or first.endswith("/" + wanted[0])) and list(
            words[begin + 1 : begin + len(wanted)]
        ) == wanted[1:]:
            return Found(begin, begin + len(wanted))
    return None


def split_environment(argv: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables in front of a command (`A=b cmd`), and the command without them."""
    count = 0
    while count < len(argv) and _ASSIGNMENT.match(argv[count]):
        count += 1
    return assignments(argv[:count]), tuple(argv[count:])


def assignments(words: Sequence[str]) -> dict[str, str]:
    """Every `NAME=value` among words."""
    pairs = (word.partition("=") for word in words if _ASSIGNMENT.match(word))
    return {name: value for name, _, value in pairs}


def shell_commands(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """The simple commands of the line that a shell is told to run (`bash -c "…"`); none if there is no such line.

    Quotes that do not close give none either. Redirections end a command's words; variables stay as they stand.
    """
    line = _shell_line(argv)
    if not line:
        return []
    lexer = shlex.shlex(_LINE_BREAK.sub(";", line).replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    return _simple_commands(tokens)


def _shell_line(argv: Sequence[str]) -> str:
    for index, word in enumerate(argv):
        if PurePath(word).name in _SHELLS:
            options = 1
            while index + options < len(argv) and argv[index + options].startswith("-"):
                if "c" in argv[index + options].lstrip("-") and not argv[index + options].startswith("--"):
                    return argv[index + options + 1] if index + options + 1 < len(argv) else ""
                options += 1
    return ""


def _simple_commands(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    commands: list[list[str]] = [[]]
    redirected = False
    for token in tokens:
        if not _OPERATOR.fullmatch(token):
            if not redirected:
                commands[-1].append(token)
        elif "<" in token or ">" in token:
            redirected = True
            if commands[-1] and commands[-1][-1] in {"1", "2"}:
                commands[-1].pop()
        else:
            commands.append([])
            redirected = False
    return [tuple(command) for command in commands if command]
