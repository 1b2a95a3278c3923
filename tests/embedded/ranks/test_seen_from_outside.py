"""firstlight itself before a server of three ranks: the verdict names the rank, not those that wait for it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 150.0


def verdict(model: Path, home: Path, fault: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `firstlight up --once --json`; the ranks would wait for each other for a minute."""
    server = [sys.executable, "-m", "firstlight.embedded", str(model), "--port", "0", "--tp", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "up", "--once", "--json", "--", *server, "--wait-deadline", "60"],
        check=False,
        env=os.environ | {"FIRSTLIGHT_FAULT": fault, "FIRSTLIGHT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    ended = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, ended["report"]


def established(report: dict[str, Any]) -> dict[str, str]:
    """What is established, by the name of the finding."""
    return {finding["id"]: finding["title"] for finding in report["findings"] if finding["verdict"] == "established"}


@pytest.mark.parametrize("phase", ["weights", "warmup"])
def test_a_stopped_rank_is_named(parallel_model: Path, tmp_path: Path, phase: str) -> None:
    code, report = verdict(parallel_model, tmp_path, f"stop:rank=1:phase={phase}")
    assert (code, report["outcome"]) == (1, "stalled")
    assert "worker rank 1" in established(report)["stopped_process"]


def test_a_killed_rank_is_named(parallel_model: Path, tmp_path: Path) -> None:
    code, report = verdict(parallel_model, tmp_path, "kill:rank=2:phase=warmup")
    assert (code, report["outcome"]) == (3, "exited")
    assert "worker rank 2" in report["headline"] + " ".join(established(report).values())
