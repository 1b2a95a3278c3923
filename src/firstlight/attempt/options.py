"""What the user asked of an attempt."""

from dataclasses import dataclass
from enum import StrEnum

from firstlight.core.graph import Signature


class OnStall(StrEnum):
    """What to do when a stall is found."""

    REPORT = "report"
    """Say so and go on watching; the server is left as it is, for whoever wants to look at it."""
    STOP = "stop"
    """Say so and end the server."""
    WAIT = "wait"
    """Note it and wait on: a stall is no verdict."""


class Stay(StrEnum):
    """What follows a verdict."""

    STAY = "stay"
    """Go on watching in the foreground."""
    ONCE = "once"
    """End, and stop the server."""
    KEEP = "keep"
    """End, and leave the server running."""


@dataclass(frozen=True)
class Options:
    """How to follow a server. Times in seconds; a `deadline_s` of 0 means none, a `canary_s` of 0 no questions.

    A stall of the signature `known_stall` is one as soon as it is known again.
    """

    stay: Stay = Stay.STAY
    on_stall: OnStall = OnStall.REPORT
    deadline_s: float = 0.0
    prompt: str = "The capital of France is"
    max_tokens: int = 16
    canary_s: float = 30.0
    show_log: bool = False
    grace_s: float = 10.0
    look_apart_s: float = 4.0
    known_stall: Signature | None = None
