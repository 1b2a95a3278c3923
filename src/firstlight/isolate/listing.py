"""Past and present isolations, each in short, by their notebooks."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

from firstlight.attempt import Folder, folders
from firstlight.core.record import Record
from firstlight.errors import RunNotFound
from firstlight.isolate.notebook import KIND, NAME, Concluded, Ended, Opened, read


class Isolation(Record):
    """One isolation in short. `began` in wall time, 0 if its notebook does not tell; `trials` are those that ended;
    `answer` is empty as long as it has none. `going_on` while somebody works on it."""

    isolation: str
    folder: str
    engine: str = ""
    command: tuple[str, ...] = ()
    began: float = 0.0
    trials: int = 0
    answer: str = ""
    going_on: bool = False


def isolations(limit: int) -> Iterator[Isolation]:
    """The newest of them, the newest first."""
    for folder in folders(KIND)[:limit]:
        yield told_by(folder)


def told_by(folder: Folder) -> Isolation:
    """What a notebook tells; of one that cannot be read only its name."""
    opened, trials, answer = None, 0, ""
    try:
        for entry in read(folder.path / NAME):
            if isinstance(entry, Opened):
                opened = opened or entry
            elif isinstance(entry, Ended):
                trials += 1
            elif isinstance(entry, Concluded):
                answer = entry.headline
    except RunNotFound:
        pass
    return Isolation(
        isolation=folder.id,
        folder=str(folder.path),
        engine=opened.engine if opened else "",
        command=opened.command if opened else (),
        began=opened.at if opened else 0.0,
        trials=trials,
        answer=answer,
        going_on=_going_on(folder.path / NAME),
    )


def _going_on(path: Path) -> bool:
    """Whether somebody holds the notebook's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
