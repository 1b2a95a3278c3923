"""Real processes that sleep in every common way tell when they wake; those that wait for somebody are told apart."""

import platform
import time
from collections.abc import Callable

import pytest
from tests.unit.evidence.conftest import READY_S, Eyes, Programs

from firstlight.core.gap import Gap
from firstlight.core.look import Look, TimeLimit
from firstlight.core.process import Process
from firstlight.diagnose import sleeping

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "aarch64"}, reason="calls are not known by name on this machine"
)

LENGTH_S = 300.0
READY = "print('ready', flush=True)\n"
C_SLEEP = """
import ctypes

class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

length = Timespec(300, 0)
"""
A_LOOP = "import asyncio\nasyncio.run(asyncio.sleep(300))"
A_THREAD = """
import ctypes, threading

def work(call, *arguments):
    call(*arguments)

def start(*work_of_it):
    threading.Thread(target=work, args=work_of_it, daemon=True).start()

"""
A_LOOP_BESIDE_A_THREAD = A_THREAD + "start(threading.Event().wait)\n" + READY + A_LOOP
ONE_THREAD_SLEEPS = A_THREAD + READY + "start(ctypes.CDLL(None).sleep, 300)\nthreading.enumerate()[-1].join()"
A_CHILD_WITH_A_PIPE = """
import os, select, time

reads, writes = os.pipe()
if os.fork() == 0:
    time.sleep(300)
"""


def asleep_in(look: Look) -> set[int]:
    return set(sleeping(look, look))


def until_asleep(process: Process, eyes: Eyes) -> tuple[Look, TimeLimit]:
    """The first look in which a process sleeps, and the end of its sleep."""
    ends = time.monotonic() + READY_S
    while True:
        look = eyes.look(process)
        if asleep := sleeping(look, look).get(process.id.pid):
            return look, asleep.limit
        assert time.monotonic() < ends, f"it was never seen to sleep: {look.processes[0].threads}"


@pytest.mark.parametrize(
    "text",
    [
        C_SLEEP + READY + "ctypes.CDLL(None).nanosleep(ctypes.byref(length), None)",
        "import ctypes\n" + READY + "ctypes.CDLL(None).sleep(300)",
        "import select\n" + READY + "select.select([], [], [], 300)",
        "import select\n" + READY + "select.poll().poll(300_000)",
        "import select\n" + READY + "select.epoll().poll(300)",
        READY + A_LOOP,
        ONE_THREAD_SLEEPS,
    ],
    ids=["nanosleep", "sleep of C", "select", "poll", "epoll", "asyncio", "a thread that is waited for"],
)
def test_a_sleep_of_some_length_ends_after_that_at_most(text: str, programs: Programs, eyes: Eyes) -> None:
    _, limit = until_asleep(programs.python(text), eyes)
    assert not limit.exact
    assert limit.seconds == pytest.approx(LENGTH_S, abs=1.0)


def test_a_sleep_until_a_moment_ends_then(programs: Programs, eyes: Eyes) -> None:
    before = time.monotonic()
    process = programs.python(f"import time\n{READY}time.sleep(300)")
    one, at_first = until_asleep(process, eyes)
    after = time.monotonic()
    another, later = until_asleep(process, eyes)
    ends = one.monotonic + at_first.seconds
    assert before + LENGTH_S <= ends <= after + LENGTH_S
    if at_first.exact:  # Python before 3.11 names the length
        assert another.monotonic + later.seconds == pytest.approx(ends, abs=0.001)


def test_a_script_that_sleeps_has_a_child_that_does(programs: Programs, eyes: Eyes) -> None:
    script = programs.command(["bash", "-c", "echo ready; until false; do sleep 300; done"])
    ends = time.monotonic() + READY_S
    while not (children := programs.children(script)):
        assert time.monotonic() < ends, "the script started no child"
    look, limit = until_asleep(children[0], eyes)
    assert limit == TimeLimit(seconds=LENGTH_S, exact=False)
    assert script.id.pid not in asleep_in(eyes.look(script, *children))
    assert look.processes[0].threads[0].fds == ()


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "import threading\nlock = threading.Lock()\nlock.acquire()\n" + READY + "lock.acquire(timeout=300)",
            "futex",
        ),
        ("import queue\n" + READY + "queue.Queue().get(timeout=300)", "futex"),
        ("import threading\n" + READY + "threading.Event().wait(300)", "futex"),
        (
            "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\nlistener.settimeout(300)\n"
            + READY
            + "listener.accept()",
            "p",
        ),
        (A_CHILD_WITH_A_PIPE + READY + "select.select([reads], [], [], 300)", "p"),
        (A_LOOP_BESIDE_A_THREAD, "epoll"),
    ],
    ids=["lock", "queue", "event", "accept", "pipe", "asyncio beside a thread"],
)
def test_a_wait_for_somebody_with_a_time_out_is_no_sleep(
    text: str, call: str, programs: Programs, eyes: Eyes
) -> None:
    process = programs.python(text)
    eyes.until_in(call, process)
    assert asleep_in(eyes.look(process)) == set()


def test_where_calls_may_not_be_seen_there_is_a_gap_and_no_sleep(
    programs: Programs, eyes: Eyes, as_nobody: Callable[[Callable[[], bool]], bool]
) -> None:
    process = programs.python(f"import time\n{READY}time.sleep(300)")
    until_asleep(process, eyes)

    def is_a_gap() -> bool:
        look = eyes.look(process, stacks=False)
        return isinstance(look.processes[0].threads[0].syscall, Gap) and asleep_in(look) == set()

    assert as_nobody(is_a_gap)
