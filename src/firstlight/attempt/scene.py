"""What an attempt gets from whoever asked for it: wishes, a clock, somebody who watches, and the Ctrl-C key."""

from dataclasses import dataclass, field
from typing import Protocol

from firstlight.attempt.options import Options
from firstlight.clock import Clock
from firstlight.core.events import Event
from firstlight.core.view import LiveView


class Observer(Protocol):
    """Whoever shows the attempt: a live screen, plain lines, JSON."""

    def event(self, event: Event) -> None:
        """Something happened."""
        ...

    def tick(self, view: LiveView) -> None:
        """How things stand, about once a second."""
        ...


@dataclass
class Interrupts:
    """Ctrl-C and SIGTERM, counted by whoever installs the handlers."""

    count: int = 0


@dataclass(frozen=True)
class Scene:
    """All of it."""

    options: Options
    observer: Observer
    clock: Clock
    interrupts: Interrupts = field(default_factory=Interrupts)
