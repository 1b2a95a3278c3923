"""`firstlight probe` beside a running `up`: the answers that Kubernetes would get."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight.core.events import Started, TokenVerified, Verdict
from firstlight.testing.launcher import free_port
from firstlight.testing.running import Starter

WAIT_S = 120.0


def probe(kind: str, home: Path) -> int:
    environ = {**os.environ, "FIRSTLIGHT_HOME": str(home)}
    asked = [sys.executable, "-m", "firstlight", "probe", kind]
    return subprocess.run(asked, check=False, env=environ, capture_output=True, timeout=WAIT_S).returncode


def until_it_says_yes(kind: str, home: Path) -> bool:
    """The state that a probe reads is written once a second: ask until it is there."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        if probe(kind, home) == 0:
            return True
        time.sleep(0.2)
    return False


@pytest.mark.parametrize("kind", ["--startup", "--ready", "--live"])
def test_a_serving_server_passes_every_probe(kind: str, start: Starter) -> None:
    up = start("comes_up", "--port", free_port())
    up.until(lambda event: isinstance(event, TokenVerified), WAIT_S)
    assert until_it_says_yes(kind, start.home)


def test_a_server_that_still_loads_is_live_and_not_ready(start: Starter) -> None:
    up = start("comes_up", "--seconds", 100)
    up.until(lambda event: isinstance(event, Started), WAIT_S)
    assert until_it_says_yes("--live", start.home)
    assert probe("--ready", start.home) != 0


def test_a_stalled_server_is_not_live(start: Starter) -> None:
    up = start("sigstop_worker")
    up.until(lambda event: isinstance(event, Verdict), WAIT_S)
    ends = time.monotonic() + 30
    while probe("--live", start.home) == 0:
        assert time.monotonic() < ends
    assert probe("--ready", start.home) != 0
