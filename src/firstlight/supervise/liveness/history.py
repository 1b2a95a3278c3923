"""What earlier good starts on this machine needed, per engine, version and phase: SQLite, and never in the way.

A history that is locked, full, read-only, damaged or on a dead network disk costs `PATIENCE_S` and a gap; the shipped
defaults then hold. A damaged file is put aside so that learning can begin again. There is no WAL: it needs shared
memory, which network file systems do not have. There is no fsync either: what a power cut takes is learnt again.
"""

import hashlib
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from firstlight.core.gap import Gap, Seen
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason, Phase

PATIENCE_S = 0.1
QUIET_FACTOR, QUIET_MARGIN_S = 1.5, 2.0
QUIET_ALLOWED_MAX_S = 300.0
"""However long a start was once silent, five minutes of silence deserve a look."""
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS learnt (
    machine TEXT NOT NULL, engine TEXT NOT NULL, engine_version TEXT NOT NULL, phase TEXT NOT NULL,
    quiet_max_s REAL NOT NULL, duration_max_s REAL NOT NULL, good_starts INTEGER NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (machine, engine, engine_version, phase)
) WITHOUT ROWID
"""
_LEARN = """
INSERT INTO learnt VALUES (?, ?, ?, ?, ?, ?, 1, ?)
ON CONFLICT DO UPDATE SET
    quiet_max_s = max(quiet_max_s, excluded.quiet_max_s),
    duration_max_s = max(duration_max_s, excluded.duration_max_s),
    good_starts = good_starts + 1,
    at = excluded.at
"""
_COLUMNS = "machine, engine, engine_version, phase, quiet_max_s, duration_max_s, good_starts, at"

T = TypeVar("T")


class Need(Record):
    """What one phase needed: its longest silence and how long it took, in seconds."""

    quiet_s: float
    duration_s: float

    @property
    def quiet_allowed_s(self) -> float:
        """The silence to allow next time."""
        return min(QUIET_FACTOR * self.quiet_s + QUIET_MARGIN_S, QUIET_ALLOWED_MAX_S)


class Learnt(Record):
    """One row of the history, as people are shown it. `at` is the wall time of the last good start."""

    machine: str
    engine: str
    engine_version: str
    phase: Phase
    need: Need
    good_starts: int
    at: float


def machine_id(gpu_names: Iterable[str] = ()) -> str:
    """A name for this machine that changes with what makes starts fast or slow: host, CPUs, GPUs."""
    gpus = hashlib.sha256("\n".join(sorted(gpu_names)).encode()).hexdigest()[:8]
    return f"{os.uname().nodename}/{os.cpu_count() or 0}/{gpus}"


def major_minor(version: str) -> str:
    """The part of an engine's version that start-up habits depend on: "0.32.0+cpu" and "0.32.1" are one."""
    return ".".join(version.partition("+")[0].split(".")[:2])


class _TooNew(Exception):
    """The file has a layout that this firstlight does not know."""


class History:
    """The history file. No method raises for what the disk does, and none takes much longer than `patience_s`."""

    def __init__(self, path: Path, machine: str, *, patience_s: float = PATIENCE_S) -> None:
        self._path = path
        self._machine = machine
        self._patience_s = patience_s

    def needs(self, engine: str, version: str) -> Seen[dict[Phase, Need]]:
        """What each phase of this engine needed here at most; empty before the first good start."""
        rows = self.rows()
        if isinstance(rows, Gap):
            return rows
        wanted = (self._machine, engine, major_minor(version))
        return {row.phase: row.need for row in rows if (row.machine, row.engine, row.engine_version) == wanted}

    def learn(self, engine: str, version: str, needs: Mapping[Phase, Need], at: float) -> Gap | None:
        """Remember a good start that ended at wall time `at`; the gap if that was not possible."""
        rows = [
            (self._machine, engine, major_minor(version), phase, need.quiet_s, need.duration_s, at)
            for phase, need in needs.items()
        ]
        return self._bounded(lambda: self._write(rows))

    def rows(self) -> Seen[tuple[Learnt, ...]]:
        """The whole history, the last learnt first."""
        return self._bounded(self._read)

    def _bounded(self, work: Callable[[], T]) -> T | Gap:
        """Runs `work` in a thread that is abandoned when it takes too long: a lock on NFS can wait for ever."""
        outcome: list[T | Gap] = []

        def run() -> None:
            try:
                outcome.append(work())
            except _TooNew as error:
                outcome.append(_gap(GapReason.NOT_SUPPORTED, f"{self._path}: {error}"))
            except (sqlite3.Error, OSError) as error:
                outcome.append(_gap(GapReason.FAILED, f"{self._path}: {error}"))

        thread = threading.Thread(target=run, name="history", daemon=True)
        thread.start()
        thread.join(self._patience_s)
        return outcome[0] if outcome else _gap(GapReason.TIMED_OUT, f"{self._path} took too long")

    def _read(self) -> tuple[Learnt, ...]:
        if not self._path.exists():
            return ()
        with self._open(f"{self._path.absolute().as_uri()}?mode=ro") as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM learnt ORDER BY at DESC").fetchall()
        return tuple(learnt for row in rows if (learnt := _understood(row)) is not None)

    def _write(self, rows: Sequence[tuple[str, str, str, str, float, float, float]]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._insert(rows)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                raise
            self._path.replace(self._path.with_suffix(".damaged"))
            self._insert(rows)

    def _insert(self, rows: Sequence[tuple[str, str, str, str, float, float, float]]) -> None:
        self._path.touch(mode=0o600)  # SQLite would make it as open as the umask allows
        with self._open(f"{self._path.absolute().as_uri()}?mode=rw") as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA user_version = {_VERSION}")
            database.executemany(_LEARN, rows)
            database.commit()

    @contextmanager
    def _open(self, uri: str) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(uri, uri=True, timeout=self._patience_s)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise _TooNew(f"written by a newer firstlight (history version {version})")
            yield database
        finally:
            database.close()


def _understood(row: tuple[str, str, str, str, float, float, int, float]) -> Learnt | None:
    """The row as a record; None for a phase of another firstlight, or numbers that nobody measured."""
    machine, engine, version, phase, quiet_s, duration_s, starts, at = row
    if phase not in set(Phase) or not all(_is_duration(seconds) for seconds in (quiet_s, duration_s)):
        return None
    need = Need(quiet_s=quiet_s, duration_s=duration_s)
    return Learnt(
        machine=machine,
        engine=engine,
        engine_version=version,
        phase=Phase(phase),
        need=need,
        good_starts=starts,
        at=at,
    )


def _is_duration(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def _gap(reason: GapReason, detail: str) -> Gap:
    return Gap(what="learnt thresholds", reason=reason, detail=f"{detail}; the shipped defaults hold")
