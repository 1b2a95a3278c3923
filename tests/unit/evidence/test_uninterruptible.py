"""Threads in D state: what they wait for, and that looking at them does not wait with them."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.evidence.conftest import READY_S, Eyes, Programs

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook
from firstlight.core.process import Process
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import files
from firstlight.evidence.mounts import NO_ANSWER, filesystem_at, mounts_of
from firstlight.evidence.processes import MAP_LOCKED, look_at, waits_for_memory_map
from firstlight.evidence.syscalls import OUTSIDE
from firstlight.testing.fuse import GETATTR, READ, SIZE, Disk

CLOCK = SystemClock()
REFUSED = Gap(what="kernel function", reason=GapReason.NO_PERMISSION)


@pytest.mark.parametrize(
    ("state", "wchan", "waits"),
    [
        ("D", "rwsem_down_write_slowpath", True),
        ("D", "rwsem_down_read_slowpath", True),
        ("S", "rwsem_down_read_slowpath", False),
        ("D", "folio_wait_bit_common", False),
        ("D", "", False),
        ("D", REFUSED, False),
    ],
)
def test_who_waits_for_the_memory_map(state: str, wchan: str | Gap, waits: bool) -> None:
    assert waits_for_memory_map(state, wchan) is waits


VFORKS = """
    import ctypes, time
    print("ready", flush=True)
    if ctypes.PyDLL(None).vfork() == 0:
        time.sleep(600)
"""


def test_a_thread_in_d_state_tells_its_call(programs: Programs, eyes: Eyes) -> None:
    """Whoever calls vfork sleeps without being interruptible until the child is done."""
    seen = eyes.until_in("vfork", programs.python(VFORKS))
    assert seen.threads[0].state == "D"
    assert seen.threads[0].wchan
    assert seen.gaps == ()


def test_memory_that_would_hold_the_look_up_is_not_read(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    process = programs.python(
        "import multiprocessing.connection as connection\none, _ = connection.Pipe()\nprint('ready', flush=True)\n"
        "connection.wait([one])"
    )

    def stuck(pid: int, tid: int = 0) -> procfs.Stat:
        return real(pid, tid)._replace(state="D")

    def read(pid: int, address: int, length: int) -> bytes:
        raise AssertionError("its memory was read")

    real = procfs.stat
    monkeypatch.setattr(procfs, "stat", stuck)
    monkeypatch.setattr(procfs, "wchan", lambda pid, tid: "rwsem_down_write_slowpath")
    monkeypatch.setattr(procfs, "memory", read)
    seen = look_at(process, time.monotonic())
    assert seen.threads[0].state == "D"
    assert [(gap.what, gap.detail) for gap in seen.gaps] == [("memory", MAP_LOCKED)]


def test_who_waits_for_a_page_shows_the_weights_that_are_mapped(programs: Programs, eyes: Eyes) -> None:
    path = programs.folder / "model-00001.safetensors"
    path.write_bytes(bytes(8192))
    process = programs.python(
        "import mmap, sys, time\nwith open(sys.argv[1], 'rb') as file:\n"
        "    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\nprint('ready', flush=True)\ntime.sleep(600)",
        str(path),
    )
    seen = eyes.look(process).processes[0]
    assert files.mapped_weights(seen) == ()
    waiting = msgspec.structs.replace(seen.threads[0], syscall=OUTSIDE.text)
    (found,) = files.mapped_weights(msgspec.structs.replace(seen, threads=(waiting,)))
    assert (found.fd, found.target, found.size) == (files.MAPPED, str(path), 8192)
    assert found.filesystem == filesystem_at(str(path), mounts_of("self"))


@pytest.fixture
def disk(programs: Programs, tmp_path: Path) -> Iterator[Disk]:
    """Closed before the programs are: nothing else ends a call that hangs in it."""
    point = tmp_path / "mnt"
    point.mkdir()
    try:
        mounted = Disk(point, {READ})
    except OSError:
        pytest.skip("no right to mount a file system here")
    yield mounted
    mounted.close()


READS = "import os, sys\nfile = os.open(sys.argv[1], os.O_RDONLY)\nprint('ready', flush=True)\nos.read(file, 4096)"
MAPS = """
    import mmap, os, sys
    file = os.open(sys.argv[1], os.O_RDONLY)
    memory = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
    os.close(file)
    print("ready", flush=True)
    memory[0]
"""


def until_stuck(process: Process, eyes: Eyes) -> ProcessLook:
    """A look at a process whose main thread is in D state."""
    ends = CLOCK.monotonic() + READY_S
    while procfs.stat(process.id.pid).state != "D":
        assert CLOCK.monotonic() < ends, procfs.wchan(process.id.pid, process.id.pid)
        CLOCK.sleep(0.02)
    return eyes.look(process, stacks=False).processes[0]


def test_a_read_that_never_comes_back_tells_file_and_file_system(disk: Disk, programs: Programs, eyes: Eyes) -> None:
    seen = until_stuck(programs.python(READS, str(disk.file)), eyes)
    (thread,) = seen.threads
    assert thread.state == "D"
    assert thread.wchan
    awaited = next(one for one in seen.files if one.fd in thread.fds)
    assert (awaited.kind, awaited.target) == ("file", str(disk.file))
    assert (awaited.filesystem, awaited.size, awaited.detail) == ("fuse", SIZE, "")


def test_a_file_system_that_does_not_even_tell_a_size_holds_nobody_up(
    disk: Disk, programs: Programs, eyes: Eyes
) -> None:
    process = programs.python(READS, str(disk.file))
    until_stuck(process, eyes)
    disk.silent.add(GETATTR)
    seen = eyes.look(process, stacks=False).processes[0]
    awaited = next(one for one in seen.files if one.fd in seen.threads[0].fds)
    assert (awaited.kind, awaited.filesystem, awaited.detail) == ("file", "fuse", NO_ANSWER)
    assert seen.gaps == ()


def test_a_page_that_never_comes_leads_to_the_weights_that_are_mapped(
    disk: Disk, programs: Programs, eyes: Eyes
) -> None:
    seen = until_stuck(programs.python(MAPS, str(disk.file)), eyes)
    assert seen.threads[0].syscall == OUTSIDE.text
    (found,) = files.mapped_weights(seen)
    assert (found.target, found.filesystem, found.size) == (str(disk.file), "fuse", SIZE)
