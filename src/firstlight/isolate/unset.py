"""The variables that an `env` in front of a command takes away before the server starts. Pure."""

from collections.abc import Mapping, Sequence

_IGNORES_ALL = frozenset({"-", "-i", "--ignore-environment"})
_ATTACHED = ("--unset=", "-u")


def left_by_env(front: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What of an environment an `env -u NAME` or `env -i` among the words in front lets through. Source: env(1)."""
    left = dict(environ)
    for index in env_options(front):
        word = front[index]
        if word in _IGNORES_ALL:
            left.clear()
        elif word in {"-u", "--unset"}:
            left.pop(front[index + 1] if index + 1 < len(front) else "", None)
        else:
            left.pop(next((word.removeprefix(one) for one in _ATTACHED if word.startswith(one)), ""), None)
    return left


def env_options(front: Sequence[str]) -> tuple[int, ...]:
    """Where the options of the first `env` stand, each by its first word."""
    index = next((n + 1 for n, word in enumerate(front) if is_env(word)), len(front))
    found = []
    while index < len(front) and front[index].startswith("-"):
        found.append(index)
        index += 2 if front[index] in {"-u", "--unset"} else 1
    return tuple(found)


def unsetting(names: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
    """The command with `env -u NAME` in front for each name; an `env -u` that is there already takes them in."""
    words = tuple(word for name in names for word in ("-u", name))
    if not words:
        return tuple(argv)
    if unsets_in_front(argv):
        return (argv[0], *words, *argv[1:])
    return ("env", *words, *argv)


def unsets_in_front(argv: Sequence[str]) -> bool:
    """Whether the command begins with an `env` that takes variables away."""
    return len(argv) > 1 and is_env(argv[0]) and argv[1].startswith(("-u", "--unset"))


def is_env(word: str) -> bool:
    return word.rpartition("/")[2] == "env"
