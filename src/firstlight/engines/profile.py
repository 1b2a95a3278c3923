"""One engine's profile: everything the watcher asks about a line of its log or a process of its tree."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from firstlight.core.log import Counter, LogLine, PhaseMark, RawLine
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import Phase
from firstlight.engines import counters, titles
from firstlight.engines.command import layout
from firstlight.engines.errors import ErrorReader
from firstlight.engines.failures import Failures
from firstlight.engines.markers import Markers
from firstlight.engines.prefixes import Prefixes, Speaker
from firstlight.engines.ranks import UNKNOWN, Sizes, rank_of
from firstlight.engines.table import ENGINES, LOOKED_AT, common, table

_LEVELS = {
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
    "V": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
}


class EngineProfile:
    """What is known of one engine, compiled from its table. Immutable; safe to share."""

    def __init__(self, engine: str, sizes: Sizes = UNKNOWN) -> None:
        """Raises ValueError for an engine that has no table."""
        data, shared = table(engine), common()
        self.name: str = data.name
        self.default_port: int = data.default_port
        self.in_flight: tuple[str, ...] = data.in_flight
        self.first_line: Phase | None = data.first_line
        self.spoken: frozenset[Phase] = data.spoken
        self.listens_early: bool = data.listens_early
        self._sizes = sizes
        self._ready = data.ready
        self._prefixes = Prefixes(shared.prefixes, sizes)
        self._shapes = tuple(re.compile(shape.pattern) for shape in data.lines)
        self._foreign = tuple(re.compile(shape.pattern) for shape in shared.lines)
        self._versions = tuple((line.has, re.compile(line.pattern)) for line in data.versions)
        self._markers = Markers(data.marks + shared.marks)
        self._failures = Failures(data.failures, shared.failures)

    def read_line(self, raw: RawLine) -> LogLine:
        """Understand what stands in front of a line. One that fits no shape keeps its whole text as message."""
        text = raw.text
        speaker, at = self._prefixes.of(text)
        for shape in (*self._foreign, *self._shapes) if " NCCL " in text else self._shapes:
            if match := shape.fullmatch(text, at):
                return self._understood(raw, match.groupdict(), speaker)
        return self._understood(raw, {"message": text[at:]}, speaker)

    def _understood(self, raw: RawLine, groups: dict[str, str | None], carried: Speaker) -> LogLine:
        """What the engine itself says of the speaker is better than what others put in front."""
        source, pid, rank = groups.get("source") or "", int(groups.get("pid") or 0), groups.get("rank")
        own = int(rank) if rank else rank_of(source, self._sizes) if source else -1
        speaker = Speaker(source, pid, own) if source or pid or rank else carried
        level = (groups.get("level") or groups.get("level2") or "").upper()
        return LogLine(
            stream=raw.stream,
            at=raw.at,
            text=raw.text,
            message=groups["message"] or "",
            source=speaker.source,
            pid=speaker.pid,
            rank=speaker.rank,
            level=_LEVELS.get(level, level),
            transient=raw.transient,
        )

    def marks(self, line: LogLine, version: str) -> tuple[PhaseMark, ...]:
        """The phases that a line begins or ends; `version` is empty while it is not known."""
        return self._markers.of(line, version)

    def counter(self, line: LogLine) -> Counter | None:
        """The progress that a line shows, None if it shows none."""
        return counters.counter(line.message[:LOOKED_AT])

    def version(self, line: LogLine) -> str:
        """The engine's version, empty if this line does not tell."""
        beginning = line.message[:LOOKED_AT]
        for has, pattern in self._versions:
            if has in beginning and (match := pattern.search(beginning)):
                return match[1]
        return ""

    def identify(self, cmdline: Sequence[str], comm: str) -> titles.Identity:
        """Who a process is, from its title; titles and compilers of every engine are known to each profile."""
        return titles.identify(cmdline, comm, self._sizes)

    def is_error(self, line: LogLine) -> bool:
        """True if the line, taken by itself, names an error that is not the consequence of another."""
        return self._failures.is_error(line)

    def errors(self) -> ErrorReader:
        """A reader of one log's errors, which knows tracebacks and headlines; it must see every line, in order."""
        return ErrorReader(self._failures)

    def is_consequence(self, line: LogLine) -> bool:
        """True if the line only follows from another failure, or belongs to a shutdown."""
        return self._failures.is_consequence(line)

    def ready(self, line: LogLine) -> bool:
        """True if the line claims readiness. Only a token proves it."""
        beginning = line.message[:LOOKED_AT]
        return any(text in beginning for text in self._ready)


@lru_cache(maxsize=32)
def profile(engine: str, sizes: Sizes = UNKNOWN) -> EngineProfile:
    """The profile of an engine by name.

    Raises:
        ValueError: no such engine.
    """
    return EngineProfile(engine, sizes)


def profile_for(command: ServerCommand) -> EngineProfile:
    """The profile of a recognised command, which also knows how its ranks are laid out."""
    return profile(command.engine, layout(command))


@cache
def _reveals() -> tuple[tuple[str, str], ...]:
    return tuple((text, name) for name in ENGINES for text in table(name).reveals)


def revealed(text: str) -> str:
    """The engine that a raw line of an unknown server's log gives away; empty if it does not.

    A wrapper script says nothing of the engine it starts, but the engine's first lines do.
    """
    beginning = text[:LOOKED_AT]
    return next((name for has, name in _reveals() if has in beginning), "")
