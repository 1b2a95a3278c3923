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
    """At most so many lines of so many columns, broken between words where they are short enough."""
    found: list[str] = []
    rest = text.strip()
    while rest and len(found) < lines:
        if columns(rest) <= most or len(found) == lines - 1:
            found.append(cut(rest, most))
            break
        head = cut(rest, most + 1).rstrip("…")
        space = head.rfind(" ")
        taken = space if space >= most // 3 else max(1, len(head) - 1)
        found.append(rest[:taken].rstrip())
        rest = rest[taken:].lstrip()
    return found
