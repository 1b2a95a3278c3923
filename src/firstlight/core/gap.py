"""Absence is a value: what could not be seen, and why."""

from typing import TypeAlias, TypeVar

from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason


class Gap(Record, tag_field="gap", tag="gap"):
    """A fact that was not seen.

    `what` names the fact ("Python stack", "bytes read"), `reason` says why in one word, `detail` in a sentence
    with the way to close the gap where there is one. `pid` is the process concerned, 0 for the whole machine.
    """

    what: str
    reason: GapReason
    detail: str = ""
    pid: int = 0


_V = TypeVar("_V")
Seen: TypeAlias = _V | Gap
"""A value, or the reason why there is none."""
