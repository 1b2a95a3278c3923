"""How a server is let go of when its attempt is over."""

from collections.abc import Callable, Iterable
from typing import Protocol

from firstlight.core.process import Process
from firstlight.supervise.launch.server import Server, StopResult
from firstlight.supervise.processes.leftovers import ShmWatch


class Ending(Protocol):
    """Stopped or released if the server is ours, left alone if it is not."""

    def tend(self, processes: Iterable[Process]) -> None:
        """Once a second: take note of what the server's processes hold, to know it again at the end."""
        ...

    def stop(self, grace_s: float, while_waiting: Callable[[], None]) -> StopResult:
        """Ask, insist, verify; `while_waiting` is called now and then meanwhile."""
        ...

    def hurry(self) -> None:
        """While `stop` waits: no more grace."""
        ...

    def release(self) -> bool:
        """Leave the server running when firstlight ends."""
        ...


class EndingOfOurs:
    """The end of a server that firstlight started: its processes, then what it left in shared memory."""

    def __init__(self, server: Server, shm: ShmWatch) -> None:
        self._server = server
        self._shm = shm

    def tend(self, processes: Iterable[Process]) -> None:
        self._shm.note(processes)

    def stop(self, grace_s: float, while_waiting: Callable[[], None]) -> StopResult:
        result = self._server.stop(grace_s, while_waiting)
        return result._replace(left=(*result.left, *(f"/dev/shm/{name}" for name in self._shm.remove().left)))

    def hurry(self) -> None:
        self._server.hurry()

    def release(self) -> bool:
        return self._server.release()
