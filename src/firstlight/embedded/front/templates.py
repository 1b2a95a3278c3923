"""The front's side of chat templates: hands conversations to processes that render them, and replaces those that end.

One process does almost always; more are started, up to `MOST_AT_ONCE`, only while one is busy, so that a conversation
that makes the template loop does not hold up the others.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from typing import Any

import msgspec

from firstlight.embedded.channel import HEADER, body_length
from firstlight.embedded.errors import EngineError, ModelNotUsable, RequestRefused
from firstlight.embedded.front.template_process import CPU_S, MEMORY, Rendered, Template

START_DEADLINE_S = 60.0
RENDER_DEADLINE_S = 20.0
"""Time of the clock for what may use two seconds of a CPU: others may be busy too."""
TURN_DEADLINE_S = 60.0
LEAVE_S = 0.3
KILL_DEADLINE_S = 1.0
MOST_AT_ONCE = 3
PROGRAM = (sys.executable, "-m", "firstlight.embedded.front.template_process")

Chat = list[dict[str, str]]


class Renderer:
    """One process that has the template compiled, and the front's end of the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:  # in a process group of its own Ctrl-C in a terminal does not reach it
            self._process = subprocess.Popen(PROGRAM, stdin=theirs.fileno(), stdout=theirs.fileno(), process_group=0)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    async def start(cls, template: Template) -> "Renderer":
        """Raises ModelNotUsable if the template is no template."""
        renderer = cls()
        try:
            ready = await renderer.ask(template, START_DEADLINE_S)
        except BaseException:
            renderer.end()
            raise
        if ready.error:
            renderer.end()
            raise ModelNotUsable(f"the model's chat template is not valid jinja: {ready.error}")
        return renderer

    async def ask(self, question: Any, deadline_s: float) -> Rendered:
        """Raises TimeoutError or, if the process has ended, EOFError or ConnectionError."""
        async with asyncio.timeout(deadline_s):
            return await self._exchange(msgspec.json.encode(question))

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """One that waits for a question ends by itself once nobody can ask; one that loops has to be killed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_DEADLINE_S)
        self._close()

    def _close(self) -> None:
        if self._streams is None:
            self._socket.close()
        else:
            self._streams[1].close()

    async def _exchange(self, body: bytes) -> Rendered:
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._socket)
        source, sink = self._streams
        sink.write(HEADER.pack(len(body)) + body)
        await sink.drain()
        length = body_length(await source.readexactly(HEADER.size))
        return msgspec.json.decode(await source.readexactly(length), type=Rendered)


class ChatTemplate:
    """Renders conversations as the model was trained to read them."""

    def __init__(self, source: str, variables: dict[str, str]) -> None:
        self._template = Template(source=source, variables=variables)
        self._idle: list[Renderer] = []
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._all: list[Renderer] = []

    async def start(self) -> None:
        """Have one process ready. Raises ModelNotUsable if the template cannot be compiled, or no process started."""
        try:
            self._idle.append(await self._another())
        except (TimeoutError, EOFError, OSError) as error:
            raise ModelNotUsable(
                "the process that renders the chat template ended before it had it compiled"
            ) from error

    async def render(self, messages: Chat) -> str:
        """Raises RequestRefused if the template objects, takes too long, or takes too much."""
        try:
            async with asyncio.timeout(TURN_DEADLINE_S):
                await self._turns.acquire()
        except TimeoutError:
            what = f"waited {TURN_DEADLINE_S:g} s for the chat template, in vain"
            raise RequestRefused(what, status=503, kind="service_unavailable", retry_after_s=1) from None
        try:
            rendered = await self._rendered(messages)
        finally:
            self._turns.release()
        if rendered.error:
            raise RequestRefused(f"the chat template refuses these messages: {rendered.error}", param="messages")
        return rendered.text

    def end(self) -> None:
        for renderer in self._all:
            renderer.end()

    async def _rendered(self, messages: Chat) -> Rendered:
        renderer = self._one_that_waits() or await self._another()
        try:
            rendered = await renderer.ask(messages, RENDER_DEADLINE_S)
        except (TimeoutError, EOFError, OSError, EngineError):
            self._drop(renderer)
            limits = f"{CPU_S:g} s of CPU time or {MEMORY >> 20} MiB"
            return Rendered(error=f"it was ended because it needed more than {limits} for them")
        except asyncio.CancelledError:
            self._drop(renderer)
            raise
        self._idle.append(renderer)
        return rendered

    def _one_that_waits(self) -> Renderer | None:
        """Those that somebody else ended meanwhile are nobody's fault, and are passed over."""
        while self._idle:
            renderer = self._idle.pop()
            if renderer.lives:
                return renderer
            self._drop(renderer)
        return None

    async def _another(self) -> Renderer:
        renderer = await Renderer.start(self._template)
        self._all.append(renderer)
        return renderer

    def _drop(self, renderer: Renderer) -> None:
        renderer.kill()
        self._all.remove(renderer)
