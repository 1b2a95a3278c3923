"""Reading request bodies without letting anybody fill the memory, or hold a place by sending slowly."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from firstlight.embedded.errors import RequestRefused

MAX_BODY = 8 << 20
MAX_TOGETHER = 64 << 20
"""Bytes of all bodies that are being read or worked on."""
BODY_DEADLINE_S = 30.0


class Bodies:
    """All bodies that are in memory."""

    def __init__(self) -> None:
        self._together = 0

    @contextlib.asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The body of one request, which counts until the end of the block. Raises RequestRefused."""
        body = bytearray()
        try:
            await self._read(request, body)
            yield bytes(body)
        finally:
            self._together -= len(body)

    async def _read(self, request: Request, body: bytearray) -> None:
        _check_size(_announced(request))
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                async for chunk in request.stream():
                    body += chunk
                    self._together += len(chunk)
                    _check_size(len(body))
                    self._check_together()
        except TimeoutError:
            raise RequestRefused(f"the body did not come within {BODY_DEADLINE_S:g} s", status=408) from None
        except ClientDisconnect:
            raise RequestRefused("the client went away") from None

    def _check_together(self) -> None:
        if self._together > MAX_TOGETHER:
            raise RequestRefused(
                f"requests of more than {MAX_TOGETHER} bytes came at once; try again later",
                status=429,
                kind="rate_limit_error",
                code="too_many_bytes",
                retry_after_s=1,
            )


def _announced(request: Request) -> int:
    """The length that the client says the body has; what is longer than it is refused before it is read."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() else 0


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        raise RequestRefused(f"the body is larger than {MAX_BODY} bytes", status=413, code="body_too_large")
