"""A front whose worker does what the prompt says, and how its answers are read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def events(body: bytes) -> list[Any]:
    """The documents of a stream, which must end with [DONE]."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="session", name="events")
def events_of() -> Callable[[bytes], list[Any]]:
    return events


@pytest.fixture(scope="module")
def start_scripted(tiny_model: Path, server_class: Any) -> Iterator[Callable[..., Any]]:
    """Start fronts with scripted workers; none of them survives the module."""
    servers: list[Any] = []

    def started(*arguments: str, key: str = "", program: str = "scripted_front.py") -> Any:
        path = (str(HERE / program),)
        servers.append(server_class("--port", "0", *arguments, tiny_model, key=key, program=path))
        return servers[-1]

    yield started
    for server in servers:
        server.process.kill()
        server.exit_code()


@pytest.fixture(scope="module")
def scripted(start_scripted: Callable[..., Any]) -> Any:
    """One such front for the tests of a module."""
    return start_scripted("--served-model-name", "tiny", "--max-num-seqs", "4", "--max-queue", "4").ready()
