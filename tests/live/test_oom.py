"""A rank that the kernel kills for memory, live: only whoever watches sees how it ended."""

import os

import pytest

from firstlight.core.vocabulary import Outcome
from firstlight.core.words import exit_words
from firstlight.testing.running import Starter
from firstlight.testing.zoo import command_of, has, remove_control_groups

pytestmark = pytest.mark.timeout(180)

WAIT_S = 150.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a control group")
@pytest.mark.skipif(not has("memory cgroup"), reason="no memory controller is mounted")
def test_a_rank_killed_for_memory_is_told_as_such(start: Starter) -> None:
    ended = start.command(command_of("oom_in_cgroup"), up=["--on-stall", "stop"]).wait(WAIT_S)
    remove_control_groups()
    report = ended.report
    assert report.outcome is Outcome.STALLED
    rank = ended.pid_of("worker_TP0")
    died = next(one for one in report.exits if one.id.pid == rank)
    assert died.signal == 9
    assert "because memory ran out" in exit_words(died)
    assert "because memory ran out" in report.headline
    assert f"pid {rank}" in report.headline
