"""The machine, and who may be read on it."""

import os

import pytest

from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.evidence import host
from firstlight.evidence.host import ptrace_rights


def test_the_machine_is_this_one() -> None:
    here = host(SystemClock())
    assert here.kernel == os.uname().release
    assert here.name == os.uname().nodename
    assert 1 <= here.cpus <= (os.cpu_count() or 1)
    assert here.memory_bytes > 1 << 28
    assert not isinstance(here.shm_bytes, Gap)
    assert not isinstance(here.shm_used_bytes, Gap)
    assert 0 <= here.shm_used_bytes <= here.shm_bytes
    assert here.may_ptrace


@pytest.mark.parametrize(
    ("capable", "scope", "begins"),
    [
        (True, 0, "any process"),
        (True, 2, "any process"),
        (True, 3, "none"),
        (False, 0, "processes of the same user"),
        (False, 1, "own descendants only"),
        (False, 2, "none"),
    ],
)
def test_the_right_to_ptrace_in_words(capable: bool, scope: int, begins: str) -> None:
    assert ptrace_rights(capable, scope).startswith(begins)
