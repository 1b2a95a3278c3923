"""Which program is run how, and what becomes of it: one table for the tests and for the benches.

`run` plays a scenario to its end: `firstlight up` on the program, on a port of its own, in a folder of its own.
"""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firstlight.core.events import Started, TokenVerified
from firstlight.testing.launcher import command, free_port
from firstlight.testing.programs.slow_start import WAYS
from firstlight.testing.running import Ended, Up
from firstlight.testing.server import TinyServer

ONCE = ("--once",)
STOP = ("--on-stall", "stop")


@dataclass(frozen=True)
class Scenario:
    """`program` with `options`, under `firstlight up` with the options `up`.

    `{folder}` in an option becomes a fresh folder. `burns` says that it computes all the time, so that only one
    of its kind should run at once. `occupied`: another process takes its port as soon as it has started.
    `asks`: a client asks for a completion once it serves. After `wait_s` seconds it is given up and killed, which is
    far more than it needs and less than a test's own limit.
    """

    program: str
    options: tuple[str, ...] = ()
    up: tuple[str, ...] = STOP
    burns: bool = False
    occupied: bool = False
    asks: bool = False
    wait_s: float = 300.0

    @property
    def name(self) -> str:
        """The program and its options, as one word."""
        return "_".join([self.program, *(option.strip("-") for option in self.options if "{" not in option)])


STALLS = (
    Scenario("sigstop_worker"),
    Scenario("rendezvous_missing_rank"),
    Scenario("skipped_barrier"),
    Scenario("lock_inversion"),
    Scenario("queue_never_drained"),
    Scenario("pipe_child_died"),
    Scenario("fifo_weights", ("--folder", "{folder}")),
    Scenario("stale_extension_lock", ("--folder", "{folder}")),
    Scenario("spinning_rank", burns=True),
    Scenario("never_generates"),
    Scenario("waiting_heartbeat"),
    Scenario("big_log", ("--stall",)),
    Scenario("rank_dies", ("--how", "traceback")),
    Scenario("rank_dies", ("--how", "killed")),
    Scenario("rank_dies", ("--how", "exit")),
    Scenario("rank_dies_serving"),
    Scenario("stuck_in_flight", asks=True),
    Scenario("port_taken", ("--hang",), occupied=True),
    Scenario("polls_for_file"),
)

HEALTHY = (
    Scenario("sleeps_between_attempts", up=ONCE),
    Scenario("comes_up", ("--workers", "2"), ONCE),
    Scenario("trickle_load", up=ONCE),
    Scenario("slow_download", up=ONCE),
    Scenario("compile_child", up=ONCE, burns=True),
    Scenario("compile_inside", up=ONCE, burns=True),
    Scenario("compile_inside", ("--hold-gil",), ONCE, burns=True),
    Scenario("silent_compute", up=ONCE, burns=True),
    Scenario("big_log", up=ONCE),
    Scenario("garbage_log", up=ONCE),
)

FULL_LENGTH = (
    Scenario("trickle_load", ("--seconds", "120"), ONCE, wait_s=400),
    Scenario("slow_download", ("--seconds", "120"), ONCE, wait_s=400),
    Scenario("compile_child", ("--seconds", "120"), ONCE, burns=True, wait_s=550),
    Scenario("compile_inside", ("--seconds", "120"), ONCE, burns=True, wait_s=400),
    Scenario("silent_compute", ("--seconds", "90"), ONCE, burns=True, wait_s=400),
)
"""The slow starts at the length that people meet. HEALTHY has them just longer than any stall may go unreported."""

WAY_S = 35.0
"""How long a way to be slow lasts: longer than any stall may go unreported."""
BURNING_WAYS = frozenset({"compiles_once"})


def healthy_way(way: str, seed: int, seconds: float = WAY_S) -> Scenario:
    """A start that is slow in one of the `WAYS` of slow_start, with pauses as `seed` has them."""
    options = ("--way", way, "--seed", str(seed), "--seconds", f"{seconds:g}")
    return Scenario("slow_start", options, ONCE, burns=way in BURNING_WAYS, wait_s=seconds + 300.0)


HEALTHY_WAYS = tuple(healthy_way(way, seed) for seed, way in enumerate(WAYS))
"""Each way once, every one with pauses of its own."""


def run(scenario: Scenario, folder: Path) -> Ended:
    """Play one scenario to its end. `folder` must exist and be its own."""
    port = free_port()
    (folder / "files").mkdir()
    options = [option.replace("{folder}", str(folder / "files")) for option in scenario.options]
    up = Up([*scenario.up, "--", *command(scenario.program, "--port", port, *options)], folder / "home")
    if scenario.asks:
        threading.Thread(target=_ask_when_serving, args=(up, port, scenario.wait_s), daemon=True).start()
    with answered_by_another(up, port, scenario.wait_s) if scenario.occupied else contextlib.nullcontext():
        return up.wait(scenario.wait_s)


@contextlib.contextmanager
def answered_by_another(up: Up, port: int, wait_s: float) -> Iterator[None]:
    """Once `up` has started its server, listen on the server's port and answer there, from this process."""
    up.until(lambda event: isinstance(event, Started), wait_s)
    other = TinyServer(port)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        other.shutdown()
        other.server_close()


def _ask_when_serving(up: Up, port: int, wait_s: float) -> None:
    up.until(lambda event: isinstance(event, TokenVerified), wait_s)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait_s)
    body = json.dumps({"model": "tiny", "prompt": "and then", "max_tokens": 1})
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        connection.getresponse()
