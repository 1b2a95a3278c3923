"""Owners of mutexes in real programs; and every other thing that waits in a futex, which must have none."""

import struct
import subprocess
import sys
import textwrap

import pytest
from tests.unit.evidence.conftest import READY_S, Eyes, Programs

from firstlight.clock import SystemClock
from firstlight.core.look import Futex, ProcessLook, ThreadLook
from firstlight.evidence.futexes import FutexWait, Owners, futex_of, named_owner, waits

CLOCK = SystemClock()

BEGIN = """
    import ctypes, multiprocessing, os, sys, threading, time
    libc = ctypes.CDLL(None)
    holding_the_gil = ctypes.PyDLL(None)

    def mutex(kind=0, shared=False, robust=False, inherits=False):
        attributes = ctypes.create_string_buffer(16)
        libc.pthread_mutexattr_init(attributes)
        libc.pthread_mutexattr_settype(attributes, kind)
        libc.pthread_mutexattr_setpshared(attributes, int(shared))
        libc.pthread_mutexattr_setrobust(attributes, int(robust))
        libc.pthread_mutexattr_setprotocol(attributes, int(inherits))
        made = (ctypes.c_uint64 * 8)()
        assert libc.pthread_mutex_init(made, attributes) == 0
        return made

    def in_thread(work):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def held_by_another(one, lock=libc.pthread_mutex_lock):
        taken = threading.Event()
        def hold():
            assert lock(one) == 0
            taken.set()
            time.sleep(600)
        thread = in_thread(hold)
        taken.wait(20)
        return thread.native_id

    def ready():
        print("ready", flush=True)
"""


def program(programs: Programs, eyes: Eyes, text: str) -> ProcessLook:
    """A look at a program of which the main thread waits in a futex; it may leave it for moments, to look around."""
    process = programs.python(BEGIN + text)
    ends = CLOCK.monotonic() + READY_S
    while True:
        seen = eyes.look(process, stacks=False).processes[0]
        if seen.threads[0].futex and seen.threads[0].state == "S":
            return seen
        assert CLOCK.monotonic() < ends, seen.threads[0]
        CLOCK.sleep(0.02)


def awaited(thread: ThreadLook) -> Futex:
    assert thread.futex is not None
    return thread.futex


def sleeper(seen: ProcessLook) -> ThreadLook:
    """The thread that holds: it sleeps."""
    return next(one for one in seen.threads if str(one.syscall).startswith("clock_nanosleep"))


@pytest.mark.parametrize("kind", ["", "kind=1", "kind=2", "kind=3", "robust=True", "inherits=True"])
def test_the_owner_of_a_mutex_is_told_whatever_its_kind(kind: str, programs: Programs, eyes: Eyes) -> None:
    text = f"""
    one = mutex({kind})
    held_by_another(one)
    ready()
    libc.pthread_mutex_lock(one)
    """
    seen = program(programs, eyes, text)
    assert awaited(seen.threads[0]).owner == sleeper(seen).tid
    assert awaited(seen.threads[0]).orphan == 0


def test_the_owner_is_told_when_the_wait_has_a_limit(programs: Programs, eyes: Eyes) -> None:
    seen = program(
        programs,
        eyes,
        """
    one = mutex()
    held_by_another(one)
    limit = (ctypes.c_int64 * 2)(int(time.time()) + 600, 0)
    ready()
    libc.pthread_mutex_timedlock(one, limit)
    """,
    )
    assert awaited(seen.threads[0]).owner == sleeper(seen).tid


@pytest.mark.parametrize("library", ["libc", "holding_the_gil"])
def test_two_threads_that_hold_what_the_other_wants_name_each_other(
    library: str, programs: Programs, eyes: Eyes
) -> None:
    """With the interpreter lock held, too: the first to wait takes it along, and the other needs none to lock."""
    text = f"""
    first, second = mutex(), mutex()
    here, there = threading.Event(), threading.Event()
    def other():
        libc.pthread_mutex_lock(second)
        there.set()
        here.wait(20)
        libc.pthread_mutex_lock(first)
    libc.pthread_mutex_lock(first)
    thread = in_thread(other)
    there.wait(20)
    here.set()
    while f"0x{{ctypes.addressof(first):x}}" not in open(f"/proc/self/task/{{thread.native_id}}/syscall").read():
        time.sleep(0.01)
    ready()
    {library}.pthread_mutex_lock(second)
    """
    seen = program(programs, eyes, text)
    one, other = seen.threads
    assert (awaited(one).owner, awaited(other).owner) == (other.tid, one.tid)


@pytest.mark.parametrize("kind", [0, 3])
def test_a_thread_that_waits_for_itself_is_its_own_owner(kind: int, programs: Programs, eyes: Eyes) -> None:
    text = f"""
    one = mutex({kind})
    libc.pthread_mutex_lock(one)
    ready()
    holding_the_gil.pthread_mutex_lock(one)
    """
    seen = program(programs, eyes, text)
    assert awaited(seen.threads[0]).owner == seen.threads[0].tid


def test_a_mutex_in_shared_memory_names_a_thread_of_another_process(programs: Programs, eyes: Eyes) -> None:
    process = programs.python(
        BEGIN
        + """
    import mmap
    memory = mmap.mmap(-1, 4096)
    one = (ctypes.c_uint64 * 8).from_buffer(memory)
    ctypes.memmove(one, mutex(shared=True), 64)
    libc.pthread_mutex_lock(one)
    if os.fork() == 0:
        libc.pthread_mutex_lock(one)
    ready()
    time.sleep(600)
    """
    )
    (child,) = programs.children(process)
    seen = eyes.until_in("futex", child)
    found = awaited(seen.threads[0])
    assert (found.owner, found.shared) == (process.id.pid, True)


def test_a_mutex_that_a_fork_left_locked_has_an_orphan(programs: Programs, eyes: Eyes) -> None:
    process = programs.python(
        BEGIN
        + """
    one = mutex()
    held_by_another(one)
    if os.fork() == 0:
        libc.pthread_mutex_lock(one)
    ready()
    time.sleep(600)
    """
    )
    (child,) = programs.children(process)
    found = awaited(eyes.until_in("futex", child).threads[0])
    holder = next(one.tid for one in eyes.look(process).processes[0].threads if one.tid != process.id.pid)
    assert (found.owner, found.orphan) == (0, holder)


def test_a_mutex_of_a_thread_that_has_ended_has_an_orphan(programs: Programs, eyes: Eyes) -> None:
    seen = program(
        programs,
        eyes,
        """
    one = mutex()
    thread = in_thread(lambda: libc.pthread_mutex_lock(one))
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.01)
    ready()
    libc.pthread_mutex_lock(one)
    """,
    )
    found = awaited(seen.threads[0])
    assert found.owner == 0
    assert found.orphan > seen.threads[0].tid


def test_the_owner_in_a_container_is_told_by_its_id_outside(programs: Programs, eyes: Eyes) -> None:
    inside = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a pid namespace here")
    path = programs.folder / "inside.py"
    text = """
    one = mutex()
    held_by_another(one)
    ready()
    libc.pthread_mutex_lock(one)
    """
    path.write_text(textwrap.dedent(BEGIN + text))
    parent = programs.command([*inside, sys.executable, str(path)])
    (child,) = programs.children(parent)
    seen = eyes.until_in("futex", child)
    assert awaited(seen.threads[0]).owner == sleeper(seen).tid > 100


WITHOUT_OWNER = {
    "semaphore": """
    one = (ctypes.c_uint64 * 4)()
    libc.sem_init(one, 0, 0)
    ready()
    libc.sem_wait(one)
    """,
    "condition": """
    condition, one = (ctypes.c_uint64 * 6)(), mutex()
    libc.pthread_mutex_lock(one)
    ready()
    libc.pthread_cond_wait(condition, one)
    """,
    "condition with its mutex taken by another": """
    condition, one = (ctypes.c_uint64 * 6)(), mutex()
    def take():
        time.sleep(0.1)
        libc.pthread_mutex_lock(one)
        time.sleep(600)
    libc.pthread_mutex_lock(one)
    in_thread(take)
    ready()
    libc.pthread_cond_wait(condition, one)
    """,
    "lock for reading, written": """
    one = (ctypes.c_uint64 * 7)()
    held_by_another(one, libc.pthread_rwlock_wrlock)
    ready()
    libc.pthread_rwlock_rdlock(one)
    """,
    "lock for writing, read": """
    one = (ctypes.c_uint64 * 7)()
    held_by_another(one, libc.pthread_rwlock_rdlock)
    ready()
    libc.pthread_rwlock_wrlock(one)
    """,
    "barrier": """
    one = (ctypes.c_uint64 * 4)()
    libc.pthread_barrier_init(one, None, 2)
    ready()
    libc.pthread_barrier_wait(one)
    """,
    "lock of Python": """
    one = threading.Lock()
    one.acquire()
    ready()
    one.acquire()
    """,
    "condition of Python": """
    condition = threading.Condition()
    ready()
    with condition:
        condition.wait()
    """,
    "join of Python": """
    thread = in_thread(lambda: time.sleep(600))
    ready()
    thread.join()
    """,
    "join of a thread": """
    body = ctypes.CFUNCTYPE(None)(lambda: time.sleep(600))
    thread = ctypes.c_uint64()
    libc.pthread_create(ctypes.byref(thread), None, body, None)
    ready()
    libc.pthread_join(thread, None)
    """,
    "the interpreter lock": """
    one, started = mutex(), threading.Event()
    def keep():
        libc.pthread_mutex_lock(one)
        started.set()
        holding_the_gil.sleep(600)
    ready()
    in_thread(keep)
    started.wait()
    """,
    "semaphore of multiprocessing": """
    one = multiprocessing.get_context("fork").Lock()
    one.acquire()
    ready()
    one.acquire()
    """,
}


@pytest.mark.parametrize("name", WITHOUT_OWNER)
def test_whatever_else_waits_in_a_futex_has_no_owner(name: str, programs: Programs, eyes: Eyes) -> None:
    seen = program(programs, eyes, WITHOUT_OWNER[name])
    found = awaited(seen.threads[0])
    assert found.address > 0
    assert (found.owner, found.orphan) == (0, 0)


PLAIN = FutexWait(0x1000, 128, 2, timed=False)


def test_a_call_that_wakes_waits_for_nothing() -> None:
    assert waits((0x1000, 129, 1, 0, 0, 0)) is None
    assert waits((0x1000, 128, 2, 0, 0, 0)) == PLAIN


@pytest.mark.parametrize(
    ("wait", "fields"),
    [
        (PLAIN, (1, 0, 77, 1, 0)),  # not contended
        (PLAIN, (2, 0, 0, 1, 0)),
        (PLAIN, (2, 0, -5, 1, 0)),
        (PLAIN, (2, 0, 1 << 23, 1, 0)),
        (PLAIN, (2, 0, 77, 0, 0)),  # nobody uses it
        (PLAIN, (2, 0, 77, 0x7F12, 0)),  # half of a pointer
        (PLAIN, (2, 1, 77, 1, 0)),  # counts, but is not recursive
        (PLAIN, (2, 0, 77, 1, 1)),  # recursive, but does not count
        (PLAIN, (2, 0, 77, 1, 0x5570)),
        (PLAIN, (2, 0, 77, 1, 128)),  # in shared memory, but waited for in private
        (PLAIN._replace(operation=0), (2, 0, 77, 1, 0)),
        (PLAIN._replace(operation=137), (2, 0, 77, 1, 0)),  # how Rust waits
        (PLAIN._replace(value=0), (2, 0, 77, 1, 0)),
        (PLAIN._replace(operation=134), (77, 0, 77, 1, 0)),
        (PLAIN._replace(operation=0, value=77), (77, 0, 77, 1, 16)),
    ],
)
def test_memory_that_is_no_locked_mutex_names_nobody(wait: FutexWait, fields: tuple[int, ...]) -> None:
    assert named_owner(PLAIN, (2, 0, 77, 1, 0)) == 77
    assert named_owner(wait, fields) == 0


def test_memory_that_may_not_be_read_ends_early_or_is_of_another_machine_tells_no_owner() -> None:
    def refused(address: int, length: int) -> bytes:
        raise PermissionError(1, "not allowed")

    locked = struct.pack("=IIiIi", 2, 0, 77, 1, 0)
    nobody = Owners(1)
    plain = Futex(address=0x1000)
    assert futex_of(PLAIN, 5, refused, nobody) == plain
    assert futex_of(PLAIN, 5, lambda address, length: locked[:12], nobody) == plain
    assert futex_of(PLAIN, 5, lambda address, length: locked, nobody, "riscv64") == plain
    crooked = PLAIN._replace(address=0x1004)
    assert futex_of(crooked, 5, lambda address, length: locked, nobody) == Futex(address=0x1004)
