"""A wait for a disk that may never answer: with a deadline, and with the name of what is waited for."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from firstlight.embedded.errors import WaitTimedOut

PATIENCE_S = 300.0
"""How long a disk may give no sign of life."""

T = TypeVar("T")


def within_patience(what: object, work: Callable[[], T]) -> T:
    """The result of `work`, which reads `what`; its exceptions too. Raises WaitTimedOut after PATIENCE_S.

    A read from a disk that is gone cannot be ended, so it is left behind in a thread of its own.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised again where it is awaited)
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"reads {what}", daemon=True).start()
    try:
        return outcome.result(PATIENCE_S)
    except TimeoutError:
        if outcome.done():  # the disk's own word
            raise
        raise WaitTimedOut(str(what), PATIENCE_S) from None
