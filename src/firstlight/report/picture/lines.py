"""Words in a small space: how wide they are, where they break, what is cut. Pure."""

from unicodedata import east_asian_width

_EM_SHARE = 0.58
"""A letter of a usual sans-serif font is so wide, on average, in the wider ones of them."""


def columns(text: str) -> int:
    """Letters, wide ones counted twice."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def text_width(text: str, font_px: float) -> float:
    """About how many pixels a text takes."""
    return columns(text) * font_px * _EM_SHARE


def cut(text: str, most: int) -> str:
    """At most so many columns; an ellipsis tells that there is more."""
    if columns(text) <= most:
        return text
    kept = ""
    for char in text:
        if columns(kept + char) > most - 1:
            break
        kept += char
    return f"{kept.rstrip()}…"


def wrapped(text: str, most: int, lines: int) -> list[str]:
    """At most so many lines of so many columns, broken where a reader would: before a bracket, between words, after a
    slash or a dot. Of a path that is too long the end is kept.
    """
    rest = text.strip()
    if rest.startswith("/") and columns(rest) > most * lines:
        rest = f"…{rest[-(most * lines - most // 2) :]}"
    found: list[str] = []
    while rest and len(found) < lines:
        taken = _break(rest, most) if columns(rest) > most and len(found) < lines - 1 else len(rest)
        found.append(cut(rest[:taken].rstrip(), most))
        rest = rest[taken:].lstrip()
    return found


def _break(text: str, most: int) -> int:
    """How much of a text that is too long for a line stands on it."""
    room = len(cut(text, most + 1).rstrip("…"))
    least = most // 4
    joint = max(text.rfind(char, 0, room) + 1 for char in "/.")
    places = (text.rfind(" (", 0, room + 1), text.rfind(" ", 0, room + 1), joint)
    return next((place for place in places if place >= least), max(1, room))
