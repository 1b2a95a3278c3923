"""A bad place to work in, live: the server still comes up, or there is one clear error; what was lost is noted."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.core.bundle import read_bundle
from firstlight.core.events import GapNoted
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.testing.launcher import command, free_port
from firstlight.testing.running import Ended, Starter

WAIT_S = 120.0


def gaps(ended: Ended) -> list[Gap]:
    return [*ended.report.gaps, *(event.gap for event in ended.all(GapNoted))]


def gaps_of_processes(ended: Ended) -> list[Gap]:
    bundle = read_bundle(Path(ended.report.bundle).read_bytes())
    return [gap for look in bundle.looks for process in look.processes for gap in process.gaps]


def test_a_command_that_does_not_exist_is_one_clear_error(start: Starter) -> None:
    ended = start.command(["no-such-server-anywhere", "--port", "1"]).wait(WAIT_S)
    assert ended.code == 2
    assert "no-such-server-anywhere" in ended.report.headline
    assert ended.report.next_steps, "there must be a way out"


def test_a_file_that_may_not_be_executed_is_one_clear_error(start: Starter, tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text("#!/bin/sh\n")
    ended = start.command([str(script)]).wait(WAIT_S)
    assert ended.code == 2
    assert "server.sh" in ended.report.headline
    assert ended.report.next_steps, "there must be a way out"


@pytest.mark.parametrize(
    "arguments",
    [["--once", "--keep", "--", "true"], ["--on-stall", "panic", "--", "true"], ["--"], ["MODEL", "--", "true"]],
    ids=["once and keep", "unknown word", "no command", "model and command"],
)
def test_wrong_usage_is_code_2(arguments: list[str], start: Starter) -> None:
    ended = start.up(arguments).wait(WAIT_S)
    assert ended.code == 2
    assert ended.events == ()
    assert "Traceback" not in ended.stderr


def test_a_home_that_cannot_be_made_keeps_no_server_from_coming_up(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    home = tmp_path / "file" / "home"
    server = command("comes_up", "--port", free_port())
    ended = start.command(server, up=["--once"], environ={"FIRSTLIGHT_HOME": str(home)}).wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    assert any(str(home) in gap.detail for gap in gaps(ended))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, which two megabytes of log fill in no time."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False, capture_output=True
    )
    if mounting.returncode:
        pytest.skip(f"only root can mount a small file system: {mounting.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_keeps_no_server_from_coming_up(small_disk: Path, start: Starter) -> None:
    server = command("garbage_log", "--port", free_port())
    ended = start.command(server, up=["--once"], environ={"FIRSTLIGHT_HOME": str(small_disk)}).wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.first_token is not None
    assert gaps(ended), "what was lost must be noted"


def test_a_process_that_may_not_be_traced_is_a_gap_and_still_a_stall(start: Starter) -> None:
    as_root = os.getuid() == 0
    without_ptrace = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"] if as_root else []
    server = command("lock_inversion", "--undumpable")
    ended = start.command(server, up=["--on-stall", "stop"], before=without_ptrace).wait(WAIT_S)
    assert ended.code == 1
    assert GapReason.NO_PERMISSION in {gap.reason for gap in gaps_of_processes(ended)}
