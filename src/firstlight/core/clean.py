"""Text from outside, made fit to be written: nothing in it that UTF-8 cannot say."""

import re

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def clean_text(s: str) -> str:
    """The text with a replacement character for every lone surrogate.

    They come from bytes that are not UTF-8 in command lines, environments and paths (PEP 383), and from JSON that
    spells half a pair (`"\\ud800"`); to write one down raises UnicodeEncodeError, far from where it came in.
    """
    return s if s.isascii() else _SURROGATE.sub("�", s)
