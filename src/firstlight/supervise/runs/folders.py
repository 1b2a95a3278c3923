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
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.state import RunState
from firstlight.core.vocabulary import GapReason
from firstlight.errors import RunNotFound
from firstlight.supervise.runs.files import replace_file
from firstlight.supervise.runs.places import FRACTIONS, Place, home, is_private, make_within_deadline, places

RUNS = "runs"
RUNS_KEPT = 50
BYTES_KEPT = 2 * 1024**3
UNTOUCHED_S = 3600.0
"""A run that was written to within this time may still be going on and is never removed."""

REMOVALS_MAX = 100
"""The most runs that one housekeeping removes."""

STATE_BYTES_MAX = 64 * 1024
STATE_READS = 3
"""On a full disk the state is overwritten in place, and may once be seen half written."""

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


def new_run(clock: Clock, engine: str = "server", among: str = RUNS) -> RunFolder:
    """Make a folder for a run that begins now, in the first place that can really be written; never raises.

    The three hex digits at the end of its name are the fraction of the second, so that names sort by time.
    """
    now = datetime.fromtimestamp(clock.wall())
    kind = re.sub(r"[^a-z0-9_]", "_", engine.lower())[:32] or "server"
    stem = f"{now:%Y-%m-%d-%H%M%S}-{kind}-"
    fraction = now.microsecond * FRACTIONS // 1_000_000
    gaps: list[Gap] = []
    for place in places(among):
        made = make_within_deadline(place, stem, fraction)
        if isinstance(made, Path):
            _prune_aside(place, clock)
            return RunFolder(made.name, made, tuple(gaps))
        gaps.append(Gap(what=f"a place for the run in {place.runs}", reason=GapReason.FAILED, detail=made))
    run = f"{stem}{fraction:03x}"
    return RunFolder(run, Path("/nonexistent/firstlight") / run, tuple(gaps))


def list_runs(among: str = RUNS) -> tuple[RunFolder, ...]:
    """Every run that can be found, the newest first."""
    found = {run.id: run for place in reversed(places(among)) for run in _runs_in(place)}
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


def prune(runs: Path, clock: Clock) -> tuple[str, ...]:
    """Remove the oldest runs of a folder beyond 50 runs or 2 GB; gives their ids.

    The newest stays, and so does any that was written to within the last hour or whose processes may still exist.
    """
    total = 0
    removed: list[str] = []
    newest_first = sorted(_runs_in(Place(runs, shared=False)), key=lambda run: run.id, reverse=True)
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


def _runs_in(place: Place) -> Iterator[RunFolder]:
    try:
        if place.shared and not is_private(place.runs.parent):
            return
        with os.scandir(place.runs) as entries:
            for entry in entries:
                if _RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield RunFolder(entry.name, Path(entry.path))
    except OSError:
        return


def _prune_aside(place: Place, clock: Clock) -> None:
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
