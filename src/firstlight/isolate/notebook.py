"""The notebook of an isolation: append-only JSON lines, from which it goes on after Ctrl-C or a kill.

    HOME/isolations/2026-11-29-150312-vllm-a3f/
      isolation.jsonl       opened, then begun and ended for each trial, with what was learnt between them
      caches/               those of the running trial, where it gets its own

The command is written redacted. To go on it must be given again, and is known again by a salted hash. A line is one
write(2), so a kill costs at most the one that is being written; readers pass over it. A trial that was begun and has
no end is launched again.
"""

import fcntl
import hashlib
import os
import secrets
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from firstlight import __version__
from firstlight.attempt import Folder, folders, new_folder, redacted_json
from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.process import ProcessId
from firstlight.core.record import Record
from firstlight.core.report import Report
from firstlight.errors import RunNotFound, UsageError
from firstlight.isolate.trial import Trial

NAME = "isolation.jsonl"
KIND = "isolations"
LINES_MAX = 100_000
LINE_BYTES_MAX = 64 << 20


class Opened(Record, tag_field="type", tag="opened"):
    """What is isolated. `digest` is the salted hash of the unredacted command, `switches` the space's."""

    at: float
    made_by: str
    engine: str
    command: tuple[str, ...]
    salt: str
    digest: str
    switches: tuple[str, ...]
    fresh_caches: bool = False


class Begun(Record, tag_field="type", tag="begun"):
    """A trial begins."""

    at: float
    number: int
    setting: tuple[str, ...]
    why: str
    levels: tuple[tuple[str, int], ...] = ()
    scene: tuple[str, ...] = ()


class Running(Record, tag_field="type", tag="running"):
    """A trial's server runs: `server` is its first process."""

    at: float
    number: int
    server: ProcessId


class Ended(Record, tag_field="type", tag="ended"):
    """A trial has ended."""

    at: float
    trial: Trial


class Known(Record, tag_field="type", tag="known"):
    """The stall in question, by the report of the first trial that showed it."""

    at: float
    report: Report


class Noted(Record, tag_field="type", tag="noted"):
    """Something that is to be said in the end."""

    at: float
    what: str


class Concluded(Record, tag_field="type", tag="concluded"):
    """It came to an answer, in a sentence."""

    at: float
    headline: str


Entry: TypeAlias = Opened | Begun | Running | Ended | Known | Noted | Concluded


class Notebook:
    """One isolation's notes, open for appending, and what they held when it was opened again.

    `past` are the trials that have ended, in order; `unfinished` those that were begun and did not, and were not
    launched again since. `running` are the servers of all that did not end.
    """

    def __init__(self, folder: Folder, entries: Sequence[Entry] = ()) -> None:
        self.folder = folder
        self.lost = ""
        self.opened = next((one for one in entries if isinstance(one, Opened)), None)
        self.known = next((one.report for one in entries if isinstance(one, Known)), None)
        self.past = tuple(one.trial for one in entries if isinstance(one, Ended))
        self.notes = tuple(one.what for one in entries if isinstance(one, Noted))
        done = {trial.number for trial in self.past}
        latest = {_question(one): one.number for one in entries if isinstance(one, Begun)}
        self.unfinished = tuple(
            one
            for one in entries
            if isinstance(one, Begun) and one.number not in done and latest[_question(one)] == one.number
        )
        self.running = tuple(one.server for one in entries if isinstance(one, Running) and one.number not in done)
        self._fd = _locked(folder.path / NAME)

    @property
    def path(self) -> Path:
        return self.folder.path / NAME

    def write(self, entry: Entry) -> None:
        """Append an entry. What cannot be written is told in `lost`; it does not end an isolation."""
        if self._fd < 0:
            self.lost = self.lost or f"{self.path} could not be opened"
            return
        line = redacted_json(entry) + b"\n"
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self.lost = f"{self.path}: {error}"
        else:
            self.lost = (
                self.lost if written == len(line) else f"{self.path}: a line was written in part; is the disk full?"
            )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Past:
    """Trials of an earlier sitting, handed out to whoever asks for the same again."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._left: dict[object, deque[Trial]] = defaultdict(deque)
        for trial in trials:
            self._left[_question(trial)].append(trial)

    def take(self, asked: Begun) -> Trial | None:
        """The first trial of this setting that was not handed out yet."""
        left = self._left.get(_question(asked))
        return left.popleft() if left else None


def begin(clock: Clock, engine: str, argv: Sequence[str], switches: Sequence[str], *, fresh_caches: bool) -> Notebook:
    """A new notebook."""
    salt = secrets.token_hex(8)
    notebook = Notebook(new_folder(clock, KIND, engine))
    notebook.write(
        Opened(
            at=clock.wall(),
            made_by=f"firstlight {__version__}",
            engine=engine,
            command=redact.command(argv),
            salt=salt,
            digest=digest_of(argv, salt),
            switches=tuple(switches),
            fresh_caches=fresh_caches,
        )
    )
    return notebook


def reopen(name: str, argv: Sequence[str], switches: Sequence[str]) -> Notebook:
    """The notebook of that id, the only one whose id contains `name`, or for "last" the newest about this command.

    Raises:
        RunNotFound: there is none, or more than one.
        UsageError: it is of another command, or somebody works on it now.
    """
    notebook = Notebook(folder := _find(name, argv), tuple(read(folder.path / NAME)))
    try:
        _check(notebook, argv, switches)
    except UsageError:
        notebook.close()
        raise
    return notebook


def read(path: Path) -> Iterator[Entry]:
    """Every whole entry of a notebook; lines that are torn or foreign are passed over.

    Raises:
        RunNotFound: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            for _ in range(LINES_MAX):
                if not (line := file.readline(LINE_BYTES_MAX)):
                    return
                try:
                    yield _DECODER.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
    except OSError as error:
        raise RunNotFound(
            f"{path} cannot be read: {error.strerror}", "Without it, isolate from the start."
        ) from error


def digest_of(argv: Sequence[str], salt: str) -> str:
    """By what a command is known again, without telling it."""
    return hashlib.sha256("\0".join([salt, *argv]).encode(errors="surrogateescape")).hexdigest()


_DECODER = msgspec.json.Decoder(Entry)


def _question(one: Trial | Begun) -> object:
    return one.setting, one.levels, one.scene


def _find(name: str, argv: Sequence[str]) -> Folder:
    there = [one for one in folders(KIND) if (one.path / NAME).exists()]
    if not there:
        raise RunNotFound("there is no isolation to go on with", "`firstlight isolate -- CMD …` begins one")
    if name == "last":
        return next((one for one in there if _is_about(one.path / NAME, argv)), there[0])
    matches = [one for one in there if one.id == name] or [one for one in there if name in one.id]
    if len(matches) != 1:
        some = ", ".join(one.id for one in (matches or there)[:3])
        what = f"there is no isolation {name!r}" if not matches else f"{name!r} could be any of {len(matches)}"
        raise RunNotFound(what, f"There are {some}; `last` is the newest")
    return matches[0]


def _is_about(path: Path, argv: Sequence[str]) -> bool:
    """Whether a notebook begins with this command."""
    first = next(read(path), None)
    return isinstance(first, Opened) and digest_of(argv, first.salt) == first.digest


def _check(notebook: Notebook, argv: Sequence[str], switches: Sequence[str]) -> None:
    opened = notebook.opened
    if opened is None:
        raise UsageError(f"{notebook.path} does not say what it is about", "Isolate from the start.")
    if digest_of(argv, opened.salt) != opened.digest:
        raise UsageError(
            f"{notebook.folder.id} is about another command: {' '.join(opened.command)}",
            "Give that command again, exactly, with its secrets; or isolate this one from the start.",
        )
    if tuple(switches) != opened.switches:
        changed = sorted(set(switches) ^ set(opened.switches))
        raise UsageError(
            f"{notebook.folder.id} knew other options of this command: {', '.join(changed) or 'in another order'}",
            "Set the environment and --options as they were; or isolate from the start.",
        )


def _locked(path: Path) -> int:
    """Open for appending, for one process at a time; a line that was torn is closed first. -1 if it cannot be.

    Raises:
        UsageError: somebody works on it now.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    except BlockingIOError:
        os.close(fd)
        raise UsageError(f"{path.parent.name} is still going on", "Wait for it, or interrupt it first.") from None
    except OSError:
        pass
    return fd
