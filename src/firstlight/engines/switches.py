"""Option tables: read from the TOML files of switches/ or from a user's own, and checked before anybody uses them.

What an entry needs must be in its table, nothing may need itself, and no word may mean two things.
"""

import graphlib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from firstlight.engines.switch_entries import (
    VARIABLE,
    Entry,
    FeatureEntry,
    Off,
    SwitchTable,
    VariableEntry,
)
from firstlight.engines.table import ENGINES, version_key
from firstlight.errors import UsageError

TABLE_BYTES_MAX = 1 << 20


@cache
def switch_table(engine: str) -> SwitchTable:
    """The table of one of `engines.table.ENGINES`.

    Raises:
        ValueError: no such engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"no engine is called {engine!r}; known: {', '.join(ENGINES)}")
    text = files("firstlight.engines").joinpath("switches", f"{engine}.toml").read_text(encoding="utf-8")
    return parse_table(text, f"switches/{engine}.toml")


def read_table(path: Path) -> SwitchTable:
    """A table that a user wrote.

    Raises:
        UsageError: it cannot be read, or says what cannot be.
    """
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file.", "Give --options a TOML file that lists the server's options.")
        with path.open("rb") as file:
            raw = file.read(TABLE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Give --options a file that may be read.") from None
    if len(raw) > TABLE_BYTES_MAX:
        raise UsageError(f"{path} is larger than 1 MiB.", "An option table has one short entry for each option.")
    return parse_table(raw.decode(errors="replace"), str(path))


def parse_table(text: str, where: str) -> SwitchTable:
    """A table from its text, with the variables that matter to any server. `where` names it in messages.

    Raises:
        UsageError: it is not TOML, or not a table, or contradicts itself.
    """
    own = _convert(text, where)
    common = _common()
    variables = (*own.variables, *common.variables, *(_OTHER_VARIABLES if own.others else ()))
    whole = msgspec.structs.replace(own, variables=variables, silent=(*own.silent, *common.silent))
    _check(whole, where)
    return whole


_OTHER_VARIABLES = (VariableEntry(variables=("*",), own=True),)
"""Whatever else a command sets is a switch as an unlisted option is: it stands there because somebody wanted it."""


@cache
def _common() -> SwitchTable:
    text = files("firstlight.engines").joinpath("switches", "common.toml").read_text(encoding="utf-8")
    return _convert(text, "switches/common.toml")


def _convert(text: str, where: str) -> SwitchTable:
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not TOML: {error}.", "Correct it there.") from None
    try:
        return msgspec.convert(raw, SwitchTable)
    except msgspec.ValidationError as error:
        raise _refused(where, _entry_named(raw, str(error)), str(error).partition(" - at ")[0]) from None


_PLACE = re.compile(r"\$\.(?P<list>\w+)\[(?P<index>\d+|\.\.\.)\]")


def _entry_named(raw: Mapping[str, Any], error: str) -> str:
    """The name of the entry that msgspec's message is about, as far as it says."""
    place = _PLACE.search(error)
    if not place or not place["index"].isdecimal():
        return "the table itself"
    entry = raw[place["list"]][int(place["index"])]
    return str(entry.get("name") or entry.get("variables") or place[0]) if isinstance(entry, dict) else place[0]


def _refused(where: str, entry: str, why: str) -> UsageError:
    return UsageError(f"{where}, {entry}: {why}.", "Correct that entry, or leave it out.")


def _check(table: SwitchTable, where: str) -> None:
    for one in (*table.options, *table.features, *table.variables):
        unless = one.unless if isinstance(one, FeatureEntry) else ()
        for other in (*one.needs, *one.conflicts, *unless):
            if not _meant(other, table):
                raise _refused(where, _shown(one), f"{other!r} is not in the table")
    _check_names(table, where)
    _check_values(table, where)
    _check_cycles(table, where)


def _check_names(table: SwitchTable, where: str) -> None:
    """No two entries may be meant by the same word, in the same version."""
    words = [(one, {one.name, *one.names}) for one in table.options]
    for (one, its), (other, others) in combinations([*words, *((one, {one.name}) for one in table.features)], 2):
        if (shared := its & others) and _overlap(one, other):
            raise _refused(where, other.name, f"{min(shared)} is in the table twice, for the same versions")


def _overlap(one: Entry, other: Entry) -> bool:
    return not (_ends_before(one, other) or _ends_before(other, one))


def _ends_before(one: Entry, other: Entry) -> bool:
    last, first = version_key(one.until), version_key(other.since)
    return bool(last and first) and last < first[: len(last)]


def _check_values(table: SwitchTable, where: str) -> None:
    for one in table.options:
        if one.off is Off.WEAKEST and not one.weaker:
            raise _refused(where, one.name, "off is its weakest value, but no weaker one is named")
        if not one.names or not all(name.startswith("-") for name in one.names):
            raise _refused(where, one.name, "the names of an option begin with a dash")
    for variable in table.variables:
        if variable.together and not variable.name:
            raise _refused(where, _shown(variable), "variables that are one switch together need a name")
    for feature in table.features:
        if not (feature.words or feature.variables) or not all("=" in told for told in feature.variables):
            raise _refused(where, feature.name, "nothing tells how to switch it off: words, or NAME=value")


def _check_cycles(table: SwitchTable, where: str) -> None:
    needs: dict[str, set[str]] = {}
    for one in (*table.options, *table.features, *table.variables):
        needs.setdefault(_shown(one), set()).update(_meant(other, table) for other in one.needs)
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        circle = " needs ".join(reversed(error.args[1]))
        raise _refused(where, error.args[1][0], f"nothing can need itself ({circle})") from None


def _meant(name: str, table: SwitchTable) -> str:
    """The entry that the name of a switch leads to; empty if there is none."""
    names = {one.name for one in (*table.options, *table.features)}
    names |= {one.name for one in table.variables if one.together}
    if name in names:
        return name
    fitting = table.entries_of(name.removeprefix(VARIABLE)) if name.startswith(VARIABLE) else iter(())
    return next((_shown(one) for one in fitting if not one.together), "")


def _shown(entry: Entry) -> str:
    return entry.name or (", ".join(entry.variables) if isinstance(entry, VariableEntry) else "")
