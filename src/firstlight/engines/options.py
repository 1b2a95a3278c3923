"""The options of a command line, read the way argparse reads them, and of a small YAML file."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG_BYTES_MAX = 64 * 1024

Options = dict[str, tuple[str, ...]]
"""What was asked for, by key of the engine's table, with the values that followed it."""

_YAML_ENTRY = re.compile(r"(?P<key>[A-Za-z][\w-]*)\s*:(?:\s+(?P<value>.*))?")
_YAML_COMMENT = re.compile(r"(?:^|\s)#.*$")


def read_options(arguments: Sequence[str], names: Mapping[str, Sequence[str]]) -> Options:
    """The wanted options among `arguments`; of a repeated one the last.

    Understands `--x v`, `--x=v`, `--x v1 v2`, underscores for dashes, and unambiguous abbreviations (argparse
    accepts them in both engines). An option without a value gives an empty tuple.
    """
    found: Options = {}
    for index, word in enumerate(arguments):
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        key = _key_of(name, names)
        if key:
            found[key] = (value,) if equals else _values_after(arguments, index)
    return found


def _key_of(name: str, names: Mapping[str, Sequence[str]]) -> str:
    name = name.replace("_", "-")
    for key, options in names.items():
        if name in options:
            return key
    if not name.startswith("--") or len(name) < 4:
        return ""
    keys = {key for key, options in names.items() if any(option.startswith(name) for option in options)}
    return keys.pop() if len(keys) == 1 else ""


def _values_after(arguments: Sequence[str], index: int) -> tuple[str, ...]:
    values = []
    for word in arguments[index + 1 :]:
        if word.startswith("-") and not word[1:].isdigit():
            break
        values.append(word)
    return tuple(values)


def positional(arguments: Sequence[str]) -> str:
    """The argument that belongs to no option, where that is certain: the first word, if it is not an option."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else ""


def number(options: Options, key: str, default: int) -> int:
    """A whole number; `default` if the option is absent, 0 if it was given but cannot be read (as in `$PORT`)."""
    values = options.get(key)
    if values is None:
        return default
    return whole(values[0]) if values else 0


def whole(text: str) -> int:
    """A whole number of at most nine digits, 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0


def word(options: Options, key: str) -> str:
    """The first value of an option, empty if there is none."""
    values = options.get(key) or ("",)
    return values[0]


def config_options(path: str, names: Mapping[str, Sequence[str]]) -> Options:
    """What a YAML file of options says, as far as it is flat: `key: value`, `key: [a, b]`, `key:` with `- a` below.

    Empty if it is not a regular file (opening a FIFO would wait for its writer) or cannot be read; nested parts are
    passed over.
    """
    return read_options(_yaml_arguments(config_text(path)), names)


def config_text(path: str) -> str:
    """The beginning of such a file; empty if it cannot be read."""
    try:
        if not Path(path).is_file():
            return ""
        with Path(path).open("rb") as file:
            return file.read(CONFIG_BYTES_MAX).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _yaml_arguments(text: str) -> list[str]:
    arguments: list[str] = []
    for line in text.splitlines():
        line = _YAML_COMMENT.sub("", line).rstrip()  # noqa: PLW2901
        entry = _YAML_ENTRY.fullmatch(line)
        if entry:
            arguments += [f"--{entry['key']}", *_yaml_values(entry["value"] or "")]
        elif line.lstrip().startswith("- ") and arguments:
            arguments.append(_unquoted(line.lstrip()[2:]))
        elif line and not line[0].isspace():
            arguments.append("--")
    return arguments


def _yaml_values(value: str) -> list[str]:
    if value.startswith("[") and value.endswith("]"):
        return [_unquoted(item) for item in value[1:-1].split(",") if item.strip()]
    return [_unquoted(value)] if value else []


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
