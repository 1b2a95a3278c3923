"""One launch followed to its verdict: the wiring of supervise, evidence and diagnose."""

from firstlight.attempt.look_before import look_before
from firstlight.attempt.look_now import look_now
from firstlight.attempt.notes import Folder, folders, new_folder, redacted_json
from firstlight.attempt.options import OnStall, Options, Stay
from firstlight.attempt.scene import Interrupts, Observer, Scene
from firstlight.attempt.start import join, start
from firstlight.attempt.traces import Traces

__all__ = [
    "Folder",
    "Interrupts",
    "Observer",
    "OnStall",
    "Options",
    "Scene",
    "Stay",
    "Traces",
    "folders",
    "join",
    "look_before",
    "look_now",
    "new_folder",
    "redacted_json",
    "start",
]
