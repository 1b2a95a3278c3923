"""The words of a command in pieces: which of them belong to which switch. Pure."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from firstlight.core.record import Record
from firstlight.engines.switch_entries import OptionEntry, SwitchTable, Takes
from firstlight.engines.table import in_range

_NUMBER = re.compile(r"-[\d.]+(?:e-?\d+)?")
_ATTACHED = re.compile(r"(?P<name>-[A-Za-z])(?P<value>\d+)")
_NEGATION = "--no-"
_SCRIPTS = (".py", ".sh")
ABBREVIATION_MIN = 4


class Piece(Record):
    """Words that stay or go together; those of no switch always stay."""

    words: tuple[str, ...]
    switch: str = ""


class Meaning(NamedTuple):
    """What a word that begins an option leads to, and how many words follow it."""

    entry: OptionEntry
    takes: Takes


class Options:
    """The options that a table knows in one version of the server."""

    def __init__(self, table: SwitchTable, version: str) -> None:
        self._table = table
        self._entries = tuple(one for one in table.options if in_range(version, one.since, one.until))
        self._takes = {
            _plain(name): takes
            for names, takes in ((table.flags, Takes.NONE), (table.one, Takes.ONE), (table.many, Takes.MANY))
            for name in names
        }
        self._known = sorted(
            {*self._takes, *(name for one in self._entries for name in one.names if "*" not in name)}
        )

    def cut(self, words: Sequence[str], kept: str = "") -> Iterator[Piece]:
        """The words in pieces, in order. The word `kept` (the model) is never taken for an option's value where it is
        not known how many the option has."""
        index = 0
        while index < len(words):
            if words[index] == "--":
                yield Piece(words=tuple(words[index:]))
                return
            meant = self.meaning(words[index])
            count = 1 + (_values(words, index, meant.takes, kept) if meant else 0)
            yield Piece(words=tuple(words[index : index + count]), switch=meant.entry.name if meant else "")
            index += count

    def meaning(self, word: str) -> Meaning | None:
        """None for a word that begins no option, or one that is none of the table's business."""
        if not _is_option(word):
            return None
        name = _plain(word.partition("=")[0])
        if meant := self._named(name):
            return meant
        whole = name.partition(".")[0]
        if whole != name and (meant := self._named(whole)):
            return Meaning(meant.entry, Takes.ONE)
        attached = _ATTACHED.fullmatch(word)
        if attached and (meant := self._named(attached["name"])):
            return Meaning(meant.entry, Takes.NONE)
        if self._table.negations and name.startswith(_NEGATION):
            meant = self._named("--" + name.removeprefix(_NEGATION))
            return Meaning((meant or self._other(name)).entry, Takes.NONE)
        full = self._spelled_out(name)
        return self._named(full) if full else (self._other(name) if self._table.others else None)

    def entry(self, switch: str, word: str) -> OptionEntry:
        """The entry of a switch that a piece beginning with `word` belongs to."""
        named = (one for one in self._entries if one.name == switch)
        return next(named, None) or OptionEntry(name=switch, names=(_plain(word.partition("=")[0]),))

    def _named(self, name: str) -> Meaning | None:
        entry = next((one for one in self._entries if name in one.names), None)
        entry = entry or next((one for one in self._entries if _fits(name, one)), None)
        if entry:
            return Meaning(entry, self._takes.get(name, entry.takes))
        if name in self._takes and self._table.others:
            return Meaning(OptionEntry(name=name.lstrip("-"), names=(name,)), self._takes[name])
        return None

    def _other(self, name: str) -> Meaning:
        return Meaning(OptionEntry(name=name.lstrip("-"), names=(name,)), Takes.UNKNOWN)

    def _spelled_out(self, name: str) -> str:
        """The only known name, or the only switch's, that begins like this: argparse accepts that."""
        if not name.startswith("--") or len(name) < ABBREVIATION_MIN:
            return ""
        meant = {one: self._named(one) for one in self._known if one.startswith(name)}
        switches = {found.entry.name for found in meant.values() if found}
        return next(iter(meant)) if len(switches) == 1 else ""


def _fits(name: str, entry: OptionEntry) -> bool:
    return any("*" in pattern and fnmatchcase(name, pattern) for pattern in entry.names)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word) and not word.startswith("---")


def _plain(name: str) -> str:
    """- and _ are the same in the long name of an option, up to a dot."""
    if not name.startswith("--"):
        return name
    long, dot, key = name.partition(".")
    return long.replace("_", "-") + dot + key


def _values(words: Sequence[str], index: int, takes: Takes, kept: str) -> int:
    if takes is Takes.NONE or "=" in words[index]:
        return 0
    count = 0
    for word in words[index + 1 :]:
        if _is_option(word) or (takes is Takes.UNKNOWN and ((kept and word == kept) or word.endswith(_SCRIPTS))):
            break
        count += 1
        if takes in {Takes.ONE, Takes.OPTIONAL}:
            break
    return count
