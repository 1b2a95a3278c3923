"""Folders beside the runs, for whoever makes many attempts and keeps notes of them."""

from firstlight.clock import Clock
from firstlight.supervise.runs.folders import RunFolder as Folder
from firstlight.supervise.runs.folders import list_runs, new_run
from firstlight.supervise.runs.journal import redacted_json

__all__ = ["Folder", "folders", "new_folder", "redacted_json"]


def new_folder(clock: Clock, kind: str, engine: str) -> Folder:
    """A new folder among those of this kind ("isolations"), named like a run; never raises."""
    return new_run(clock, engine, among=kind)


def folders(kind: str) -> tuple[Folder, ...]:
    """All folders of this kind that can be found, the newest first."""
    return list_runs(among=kind)
