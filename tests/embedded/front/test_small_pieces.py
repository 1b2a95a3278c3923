"""What the server writes leaves at once, and does not wait until the client has confirmed what came before it."""

import asyncio
import dataclasses
import socket
from pathlib import Path

from firstlight.embedded import serve
from firstlight.embedded.log import Log
from firstlight.embedded.options import parse_options


def test_small_pieces_are_sent_at_once() -> None:
    """Otherwise the body of an answer, or its next token, waits up to 40 ms for the client's delayed confirmation."""
    options = dataclasses.replace(parse_options(["somewhere"], "test", Path), port=0)
    with serve._listen(options, Log("front")) as listener:
        assert asyncio.run(sends_at_once(listener))


async def sends_at_once(listener: socket.socket) -> bool:
    """TCP_NODELAY of a connection that asyncio, as uvicorn does, takes from the listener."""
    connected: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        connected.set_result(bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    async with await asyncio.start_server(look, sock=listener):
        _, client = await asyncio.open_connection(*listener.getsockname())
        try:
            return await asyncio.wait_for(connected, 10)
        finally:
            client.close()
