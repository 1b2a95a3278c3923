"""A real vLLM with three ranks, of which one is stopped at its queue, where the engine core waits for it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.engines.conftest import Vllm

from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.events import TokenVerified
from firstlight.core.vocabulary import Role
from firstlight.diagnose import state

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

START_S = 400.0
LOOKS_S = 300.0
ASKS_S = 60.0
RANKS = 3
STOPPED = 2


@pytest.fixture
def seen(vllm: Vllm, demo_model: Path, tmp_path: Path) -> Iterator[Bundle]:
    """What a look shows while a request waits."""
    told = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    up = vllm("--enforce-eager", "--host", "127.0.0.1", "-tp", str(RANKS), up=(), **told)
    up.until(lambda event: isinstance(event, TokenVerified), START_S)
    worker = up.pid_of(f"VLLM::Worker_TP{STOPPED}", ASKS_S)
    os.kill(worker, signal.SIGSTOP)
    asking = Thread(target=ask, args=(vllm.port, str(demo_model)), daemon=True)
    asking.start()
    yield looked_at(up.pid_of("VLLM::EngineCore", ASKS_S), tmp_path / "look.json")
    os.kill(worker, signal.SIGCONT)
    up.kill()
    asking.join(ASKS_S)


def ask(port: int, model: str) -> None:
    body = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 2}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=ASKS_S).close()
    except OSError:
        return  # its rank is stopped


def looked_at(core: int, file: Path) -> Bundle:
    """A look at the whole server, once its engine core waits for an answer."""
    ends = time.monotonic() + LOOKS_S
    while True:
        command = [sys.executable, "-m", "firstlight", "look", str(core), "-o", str(file)]
        subprocess.run(command, check=True, timeout=LOOKS_S, capture_output=True)
        bundle = read_bundle(file.read_bytes())
        there = next(one for one in bundle.looks[-1].processes if one.process.id.pid == core)
        main = there.threads[0].stack
        if isinstance(main, tuple) and any(frame.function.endswith("dequeue") for frame in main):
            return bundle
        assert time.monotonic() < ends, f"the engine core never waited: {main}"


def test_the_engine_core_waits_for_the_rank_that_is_stopped(seen: Bundle) -> None:
    statement = state(seen)
    core = next(one for one in statement.processes if one.role is Role.ENGINE)
    worker = next(one for one in statement.processes if one.rank == STOPPED)
    queues = {(edge.source, edge.target) for edge in statement.graph.edges if edge.kind == "queue"}
    assert (f"p{core.pid}", f"p{worker.pid}") in queues
    assert f"worker rank {STOPPED} (pid {worker.pid}) is stopped by a signal" in statement.headline
    assert f"engine core (pid {core.pid})" in statement.headline
    assert f"worker rank {STOPPED} (pid {worker.pid})" in core.doing
