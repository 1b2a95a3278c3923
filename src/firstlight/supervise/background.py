"""One call in a thread of its own that may be abandoned: whatever blocks in it never blocks the watcher."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs `call` in a daemon thread. `poll` gives its result once it is there, None until then.

    There is no join: a call that never returns costs one sleeping thread, which ends with firstlight.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"firstlight: {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to whoever polls
            self._error = error
        finally:
            self._done.set()

    def poll(self) -> T | None:
        """The result, or None while the call is still running.

        Raises whatever the call raised.
        """
        if not self._done.is_set():
            return None
        if self._error is not None:
            raise self._error
        return self._result
