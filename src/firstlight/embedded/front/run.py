"""The front's running life: HTTP server, tokenizer and the link to the worker, side by side in one event loop."""

import asyncio
import contextlib
import logging
import signal
import socket
import time
import traceback
from collections.abc import Iterator

import uvicorn

from firstlight.embedded.errors import EngineError
from firstlight.embedded.front.api import Api
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.status import Status
from firstlight.embedded.front.text import load_text
from firstlight.embedded.front.worker_process import WorkerProcess
from firstlight.embedded.log import Log
from firstlight.embedded.options import ServeOptions

LINGER_S = 1.0
"""After a failure the port stays open so long, so that whoever asks /health learns why."""
TOKENIZER_DEADLINE_S = 300.0
CLOSE_DEADLINE_S = 3.0


class Front:
    """What runs until the server is asked to stop, or fails."""

    def __init__(self, options: ServeOptions, worker: WorkerProcess, log: Log, began: float) -> None:
        self._options = options
        self._log = log
        self._began = began
        places = options.max_num_seqs + options.max_queue
        self._link = Link(worker, log, places=places, stall_after_s=options.stall_after_s)
        self._status = Status(self._link, options.model_name, began)
        names = (options.model_name,) if options.served_model_name else (options.model_name, str(options.model))
        self._api = Api(self._link, self._status, model_names=names, api_key=options.api_key)

    async def run(self, listener: socket.socket) -> int:
        """Serve on `listener`; returns the exit code: 0 if it was asked to stop, 1 if it failed."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        server = HttpServer(self._api)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        living = asyncio.create_task(self._live(listener, serving))
        await asyncio.wait({stopping, living}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await asyncio.wait({stopping}, timeout=LINGER_S)
        stopping.cancel()
        living.cancel()
        await server.close(serving)
        return 0 if stop.is_set() else 1

    async def _live(self, listener: socket.socket, serving: "asyncio.Task[None]") -> None:
        """Open for business, answer, and follow the worker, until one of the three fails."""
        opening = asyncio.create_task(self._open(listener))
        following = asyncio.create_task(self._link.follow())
        try:
            done, _ = await asyncio.wait({opening, following, serving}, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if (error := task.exception()) is not None:
                    self._fail(error)
        finally:
            opening.cancel()
            following.cancel()

    async def _open(self, listener: socket.socket) -> None:
        """Read the tokenizer while the worker loads, and say when both are ready."""
        began = time.monotonic()
        self._log.phase_begins("config")
        model = self._options.model
        text = await aside(lambda: load_text(model), name="the tokenizer to load", deadline_s=TOKENIZER_DEADLINE_S)
        self._log.phase_ends("config", time.monotonic() - began)
        self._api.use(text)
        await self._link.became_ready.wait()
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        seconds = time.monotonic() - self._began
        self._log.line(f"ready url=http://{host}:{listener.getsockname()[1]} seconds={seconds:.3f}")
        self._log.phase_begins("serving")

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, EngineError):
            self._log.say("error", "".join(traceback.format_exception(error)))
        self._log.say("error", str(error) or type(error).__name__)
        self._link.fail(str(error) or type(error).__name__)


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the front ends worker and server together."""

    def __init__(self, api: Api) -> None:
        super().__init__(
            uvicorn.Config(
                api.app(),
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def close(self, serving: "asyncio.Task[None]") -> None:
        """Stop listening, let answers under way end within a second, then drop them."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=CLOSE_DEADLINE_S)
        serving.cancel()


class LogHandler(logging.Handler):
    """What the HTTP libraries have to say, in the engine's own log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.say("error" if record.levelno >= logging.ERROR else "warning", self.format(record))


def run(options: ServeOptions, listener: socket.socket, worker: WorkerProcess, log: Log, began: float) -> int:
    """Run the front to its end; returns the exit code."""
    logging.getLogger().addHandler(LogHandler(log))
    return asyncio.run(Front(options, worker, log, began).run(listener))
