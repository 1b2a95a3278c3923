"""Several ranks: the end of one is the end of all, and one message says which it was."""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

Start = Callable[..., Any]
Alive = Callable[[int], bool]
RANKS = 3


@pytest.fixture
def server(start_scripted: Start) -> Any:
    return start_scripted("--tp", str(RANKS), "--stall-after", "2").ready()


def pids(server: Any) -> list[int]:
    """By rank, once each has shown that it serves."""
    health = server.until(
        lambda document: all(rank["phase"] == "serving" for rank in document["ranks"]), "all ranks serve"
    )
    assert [rank["rank"] for rank in health["ranks"]] == list(range(RANKS))
    return [rank["pid"] for rank in health["ranks"]]


def gone(server: Any, ranks: list[int], is_alive: Alive) -> str:
    """The one error that the front logs; nothing lives any more."""
    assert server.exit_code() == 1
    assert not any(is_alive(pid) for pid in ranks)
    said = str(server.line("error: "))
    with pytest.raises(AssertionError):
        server.line("error: ")
    return said.partition("error: ")[2]


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_killed_rank_is_named_and_takes_the_others_with_it(server: Any, is_alive: Alive, rank: int) -> None:
    ranks = pids(server)
    connection, response = server.stream("/v1/completions", {"prompt": "pace 20", "max_tokens": 2000})
    os.kill(ranks[rank], signal.SIGKILL)
    said = gone(server, ranks, is_alive)
    assert said.startswith(f"worker rank={rank} pid={ranks[rank]} was killed by SIGKILL (phase=serving")
    assert "1 request in flight)" in said
    waiting = [other for other in range(1, RANKS) if other != rank]
    assert all(f"rank {other} was at phase=serving, the wait for rank 0" in said for other in waiting)
    assert said.encode() in response.read().replace(b'\\"', b'"')
    connection.close()


def test_a_killed_rank_is_the_cause_even_if_another_speaks_first(server: Any, is_alive: Alive) -> None:
    ranks = pids(server)
    os.kill(ranks[1], signal.SIGKILL)
    with contextlib.suppress(OSError):  # the front may have ended by then
        server.ask("/v1/completions", {"prompt": "fail waited 3 s for rank 1, in vain"})
    said = gone(server, ranks, is_alive)
    assert said.startswith(f"worker rank=1 pid={ranks[1]} was killed by SIGKILL")


def test_a_rank_that_fails_says_why_to_the_clients(server: Any, is_alive: Alive) -> None:
    ranks = pids(server)
    reply = server.ask("/v1/completions", {"prompt": "fail no memory left for the cache"})
    assert reply.status == 500
    assert reply.error["message"] == "no memory left for the cache"
    said = gone(server, ranks, is_alive)
    assert re.match(r"worker rank=0 pid=\d+ exited with code 1 \(.*\): no memory left for the cache", said)


def test_a_stopped_rank_is_the_one_that_stalls(server: Any) -> None:
    ranks = pids(server)
    os.kill(ranks[2], signal.SIGSTOP)
    health = server.until(lambda document: document["status"] == "stalled", "stalled")
    assert health["reason"].startswith(f"worker rank=2 pid={ranks[2]} has made no progress for ")
    assert f"worker rank=2 pid={ranks[2]} has made no progress" in server.line("warning: ")
    os.kill(ranks[2], signal.SIGCONT)
    server.until(lambda document: document["status"] == "ready", "ready again")


def test_stopped_ranks_are_ended_with_the_server(server: Any, is_alive: Alive) -> None:
    ranks = pids(server)
    for pid in ranks[1:]:
        os.kill(pid, signal.SIGSTOP)
    assert server.end() == 0
    assert not any(is_alive(pid) for pid in ranks)


@pytest.mark.parametrize(
    ("prompt", "how"),
    [
        ("babble", "is no longer listened to: it sent what is no message of ours"),
        ("linger", "failed but lives on"),
    ],
)
def test_a_worker_that_is_out_of_order_is_ended(
    start_scripted: Start, is_alive: Alive, prompt: str, how: str
) -> None:
    server = start_scripted().ready()
    (rank,) = server.ask("/health").json["ranks"]
    assert server.ask("/v1/completions", {"prompt": prompt}).status == 500
    assert how in gone(server, [rank["pid"]], is_alive)
