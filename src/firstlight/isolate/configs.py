"""A flat YAML file of options as the words that it stands for. Pure.

Only what means the same to every reader is taken: `key: value`, `key: [a, b]`, and `key:` with `- a` below.
"""

import re

_ENTRY = re.compile(r"(?P<key>[A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(?P<value>\S.*?))?[ \t]*")
_ITEM = re.compile(r"[ \t]*-[ \t]+(?P<value>\S.*?)[ \t]*")
_PLAIN = re.compile(r"[^\s&*!|>{}\[\]'\"#%@`,:-](?:[^#:{}\[\],]|:(?=\S))*|-?[\d.]+")
_QUOTED = re.compile(r"'(?P<single>[^'\\]*)'|\"(?P<double>[^\"\\]*)\"")
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_NOTHING = frozenset({"null", "none", "~"})


def words_of(text: str, *, negations: bool) -> tuple[str, ...] | None:
    """The words; None if the text is not flat, or says something that readers may take differently. A key that is
    false becomes `--no-key`, if the server knows such `negations`, and nothing otherwise."""
    entries = _entries(text)
    if not entries:
        return None
    words: list[str] = []
    for key, values in entries:
        truth = values[0].lower() if len(values) == 1 else ""
        if truth in _FALSE:
            words += [f"--no-{key}"] if negations else []
        else:
            words += [f"--{key}", *(() if truth in _TRUE else map(_unquoted, values))]
    return tuple(words)


def _entries(text: str) -> list[tuple[str, list[str]]] | None:
    """Keys with their values, still quoted; None if any line is something else."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry, item = _ENTRY.fullmatch(line), _ITEM.fullmatch(line)
        if entry:
            values = _values(entry["value"] or "")
            if values is None:
                return None
            found.append((entry["key"], values))
        elif item and found and _is_scalar(item["value"]):
            found[-1][1].append(item["value"])
        else:
            return None
    return found if all(values for _, values in found) else None


def _values(text: str) -> list[str] | None:
    if text.startswith("[") and text.endswith("]"):
        values = [value.strip() for value in text[1:-1].split(",")]
    else:
        values = [text] if text else []
    return values if all(map(_is_scalar, values)) else None


def _is_scalar(value: str) -> bool:
    if value.lower() in _NOTHING:
        return False
    return bool(_PLAIN.fullmatch(value) or _QUOTED.fullmatch(value))


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return (quoted["single"] or quoted["double"] or "") if quoted else value
