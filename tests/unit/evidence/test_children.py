"""Helper programs end by their deadline, with all that they started."""

import sys
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.children import Late, output_of


def within(seconds: float) -> Deadline:
    return Deadline(SystemClock(), seconds, "the helper")


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_output_errors_and_status_come_back() -> None:
    done = output_of(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), within(20), 1000)
    assert (done.code, done.output, done.errors) == (3, b"out\n", b"err\n")


def test_a_late_program_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"import os, time; child = os.fork(); open({str(pids)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(600)"
    with pytest.raises(Late):
        output_of(python(text), within(1.5), 1000)
    for pid in map(int, pids.read_text().split()):
        assert not lives(pid)


def lives(pid: int) -> bool:
    try:
        return procfs.stat(pid).state not in "ZX"
    except OSError:
        return False


def test_a_program_that_prints_without_end_is_killed() -> None:
    with pytest.raises(Late, match="more than 100000 bytes"):
        output_of(python("while True: print('x' * 1000)"), within(20), 100_000)


def test_a_program_that_closes_its_output_and_stays_is_late() -> None:
    with pytest.raises(Late):
        output_of(python("import os, time; os.close(1); os.close(2); time.sleep(600)"), within(1.0), 1000)


def test_a_program_that_does_not_exist_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        output_of(["/no/such/program"], within(5), 1000)


def test_no_descriptor_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        output_of(python("pass"), within(20), 1000)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
