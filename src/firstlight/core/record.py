"""The base of every record: frozen, keyword-only, refuses fields it does not know."""

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen record. Serialised as a JSON object; unknown fields are refused when it is read back."""


def to_json(record: Record) -> bytes:
    """The record as one line of JSON."""
    return msgspec.json.encode(record)
