"""Work beside the event loop that can be abandoned: a daemon thread, a deadline and a name."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from firstlight.embedded.errors import WaitTimedOut

T = TypeVar("T")


async def aside(work: Callable[[], T], *, name: str, deadline_s: float) -> T:
    """The result of `work`, run in a thread of its own.

    asyncio's own threads are joined at exit, without end if one is stuck; these are not. Raises WaitTimedOut at the
    deadline (the thread is left behind), and whatever `work` raises.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (raised again where it is awaited)
            tell(outcome.set_exception, error)
        else:
            tell(outcome.set_result, result)

    def tell(settle: Callable[[Any], None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits
            loop.call_soon_threadsafe(lambda: None if outcome.done() else settle(value))

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        async with asyncio.timeout(deadline_s):
            return await outcome
    except TimeoutError:
        raise WaitTimedOut(name, deadline_s) from None
