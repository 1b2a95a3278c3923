"""The threads of a process beside the one that tells most."""

import pytest
from tests.unit.diagnose.conftest import bundle, look, process, stack, thread, twice

from firstlight.core.look import Futex, OpenFile, ThreadLook
from firstlight.core.report import Report, ReportedThread
from firstlight.diagnose import reported
from firstlight.diagnose.others import FRAMES_MAX, OTHERS_MAX
from firstlight.report.html import html
from firstlight.report.markdown import markdown
from firstlight.report.terminal import terminal

LOADS = stack("load /app/weights.py:88")
POOL = stack(
    "_worker /usr/lib/python3.11/concurrent/futures/thread.py:81", "Thread.run /usr/lib/python3.11/threading.py:982"
)


def wants(tid: int, owner: int, name: str = "") -> ThreadLook:
    at = stack(f"take{tid} /app/locks.py:{tid}", "a /app/a.py:1", "b /app/b.py:2", "c /app/c.py:3", "d /app/d.py:4")
    return thread(tid, at, call=f"futex({tid:#x})", name=name or f"t{tid}", futex=Futex(address=tid, owner=owner))


def others(report: Report, pid: int = 100) -> tuple[ReportedThread, ...]:
    return next(one.others for one in report.processes if one.pid == pid)


def test_both_threads_of_a_deadlock_are_told() -> None:
    idle = thread(103, POOL, call="futex(0x9)")
    report = reported(twice(process(100, wants(100, 101), wants(101, 100), idle)))
    (other,) = others(report)
    assert (other.tid, other.name) == (101, "t101")
    assert other.doing.startswith("waits for a mutex that thread 100 (t100) holds")
    assert other.where[0].function == "take101"
    assert len(other.where) == FRAMES_MAX


@pytest.mark.parametrize("render", [terminal, markdown, html])
def test_every_form_of_the_report_shows_them(render: object) -> None:
    report = reported(twice(process(100, wants(100, 101), wants(101, 100, name="loader"))))
    text = render(report)  # type: ignore[operator]
    processes = text[text.index("Processes, as last seen") :]
    assert "thread 101" in processes
    assert "loader" in processes
    assert "take101" in processes


def test_a_thread_that_reads_from_a_socket_or_holds_the_gil_is_told_and_an_idle_one_is_not() -> None:
    socket = OpenFile(fd=4, kind="socket", target="socket:[7]", detail="TCP 10.0.0.1:5 to 10.0.0.2:80, ESTABLISHED")
    pipe = OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(100,))
    threads = (
        thread(100, LOADS, call="read(0x3)", fds=(3,)),
        thread(101, stack("fetch /app/hub.py:7"), call="recvfrom(0x4)", fds=(4,)),
        thread(102, stack("compute /app/native.py:9"), call="futex(0x5)", owns_gil=True),
        thread(103, POOL, call="futex(0x6)"),
        thread(104, stack("beat /app/beat.py:2")),
    )
    told = others(reported(twice(process(100, *threads, files=(socket, pipe)))))
    assert [one.tid for one in told] == [102, 101]
    assert told[0].doing.startswith("holds the interpreter lock (GIL) and")
    assert told[1].doing.startswith("waits to read from a socket")


def test_there_are_few_and_only_of_processes_that_matter() -> None:
    crowd = [wants(100 + n, 100 + (n + 1) % 9) for n in range(9)]
    assert len(others(reported(twice(process(100, *crowd))))) == OTHERS_MAX
    bystander = process(
        300, thread(300, LOADS), thread(301, stack("fetch /app/hub.py:7"), call="recvfrom(0x4)", fds=(4,))
    )
    assert others(reported(bundle(look(bystander))), 300) == ()
