"""Ends that only others tell of, and locks that an end or a fork leaves taken."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import bundle, ended, front, line, ordinary_facts, rank, thread

IMPORTS = ["acquire (<frozen importlib._bootstrap>:138)", "_make_client (serve.py:9)"]
LOGS = ["acquire (logging/__init__.py:914)", "handle (logging/__init__.py:1026)", "main (serve.py:9)"]
WAITS = ["wait (threading.py:320)", "main (serve.py:9)"]
FORKED = ordinary_facts(forked=True, parent_threads=8)
TIMED = "futex(0x7f00, 0x80, 0x2, 0x7f12, 0x0, 0x0)"


def _tells(text: str, **told) -> Bundle:
    return bundle(front(), rank(0, stack=WAITS), log=[line(text, level="ERROR")], phase=Phase.MODEL_INIT, **told)


@pytest.mark.parametrize(
    "text",
    [
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "The node with node id: 1f has been marked dead because the detector has missed heartbeats.",
        "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
        "subprocess scheduler_1 (pid: 4711) crashed with exit code -9",
    ],
)
def test_somebody_tells_of_an_end_that_nobody_saw(judge, text):
    said = judge(_tells(text), "process_died")
    assert said.word == "supported"
    assert "as the log tells" in said.title


@pytest.mark.parametrize(
    "text",
    [
        "Waiting for 2 core engine proc(s) to start",
        "worker (pid: 4100) exit code: -9 is what an OOM killer leaves",
        "worker 3 died, restarting it",
        "the worker exited with exit code 0",
    ],
)
def test_an_end_that_is_none(judge, text):
    assert judge(_tells(text), "process_died").finding is None


def test_an_end_that_a_server_has_got_over(judge):
    old = line("subprocess worker 3 crashed with exit code -9", level="ERROR", ago_s=9000)
    new = line("subprocess worker 3 crashed with exit code -9", level="ERROR", ago_s=20)
    served = {"phase": Phase.SERVING}
    assert judge(bundle(front(), rank(0, stack=WAITS), log=[old], **served), "process_died").finding is None
    assert judge(bundle(front(), rank(0, stack=WAITS), log=[new], **served), "process_died").word == "supported"


def test_an_end_that_was_seen_says_more(judge):
    said = judge(_tells("Worker proc 1 died unexpectedly", exits=[ended(rank(1), signal=9)]), "process_died")
    assert said.finding is None


@pytest.mark.parametrize("stack", [IMPORTS, LOGS])
def test_a_fork_leaves_the_locks_of_imports_and_of_logging_taken(judge, stack):
    assert judge(bundle(rank(0, stack=stack, facts=FORKED, syscall=TIMED)), "fork_in_threads").word == "supported"
    assert judge(bundle(rank(0, stack=stack)), "fork_in_threads").finding is None
    assert judge(bundle(rank(0, stack=WAITS, facts=FORKED)), "fork_in_threads").finding is None


def test_two_threads_in_locks_of_imports(judge):
    other = thread(LOGS, name="worker", syscall="futex(0x7f99, 0x80, 0x0)")
    assert judge(bundle(rank(0, stack=IMPORTS, threads=[other])), "deadlock").word == "supported"
    queue = thread(IMPORTS, name="worker")
    assert judge(bundle(rank(0, stack=IMPORTS, threads=[queue])), "deadlock").finding is None
