"""The front's running life: HTTP server, tokenizer and the link to the workers, side by side in one event loop."""

import asyncio
import logging
import signal
import socket
import time
import traceback

from firstlight.embedded.errors import EngineError
from firstlight.embedded.front.api import Api
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.crew import Crew
from firstlight.embedded.front.http import HttpServer
from firstlight.embedded.front.limits import Limits
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.measures import Measures
from firstlight.embedded.front.status import Status
from firstlight.embedded.front.text import Text, load_text
from firstlight.embedded.front.worker_process import Workers
from firstlight.embedded.log import Log
from firstlight.embedded.options import ServeOptions

LINGER_S = 1.0
"""After a failure the port stays open so long, so that whoever asks /health learns why."""
TOKENIZER_DEADLINE_S = 300.0
SWEEP_S = 0.5
SAY_AGAIN_S = 10.0


class Front:
    """What runs until the server is asked to stop, or fails."""

    def __init__(self, options: ServeOptions, workers: Workers, log: Log, began: float) -> None:
        self._options = options
        self._log = log
        self._began = began
        self._crew = Crew(workers, log, options.stall_after_s)
        measures = Measures()
        self._link = Link(self._crew, measures, places=options.max_num_seqs + options.max_queue)
        status = Status(self._crew, self._link, options.model_name, began)
        names = (options.model_name,) if options.served_model_name else (options.model_name, options.named)
        limits = Limits(self._crew, options.max_output_tokens)
        self._api = Api(self._crew, self._link, status, measures, limits, model_names=names, api_key=options.api_key)
        self._text: Text | None = None

    async def run(self, listener: socket.socket) -> int:
        """Serve on `listener`; returns the exit code: 0 if it was asked to stop, 1 if it failed."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        server = HttpServer(self._api.app())
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        living = asyncio.create_task(self._live(listener, serving))
        await asyncio.wait({stopping, living}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await asyncio.wait({stopping}, timeout=LINGER_S)
        stopping.cancel()
        living.cancel()
        await server.close(serving)
        if self._text is not None:
            self._text.end()
        return 0 if stop.is_set() else 1

    async def _live(self, listener: socket.socket, serving: "asyncio.Task[None]") -> None:
        """Open for business, answer, and follow the workers, until one of these fails."""
        opening = asyncio.create_task(self._open(listener))
        others = [asyncio.create_task(self._follow()), asyncio.create_task(self._sweep())]
        try:
            done, _ = await asyncio.wait({opening, serving, *others}, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if (error := task.exception()) is not None:
                    self._fail(error)
        finally:
            for task in (opening, *others):
                task.cancel()

    async def _open(self, listener: socket.socket) -> None:
        """Read the tokenizer while the workers load, and say when all are ready."""
        began = time.monotonic()
        self._log.phase_begins("config")
        model = self._options.model
        name = "the tokenizer to load"
        self._text = text = await aside(lambda: load_text(model), name=name, deadline_s=TOKENIZER_DEADLINE_S)
        await text.start()
        self._log.phase_ends("config", time.monotonic() - began)
        self._api.use(text)
        await self._crew.became_ready.wait()
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        seconds = time.monotonic() - self._began
        self._log.line(f"ready url=http://{host}:{listener.getsockname()[1]} seconds={seconds:.3f}")
        self._log.phase_begins("serving")

    async def _follow(self) -> None:
        """Raises PeerGone when a worker has ended; clients are rather told what that worker said itself."""
        await self._crew.follow()
        seen = await self._crew.first_end(self._link.in_flight)
        self._link.fail(self._crew.last_words or str(seen))
        raise seen

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._crew.say_silence(self._link.in_flight)
            self._link.sweep()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, EngineError):
            self._log.say("error", "".join(traceback.format_exception(error)))
        self._log.say("error", str(error) or type(error).__name__)
        self._link.fail(str(error) or type(error).__name__)


class LogHandler(logging.Handler):
    """What the HTTP libraries have to say, in the engine's own log; clients cannot fill it with one line."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, now = self.format(record), time.monotonic()
        if now - self._said.get(text, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return
        self._said = {said: at for said, at in self._said.items() if now - at < SAY_AGAIN_S} | {text: now}
        self._log.say("error" if record.levelno >= logging.ERROR else "warning", text)


def run(options: ServeOptions, listener: socket.socket, workers: Workers, log: Log, began: float) -> int:
    """Run the front to its end; returns the exit code."""
    logging.getLogger().addHandler(LogHandler(log))
    return asyncio.run(Front(options, workers, log, began).run(listener))
