"""One call in a thread of its own that may be abandoned: whatever blocks in it never blocks the watcher."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap, Seen
from firstlight.core.vocabulary import GapReason

T = TypeVar("T")


class Background(Generic[T]):
    """Runs `call` in a daemon thread. `poll` gives its result once it is there, None until then.

    There is no join: a call that never returns costs one sleeping thread, which ends with firstlight. A call that
    raises has failed by a fault of firstlight; that is a gap, and must not end the watching of a server.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._name = name
        self._result: Seen[T] | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"firstlight: {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to whoever polls
            detail = clean_text(f"{type(error).__name__}: {error}")
            self._result = Gap(what=self._name, reason=GapReason.FAILED, detail=detail)
        finally:
            self._done.set()

    def poll(self) -> Seen[T] | None:
        """The result, a gap if the call raised, None while it is still running."""
        return self._result if self._done.is_set() else None
