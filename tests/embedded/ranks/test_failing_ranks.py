"""A rank that dies, stops or goes astray, in every phase: one message that names it, and everybody ends.

Where a rank dies or goes astray the deadline is an hour: the others must notice at once. Where it is stopped or does
not come, the deadline is short, and they must notice then.
"""

import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

Start = Callable[..., Any]
HOUR = ("--deadline", "3600")
SHORT = ("--deadline", "1.5")
SEEN = r"last seen \d+\.\d s ago in phase "
PLACES = {
    "rendezvous": ("phase=rendezvous", "rendezvous; ranks 0 and 2 wait at the rendezvous"),
    "first collective": (
        "pass=1:number=1",
        "serving at decode pass 1; ranks 0 and 2 wait at layer 0 attention of pass 1",
    ),
    "mid-run": (
        "pass=2:number=3",
        "serving at layer 0 mlp of pass 2; ranks 0 and 2 wait at layer 1 attention of pass 2",
    ),
    "last collective": (
        "pass=3:what=scores",
        "serving at layer 1 mlp of pass 3; ranks 0 and 2 wait at scores of pass 3",
    ),
}


def matches(pattern: str, message: str) -> None:
    assert re.fullmatch(pattern, message), message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("death", ["kill", "exit"])
def test_a_rank_that_dies_is_named_at_once(start_ranks: Start, place: str, death: str) -> None:
    where, what = PLACES[place]
    ranks = start_ranks(*HOUR, "--fault", f"{death}:rank=1:{where}")
    # Noticed at once, maybe before both of the others have come to where they would wait.
    what = what.replace("ranks 0 and 2 wait", "(ranks 0 and 2 wait|rank [02] waits)")
    matches(rf"rank 1 \(pid {ranks.pids[1]}\) has ended, {SEEN}{what}", ranks.others_end(lost=1))
    assert ranks.ended == {0: 1, 1: -9 if death == "kill" else 0, 2: 1}


@pytest.mark.parametrize("place", PLACES)
def test_a_stopped_rank_is_named_at_the_deadline(start_ranks: Start, place: str) -> None:
    where, what = PLACES[place]
    ranks = start_ranks(*SHORT, "--fault", f"stop:rank=1:{where}")
    pattern = rf"rank 1 \(pid {ranks.pids[1]}\) is stopped and was waited for \d+ s, {SEEN}{what}"
    matches(pattern, ranks.others_end(lost=1))
    assert (ranks.ended[0], ranks.ended[2]) == (1, 1)


EXCHANGES = {
    "rendezvous": ("what=exchange of the rendezvous", "rendezvous at the rendezvous; .*"),
    "sum": (
        "pass=2:what=exchange of layer 1 mlp",
        "serving at layer 1 mlp of pass 2; ranks? .* waits? at layer 1 mlp of pass 2",
    ),
    "columns": (
        "pass=3:what=exchange of scores",
        "serving at scores of pass 3; ranks? .* waits? at (scores of pass 3|the wait for pass 4)",
    ),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_rank_that_dies_in_an_exchange_is_named_at_once(start_ranks: Start, exchange: str) -> None:
    where, what = EXCHANGES[exchange]
    deadline = SHORT if exchange == "rendezvous" else HOUR
    ranks = start_ranks(*deadline, "--fault", f"kill:rank=1:{where}")
    # Noticed at once, maybe before both of the others have come to where they would wait.
    what = what.replace("ranks 0 and 2 wait", "(ranks 0 and 2 wait|rank [02] waits)")
    matches(rf"rank 1 \(pid {ranks.pids[1]}\) has ended, {SEEN}{what}", ranks.others_end(lost=1))


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_rank_that_is_stopped_in_an_exchange_is_named_at_the_deadline(start_ranks: Start, exchange: str) -> None:
    where, what = EXCHANGES[exchange]
    ranks = start_ranks(*SHORT, "--fault", f"stop:rank=1:{where}")
    pattern = rf"rank 1 \(pid {ranks.pids[1]}\) is stopped and was waited for \d+ s, {SEEN}{what}"
    matches(pattern, ranks.others_end(lost=1))


def test_a_rank_that_does_nothing_is_named_at_the_deadline(start_ranks: Start) -> None:
    where, what = PLACES["mid-run"]
    ranks = start_ranks(*SHORT, "--fault", f"sleep:rank=1:{where}")
    pattern = rf"rank 1 \(pid {ranks.pids[1]}\) has made no progress for \d+ s, {SEEN}{what}"
    matches(pattern, ranks.others_end(lost=1))


def test_a_rank_that_never_begins_is_named(start_ranks: Start) -> None:
    ranks = start_ranks("--absent", 2, "--deadline", 0.5)
    assert ranks.others_end(lost=2) == "rank 2 has not begun; ranks 0 and 1 wait at the rendezvous"


def test_a_rank_that_fails_by_itself_speaks_for_all(start_ranks: Start) -> None:
    ranks = start_ranks(*HOUR, "--fault", "raise:rank=2:pass=2:number=2")
    assert ranks.all_end() == {0: 1, 1: 1, 2: 1}
    assert ranks.said == ["rank 2 itself: a fault on purpose, asked for by FIRSTLIGHT_FAULT"]


@pytest.mark.parametrize("skipping", [0, 1, 2])
def test_a_collective_left_out_is_found_before_anything_is_added(start_ranks: Start, skipping: int) -> None:
    ranks = start_ranks(*HOUR, "--fault", f"skip:rank={skipping}:pass=2:number=2")
    assert ranks.all_end() == {0: 1, 1: 1, 2: 1}
    together = " and ".join(str(rank) for rank in range(3) if rank != skipping)
    places = sorted(
        [
            f"ranks {together} at layer 0 mlp of pass 2 with 32 bytes",
            f"rank {skipping} at layer 1 attention of pass 2 with 32 bytes",
        ],
        key=lambda place: re.findall(r"\d", place)[0],
    )
    (message,) = ranks.said
    verdict = f"rank {skipping} left something out or did it twice"
    assert message == f"the ranks do not do the same work: {', '.join(places)}; {verdict}"


@pytest.mark.parametrize("skipping", [0, 2])
def test_the_last_collective_of_a_pass_left_out_is_found(start_ranks: Start, skipping: int) -> None:
    ranks = start_ranks(*HOUR, "--passes", 2, "--fault", f"skip:rank={skipping}:pass=2:what=scores")
    assert ranks.all_end() == {0: 1, 1: 1, 2: 1}
    (message,) = ranks.said
    assert message.startswith("the ranks do not do the same work: ")
    assert message.endswith(f"; rank {skipping} left something out or did it twice")
    assert "at scores of pass 2 with 8 bytes" in message
    assert f"rank {skipping} at the wait for pass 3" in message


def test_another_shape_is_found_before_it_is_sent(start_ranks: Start) -> None:
    ranks = start_ranks(*HOUR, "--wide", 1)
    assert ranks.all_end() == {0: 1, 1: 1, 2: 1}
    (message,) = ranks.said
    place = "at layer 0 attention of pass 2 with"
    assert f"ranks 0 and 2 {place} 32 bytes, rank 1 {place} 64 bytes; rank 1 left" in message


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_dies_idle_is_named_at_once(start_ranks: Start, lost: int) -> None:
    ranks = start_ranks(*HOUR).idle()
    ranks.send(lost, signal.SIGKILL)
    message = ranks.others_end(lost)
    start = rf"rank {lost} \(pid {ranks.pids[lost]}\) has ended, {SEEN}serving at "
    matches(
        start + r"(the wait for|decode|scores of) pass \d( of pass 3)?; ranks? .* waits? at the wait for pass 4",
        message,
    )


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_stopped_idle_is_named_at_the_deadline(start_ranks: Start, lost: int) -> None:
    ranks = start_ranks(*SHORT).idle()
    ranks.send(lost, signal.SIGSTOP)
    message = ranks.others_end(lost)
    assert message.startswith(f"rank {lost} (pid {ranks.pids[lost]}) is stopped and was waited for "), message


@pytest.mark.parametrize("busy", [False, True])
def test_a_pause_of_all_ranks_is_nobodys_fault(start_ranks: Start, busy: bool) -> None:
    """As when a container is paused, or a debugger holds the whole group."""
    ranks = start_ranks("--deadline", 1, "--passes", 400 if busy else 3)
    if not busy:
        ranks.idle()
    for rank in range(3):
        ranks.send(rank, signal.SIGSTOP)
    time.sleep(3)
    for rank in range(3):
        ranks.send(rank, signal.SIGCONT)
    if busy:
        ranks.idle()
    ranks.finish()
    assert ranks.all_end() == {0: 0, 1: 0, 2: 0}
    assert ranks.said == []
