"""Runs: one folder each, where they live, and which of them are kept.

    HOME/                   $FIRSTLIGHT_HOME, else $XDG_STATE_HOME/firstlight, else ~/.local/state/firstlight
      history.sqlite        what earlier good starts needed (firstlight.supervise.liveness.history)
      runs/
        2026-11-29-150312-vllm-a3f/
          journal.jsonl     every event, one a line (firstlight.supervise.runs.journal)
          state.json        where the run stands now; what `firstlight probe` reads
          stdout.log        the server's own output, as it came
          stderr.log
          exits.jsonl       how each process of the server ended
          bundle-1.json     evidence, one file a look
          report.json       the verdict
      isolations/           many attempts at one command, one folder each (firstlight.isolate.notebook)

Folders are 0700 and files 0600, since a server's log may hold anything. Where HOME cannot be written (read-only,
full, hanging), the run goes to a private folder below the temporary directory, then below /dev/shm, and the change of
place is noted as a gap. Where nothing at all can be written the folder does not exist: whatever writes into a run
must survive a folder that goes bad in mid-run, so one that never was needs no other code path.
"""

import os
import re
import shutil
import stat
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.state import RunState
from firstlight.core.vocabulary import GapReason
from firstlight.errors import RunNotFound
from firstlight.supervise.runs.files import replace_file, write_file

RUNS = "runs"
RUNS_KEPT = 50
BYTES_KEPT = 2 * 1024**3
UNTOUCHED_S = 3600.0
"""A run that was written to within this time may still be going on and is never removed."""

REMOVALS_MAX = 100
"""The most runs that one housekeeping removes."""

FRACTIONS = 0x1000
STEPS_ASIDE = 64
TRIAL_BYTES = 64 * 1024
TRIAL_DEADLINE_S = 5.0
STATE_BYTES_MAX = 64 * 1024
STATE_READS = 3
"""On a full disk the state is overwritten in place, and may once be seen half written."""


_ENDED = frozenset("ZX")
_TICK_S = 0.01
_BUNDLE = re.compile(r"bundle-(\d+)\.json")
_RUN_ID = re.compile(r"(\d{4}-\d{2}-\d{2}-\d{6})-([a-z0-9_]{1,32})-[0-9a-f]{3}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder and the names in it. `gaps` tell why it is not where it should be, if so."""

    id: str
    path: Path
    gaps: tuple[Gap, ...] = ()

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def report(self) -> Path:
        return self.path / "report.json"

    @property
    def dumps(self) -> Path:
        """Where the interpreters of a server that may not be read write their stacks when they are asked to."""
        return self.path / "dumps"

    @property
    def bundles(self) -> tuple[Path, ...]:
        """Every bundle of the run, in the order in which they were written."""
        named = ((_BUNDLE.fullmatch(path.name), path) for path in self.path.glob("bundle-*.json"))
        return tuple(path for _, path in sorted((int(found[1]), path) for found, path in named if found))

    def write(self, name: str, data: bytes) -> str:
        """Put a whole file into the folder, or nothing; gives its path, empty if it could not be written."""
        try:
            replace_file(self.path / name, data)
        except OSError:
            return ""
        return str(self.path / name)

    def read_state(self) -> RunState | Gap:
        """Where the run stands, as it was last written."""
        for _ in range(STATE_READS):
            state = self._read_state_once()
            if isinstance(state, RunState):
                break
        return state

    def _read_state_once(self) -> RunState | Gap:
        try:
            with self.state.open("rb") as file:
                return msgspec.json.decode(file.read(STATE_BYTES_MAX), type=RunState)
        except FileNotFoundError:
            return Gap(what="state of the run", reason=GapReason.VANISHED, detail=f"{self.state} does not exist")
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Gap(what="state of the run", reason=GapReason.FAILED, detail=f"{self.state}: {error}")


class _Place(NamedTuple):
    """A folder that may hold runs. `shared` if anybody may make entries beside it, as in /tmp."""

    runs: Path
    shared: bool


def home() -> Path:
    """Where firstlight keeps runs and history when all is well. The folder need not exist."""
    if chosen := os.environ.get("FIRSTLIGHT_HOME"):
        return Path(chosen).absolute()
    state_home = os.environ.get("XDG_STATE_HOME", "")
    if state_home.startswith("/"):  # the XDG specification has relative paths ignored
        return Path(state_home) / "firstlight"
    # A user without a home folder, as in some containers, keeps the "~"; it cannot be made and the next place serves.
    return Path(os.path.expanduser("~") or "/") / ".local/state/firstlight"  # noqa: PTH111 - never raises


def new_run(clock: Clock, engine: str = "server", among: str = RUNS) -> RunFolder:
    """Make a folder for a run that begins now, in the first place that can really be written; never raises.

    The three hex digits at the end of its name are the fraction of the second, so that names sort by time.
    """
    now = datetime.fromtimestamp(clock.wall())
    kind = re.sub(r"[^a-z0-9_]", "_", engine.lower())[:32] or "server"
    stem = f"{now:%Y-%m-%d-%H%M%S}-{kind}-"
    fraction = now.microsecond * FRACTIONS // 1_000_000
    gaps: list[Gap] = []
    for place in _places(among):
        made = _make_within_deadline(place, stem, fraction)
        if isinstance(made, Path):
            _prune_aside(place, clock)
            return RunFolder(made.name, made, tuple(gaps))
        gaps.append(Gap(what=f"a place for the run in {place.runs}", reason=GapReason.FAILED, detail=made))
    run = f"{stem}{fraction:03x}"
    return RunFolder(run, Path("/nonexistent/firstlight") / run, tuple(gaps))


def list_runs(among: str = RUNS) -> tuple[RunFolder, ...]:
    """Every run that can be found, the newest first."""
    found = {run.id: run for place in reversed(_places(among)) for run in _runs_in(place)}
    return tuple(found[id_] for id_ in sorted(found, reverse=True))


def find_run(name: str) -> RunFolder:
    """The run of that id, the only one whose id contains `name`, the folder of that path, or for "last" the newest.

    Raises:
        RunNotFound: there is none, or more than one.
    """
    copied = RunFolder(Path(name).name, Path(name).absolute())
    if "/" in name and (copied.journal.exists() or copied.report.exists()):
        return copied
    runs = list_runs()
    if not runs:
        raise RunNotFound("there are no runs yet", f"`firstlight up` makes one; they are kept in {home() / 'runs'}")
    if name == "last":
        return runs[0]
    matches = [run for run in runs if run.id == name] or [run for run in runs if name in run.id]
    if not matches:
        raise RunNotFound(f"there is no run {name!r}", "`firstlight runs` lists them; `last` is the newest")
    if len(matches) > 1:
        some = ", ".join(run.id for run in matches[:3])
        raise RunNotFound(f"{name!r} could be any of {len(matches)} runs: {some}", "Give more of its name")
    return matches[0]


def alive_since(pid: int, boottime: float) -> bool:
    """True if the process that had this pid at `boottime` (seconds, CLOCK_BOOTTIME) still exists and has not ended.

    A pid is used again by others; they have begun later.
    """
    try:
        seen = procfs.stat(pid)
    except (OSError, ValueError):
        return False
    return seen.state not in _ENDED and seen.started / procfs.TICKS_PER_S <= boottime + _TICK_S


@cache
def pid_space() -> str:
    """Where pids mean what they mean to this process: the boot of the machine and the pid namespace; a folder of runs
    may be shared by containers and machines. Empty if it cannot be seen.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def prune(runs: Path, clock: Clock) -> tuple[str, ...]:
    """Remove the oldest runs of a folder beyond 50 runs or 2 GB; gives their ids.

    The newest stays, and so does any that was written to within the last hour or whose processes may still exist.
    """
    total = 0
    removed: list[str] = []
    newest_first = sorted(_runs_in(_Place(runs, shared=False)), key=lambda run: run.id, reverse=True)
    for number, run in enumerate(newest_first, start=1):
        size, touched = _size_and_touch(run.path)
        total += size
        too_many = number > RUNS_KEPT or (number > 1 and total > BYTES_KEPT)
        if too_many and clock.wall() - touched > UNTOUCHED_S and not _has_processes(run):
            shutil.rmtree(run.path, ignore_errors=True)
            total -= size
            removed.append(run.id)
        if len(removed) >= REMOVALS_MAX:
            break
    return tuple(removed)


def _places(among: str) -> tuple[_Place, ...]:
    """The folders that may hold runs, in order of preference. Runs of another home are none of this one's."""
    temporary = Path(os.environ.get("TMPDIR") or "/tmp").absolute()
    ours = f"firstlight-{os.getuid()}-{zlib.crc32(os.fsencode(home())):08x}"
    shared = (temporary / ours, Path("/tmp") / ours, Path("/dev/shm") / ours)
    fallbacks = (_Place(place / among, shared=True) for place in dict.fromkeys(shared))
    return (_Place(home() / among, shared=False), *fallbacks)


def _make_within_deadline(place: _Place, stem: str, fraction: int) -> Path | str:
    """The new folder, or why there is none. A dead network file system blocks whoever touches it for ever."""
    answer: list[Path | str] = []
    name = f"firstlight: a place for the run in {place.runs}"
    thread = threading.Thread(target=lambda: answer.append(_make(place, stem, fraction)), name=name, daemon=True)
    thread.start()
    thread.join(TRIAL_DEADLINE_S)
    return answer[0] if answer else f"the file system did not answer within {TRIAL_DEADLINE_S:g} s"


def _make(place: _Place, stem: str, fraction: int) -> Path | str:
    """Make the folder and prove that it can be written, or tell why not."""
    try:
        place.runs.parent.mkdir(mode=0o700, parents=not place.shared, exist_ok=True)
        if place.shared and not _is_private(place.runs.parent):
            return f"{place.runs.parent} is a link, or somebody else could write into it"
        place.runs.mkdir(mode=0o700, exist_ok=True)
        path = _make_unused(place.runs, stem, fraction)
    except OSError as error:
        return error.strerror or str(error)
    try:
        _try_to_write(path)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        return error.strerror or str(error)
    return path


def _make_unused(runs: Path, stem: str, fraction: int) -> Path:
    """Make a folder that nobody else has; a run that began in the same instant is stepped aside for."""
    for step in range(STEPS_ASIDE):
        path = runs / f"{stem}{(fraction + step) % FRACTIONS:03x}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{STEPS_ASIDE} runs began in the same instant in {runs}")


def _try_to_write(folder: Path) -> None:
    """A full disk often takes an empty file, and tells of its state only at the first real write or at fsync."""
    trial = folder / ".trial"
    write_file(trial, bytes(TRIAL_BYTES), os.O_CREAT, sync=True)
    trial.unlink()


def _is_private(folder: Path) -> bool:
    """True if nobody else can have put it there or can write into it."""
    seen = folder.lstat()
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022


def _runs_in(place: _Place) -> Iterator[RunFolder]:
    try:
        if place.shared and not _is_private(place.runs.parent):
            return
        with os.scandir(place.runs) as entries:
            for entry in entries:
                if _RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield RunFolder(entry.name, Path(entry.path))
    except OSError:
        return


def _prune_aside(place: _Place, clock: Clock) -> None:
    """Housekeeping must never hold up a start."""
    threading.Thread(target=prune, args=(place.runs, clock), name="firstlight: old runs", daemon=True).start()


def _size_and_touch(folder: Path) -> tuple[int, float]:
    """Bytes in the folder's files, and the wall time of the last write to any of them."""
    size, touched = 0, 0.0
    try:
        touched = folder.stat().st_mtime
        with os.scandir(folder) as entries:
            for entry in entries:
                seen = entry.stat(follow_symlinks=False)
                size += seen.st_size
                touched = max(touched, seen.st_mtime)
    except OSError:
        pass  # somebody else is removing it; what was counted is good enough
    return size, touched


def _has_processes(run: RunFolder) -> bool:
    """True if the server or the supervisor that the state names may still exist."""
    state = run.read_state()
    return isinstance(state, RunState) and any(_exists(pid) for pid in (state.server, state.supervisor))


def _exists(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()
