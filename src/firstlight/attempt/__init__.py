"""One launch followed to its verdict: the wiring of supervise, evidence and diagnose."""

from firstlight.attempt.look_before import look_before
from firstlight.attempt.look_now import look_now
from firstlight.attempt.options import OnStall, Options, Stay
from firstlight.attempt.scene import Interrupts, Scene
from firstlight.attempt.start import join, start

__all__ = ["Interrupts", "OnStall", "Options", "Scene", "Stay", "join", "look_before", "look_now", "start"]
