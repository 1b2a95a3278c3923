"""What `up` and `attach` share: the screen, the clock, and Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from firstlight.clock import SystemClock

if TYPE_CHECKING:
    from firstlight.attempt import Interrupts, Options, Scene


@contextmanager
def following(options: "Options", *, json: bool, show_log: bool) -> "Iterator[Scene]":
    """A scene with a screen that is closed, and signal handlers that are put back, however following ends."""
    from firstlight.attempt import Scene
    from firstlight.cli.screen import make_screen

    clock = SystemClock()
    screen = make_screen(clock, json=json, show_log=show_log)
    with interruptible() as interrupts:
        try:
            yield Scene(options, screen, clock, interrupts)
        finally:
            screen.close()


@contextmanager
def interruptible() -> "Iterator[Interrupts]":
    """Counts SIGINT, SIGTERM and SIGHUP, which ask for an orderly end; a second one does without grace."""
    from firstlight.attempt import Interrupts

    interrupts = Interrupts()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        interrupts.count += 1

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield interrupts
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
