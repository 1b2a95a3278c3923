"""The table of kernel locks, who holds what, and who tries again and again."""

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight.core.look import Frame, Lock, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.evidence.inodes import descriptors
from firstlight.evidence.locks import KernelLock, kernel_locks, parse_locks, with_pollers
from firstlight.evidence.mounts import filesystem_at, mounts_of

TABLE = """\
1: FLOCK  ADVISORY  WRITE 101 00:2a:5678 0 EOF
1: -> FLOCK  ADVISORY  WRITE 102 00:2a:5678 0 EOF
1: -> FLOCK  ADVISORY  WRITE 103 00:2a:5678 0 EOF
2: POSIX  ADVISORY  READ 104 fd:01:99 128 128
3: OFDLCK ADVISORY  WRITE -1 00:01:7 0 EOF
4: LEASE  ACTIVE    READ 105 00:01:8 0 EOF
nonsense
5: FLOCK
"""


def test_the_kernels_table_is_read_and_nonsense_left_out() -> None:
    assert parse_locks(TABLE) == [
        KernelLock(1, False, "flock", 101, 5678),
        KernelLock(1, True, "flock", 102, 5678),
        KernelLock(1, True, "flock", 103, 5678),
        KernelLock(2, False, "posix", 104, 99),
        KernelLock(3, False, "ofd", -1, 7),
        KernelLock(4, False, "lease", 105, 8),
    ]


def test_an_arrow_without_a_space_is_a_waiter_too() -> None:
    assert parse_locks("1: ->FLOCK ADVISORY WRITE 102 00:2a:5678 0 EOF")[0].waits


HOLDS = """
    import fcntl, sys, time
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    print("ready", flush=True)
    time.sleep(600)
"""
WAITS = """
    import fcntl, sys
    file = open(sys.argv[1], "w")
    print("ready", flush=True)
    fcntl.flock(file, fcntl.LOCK_EX)
"""


def locks_of(*processes: Process) -> tuple[Lock, ...]:
    return kernel_locks({one.id.pid: descriptors(one.id.pid) for one in processes})


def test_holder_waiter_path_and_file_system_of_a_lock_are_told(programs: Programs, eyes: Eyes) -> None:
    path = programs.folder / "cache.lock"
    holder, waiter = programs.python(HOLDS, str(path)), programs.python(WAITS, str(path))
    eyes.until_in("flock", waiter)
    (found,) = (one for one in locks_of(waiter) if waiter.id.pid in one.waiters)
    assert (found.kind, found.path) == ("flock", str(path))
    assert (found.holder, found.waiters) == (holder.id.pid, (waiter.id.pid,))
    assert found.holder_name.startswith("python")
    assert found.filesystem == filesystem_at(str(path), mounts_of("self"))


def test_a_lock_in_the_servers_cache_that_a_stranger_holds_is_told(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = programs.folder / "hub"
    (hub / ".locks").mkdir(parents=True)
    inside, outside = hub / ".locks" / "model.lock", programs.folder / "elsewhere.lock"
    holders = [programs.python(HOLDS, str(path)) for path in (inside, outside)]
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("TMPDIR", str(hub / "tmp"))
    server = programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    found = [(one.path, one.holder, one.waiters) for one in locks_of(server)]
    assert (str(inside), holders[0].id.pid, ()) in found
    assert str(outside) not in [path for path, _, _ in found]


POLLS = """
    import sys
    {imports}
    print("ready", flush=True)
    {acquires}
"""


def test_whoever_tries_again_and_again_waits_for_the_holder(programs: Programs, eyes: Eyes) -> None:
    pytest.importorskip("filelock")
    path = programs.folder / "model.lock"
    holder = programs.python(HOLDS, str(path))
    text = POLLS.format(imports="import filelock", acquires="filelock.FileLock(sys.argv[1]).acquire()")
    poller = programs.python(text, str(path))
    seen = eyes.until_in("clock_nanosleep", poller)
    (found,) = with_pollers(locks_of(holder), [seen])
    assert found.waiters == (poller.id.pid,)


def look_of(pid: int, *files: str, code: str = "", opened: tuple[str, ...] = ()) -> ProcessLook:
    """A process of which one thread sleeps with frames in these files."""
    stack = tuple(Frame(function="acquire", file=file, line=1, code=code) for file in files)
    id_ = ProcessId(pid=pid, started=1)
    thread = ThreadLook(tid=pid, name="MainThread", state="S", cpu_s=0, wchan="", syscall="", stack=stack)
    sample = ProcessSample(
        id=id_,
        state="S",
        cpu_s=0,
        threads=1,
        major_faults=0,
        memory_bytes=0,
        shared_bytes=0,
        read_bytes=0,
        write_bytes=0,
        disk_read_bytes=0,
    )
    return ProcessLook(
        process=Process(id=id_, ppid=1, name="python", cmdline=("python",)),
        sample=sample,
        threads=(thread,),
        files=tuple(OpenFile(fd=9, kind="file", target=path) for path in opened),
    )


FILELOCK = "/venv/filelock/_api.py"
HUB = Lock(kind="flock", path="/cache/hub/.locks/models--a/b.lock", holder=7)
JIT = Lock(kind="flock", path="/home/me/.cache/flashinfer/0.6/tmp/x.lock", holder=8)
LOG = Lock(kind="flock", path="/var/log/server.log", holder=9)


@pytest.mark.parametrize(
    ("look", "awaited"),
    [
        (look_of(5, FILELOCK, "/venv/huggingface_hub/file_download.py"), HUB),
        (look_of(5, FILELOCK, "/venv/flashinfer/jit/core.py"), JIT),
        (look_of(5, FILELOCK, "/srv/own.py", opened=(JIT.path,)), JIT),
        (look_of(5, "/srv/own.py", code="fcntl.flock(fd, LOCK_EX | LOCK_NB)", opened=(HUB.path,)), HUB),
        (look_of(5, FILELOCK, "/srv/own.py"), None),  # it could be either
        (look_of(5, "/srv/own.py", opened=(HUB.path,)), None),  # an open file alone is no wait
        (look_of(7, FILELOCK, "/venv/huggingface_hub/file_download.py"), None),  # it holds that one itself
        (look_of(5, FILELOCK, "/venv/triton/runtime/cache.py"), None),
    ],
)
def test_a_poller_waits_for_the_one_lock_that_fits_and_else_for_none(look: ProcessLook, awaited: Lock | None) -> None:
    found = with_pollers((HUB, JIT, LOG), [look])
    assert [one.path for one in found if one.waiters] == ([awaited.path] if awaited else [])


def test_with_one_lock_held_a_poller_of_unknown_topic_waits_for_it() -> None:
    (found, _) = with_pollers((HUB, LOG), [look_of(5, FILELOCK, "/srv/own.py")])
    assert found.waiters == (5,)
