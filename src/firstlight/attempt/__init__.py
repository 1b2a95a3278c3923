"""One launch followed to its verdict: the wiring of supervise, evidence and diagnose."""

from firstlight.attempt.options import OnStall, Options, Stay
from firstlight.attempt.scene import Interrupts, Scene
from firstlight.attempt.start import join, start

__all__ = ["Interrupts", "OnStall", "Options", "Scene", "Stay", "join", "start"]
