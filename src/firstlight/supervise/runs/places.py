"""Where runs may be kept, in order of preference, and a new folder in the first place that can really be written."""

import os
import shutil
import stat
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

from firstlight.supervise.runs.files import write_file

FRACTIONS = 0x1000
STEPS_ASIDE = 64
TRIAL_BYTES = 64 * 1024
TRIAL_DEADLINE_S = 5.0


class Place(NamedTuple):
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


def places(among: str) -> tuple[Place, ...]:
    """The folders that may hold runs, in order of preference. Runs of another home are none of this one's."""
    temporary = Path(os.environ.get("TMPDIR") or "/tmp").absolute()
    ours = f"firstlight-{os.getuid()}-{zlib.crc32(os.fsencode(home())):08x}"
    shared = (temporary / ours, Path("/tmp") / ours, Path("/dev/shm") / ours)
    fallbacks = (Place(place / among, shared=True) for place in dict.fromkeys(shared))
    return (Place(home() / among, shared=False), *fallbacks)


def make_within_deadline(place: Place, stem: str, fraction: int) -> Path | str:
    """The new folder, or why there is none. A dead network file system blocks whoever touches it for ever."""
    answer: list[Path | str] = []
    name = f"firstlight: a place for the run in {place.runs}"
    thread = threading.Thread(target=lambda: answer.append(_make(place, stem, fraction)), name=name, daemon=True)
    thread.start()
    thread.join(TRIAL_DEADLINE_S)
    return answer[0] if answer else f"the file system did not answer within {TRIAL_DEADLINE_S:g} s"


def _make(place: Place, stem: str, fraction: int) -> Path | str:
    """Make the folder and prove that it can be written, or tell why not."""
    try:
        place.runs.parent.mkdir(mode=0o700, parents=not place.shared, exist_ok=True)
        if place.shared and not is_private(place.runs.parent):
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


def is_private(folder: Path) -> bool:
    """True if nobody else can have put it there or can write into it."""
    seen = folder.lstat()
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022
