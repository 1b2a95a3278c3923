"""An engine as data: the records that the TOML files of this folder fill, and the reader of those files."""

import re
import tomllib
from functools import cache
from importlib.resources import files

import msgspec

from firstlight.core.record import Record
from firstlight.core.vocabulary import Phase, Role

ENGINES = ("vllm", "sglang", "embedded", "generic")

LOOKED_AT = 300
"""Characters of a message that are looked at: what a line means stands near its beginning, and some are very long."""


class LineShape(Record):
    """One shape of a log line: a regular expression for the whole line.

    Its groups are named source, pid, rank, level (or level2) and message.
    """

    pattern: str


class Prefix(Record):
    """What something that carries a server's lines puts in front of them.

    `begins` is a regular expression for the first character, `has` plain text that the line must hold, `pattern` the
    prefix itself. Its groups, all optional, are source, pid and rank; `label` stands in front of the source.
    """

    begins: str
    pattern: str
    has: str = ""
    label: str = ""


class Mark(Record):
    """A line that moves a phase: `has` is plain text near the beginning of the message, `pattern` narrows it down.

    The pattern may itself name the phase, the edge ("begin" or "end") and the rank in groups. `since` and `until`
    are engine versions, both included; empty means always.
    """

    has: str
    pattern: str = ""
    begins: Phase | None = None
    ends: tuple[Phase, ...] = ()
    since: str = ""
    until: str = ""


class VersionLine(Record):
    """A line that tells the engine's version, in the first group of `pattern`."""

    has: str
    pattern: str


class Title(Record):
    """What a process calls itself. The pattern fits the whole title, or any part of the command if `anywhere`.

    The label is the pattern's group of that name, the group `parts` ("_DP0_TP1") as "DP0 TP1", or `label` followed
    by the group `rank`.
    """

    pattern: str
    role: Role
    label: str = ""
    anywhere: bool = False


class Program(Record):
    """A server that is not one of ours but is known to listen on `port` when nobody tells it where."""

    launch: str
    port: int
    positional: bool = False


class Failures(Record):
    """Lines that are errors without saying so, and those that only follow from another failure.

    All are plain text near the beginning of the message, save `shapes`: regular expressions for its very beginning.
    """

    errors: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()


class EngineTable(Record):
    """One engine's TOML file. The keys are explained in vllm.toml."""

    name: str
    default_port: int
    front: str
    launch: tuple[str, ...]
    reveals: tuple[str, ...]
    api_key_variables: tuple[str, ...]
    in_flight: tuple[str, ...]
    spoken: frozenset[Phase]
    ready: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    lines: tuple[LineShape, ...]
    first_line: Phase | None = None
    listens_early: bool = False
    versions: tuple[VersionLine, ...] = ()
    titles: tuple[Title, ...] = ()
    programs: tuple[Program, ...] = ()
    marks: tuple[Mark, ...] = ()
    failures: Failures = Failures()


class CommonTable(Record):
    """common.toml: what holds for every engine."""

    prefixes: tuple[Prefix, ...]
    lines: tuple[LineShape, ...]
    marks: tuple[Mark, ...]
    failures: Failures


def _read(name: str) -> object:
    return tomllib.loads(files("firstlight.engines").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def table(engine: str) -> EngineTable:
    """The table of one of `ENGINES`.

    Raises:
        ValueError: no such engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"no engine is called {engine!r}; known: {', '.join(ENGINES)}")
    return msgspec.convert(_read(engine), EngineTable)


@cache
def common() -> CommonTable:
    """What holds for every engine."""
    return msgspec.convert(_read("common"), CommonTable)


_NUMBERS = re.compile(r"\d+")


@cache
def version_key(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, for comparing: "0.5.4.post3" and "v0.5.4" both give (0, 5, 4)."""
    return tuple(int(number) for number in _NUMBERS.findall(version)[:3])


def in_range(version: str, since: str, until: str) -> bool:
    """True if `version` lies in the range, both ends included; an unknown version may be any.

    A bound counts to its own precision: 0.16.2 is not beyond "0.16".
    """
    key = version_key(version)
    if not key:
        return True
    low, high = version_key(since), version_key(until)
    return (not low or key >= low) and (not high or key[: len(high)] <= high)
