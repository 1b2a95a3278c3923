"""docs/bundle.md has every field of every record that a bundle may hold, in the section that speaks of it."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.record import Record

PAGE = (Path(__file__).parents[2] / "docs" / "bundle.md").read_text()

SECTIONS = {
    "Bundle": "Bundle",
    "Gap": "Bundle",
    "PhaseSpan": "Bundle",
    "Exit": "Exit",
    "LogTail": "Log",
    "LogLine": "Log",
    "Look": "Look",
    "Listener": "Look",
    "Semaphore": "Look",
    "CollectiveCall": "Look",
    "Communicator": "Look",
    "Lock": "Lock",
    "ProcessLook": "Process",
    "Process": "Process",
    "ProcessId": "Process",
    "ProcessSample": "Process",
    "ThreadLook": "Process",
    "Frame": "Process",
    "NativeFrame": "Process",
    "Futex": "Process",
    "TimeLimit": "Process",
    "OpenFile": "Process",
    "Socket": "Process",
    "Gpu": "GPU",
    "GpuProcess": "GPU",
    "Coverage": "Coverage",
    "ProcessFacts": "Facts",
    "Limit": "Facts",
    "Library": "Facts",
    "Cgroup": "Facts",
    "Host": "Host",
    "Place": "Host",
    "Interface": "Host",
    "Resolved": "Host",
    "Topology": "Host",
    "Folder": "Folder, leftover, pressure",
    "Leftover": "Folder, leftover, pressure",
    "Pressure": "Folder, leftover, pressure",
}
"""Where the page speaks of each record."""


def records(of: object, known: set[type[Record]]) -> set[type[Record]]:
    """`known`, and every record that a value of this type may hold, itself included."""
    if isinstance(of, type) and issubclass(of, Record) and of not in known:
        known.add(of)
        for hint in get_type_hints(of).values():
            records(hint, known)
    for part in get_args(of):
        records(part, known)
    return known


RECORDS = sorted(records(Bundle, set()), key=lambda one: one.__name__)


def section(title: str) -> str:
    found = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE)
    assert found, f"docs/bundle.md has no section {title!r}"
    return found[1]


def test_the_page_has_a_place_for_every_record() -> None:
    assert set(SECTIONS) == {record.__name__ for record in RECORDS}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_is_explained(record: type[Record]) -> None:
    named = set(re.findall(r"`(\w+)`", section(SECTIONS[record.__name__])))
    assert not set(record.__struct_fields__) - named, f"docs/bundle.md does not explain fields of {record.__name__}"
