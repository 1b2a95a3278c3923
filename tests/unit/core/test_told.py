"""Ends that lines of a log tell of: how, and of whom."""

import pytest

from firstlight.core.told import ToldEnd, told_end


@pytest.mark.parametrize(
    ("text", "code", "pid"),
    [
        ("Exit code: -9", -9, 0),
        ("worker rank=0 pid=6 exited with code -11 (phase=weights)", -11, 6),
        ("Subprocess scheduler_0 (pid=77) crashed with exit code 1. Triggering SIGQUIT for cleanup", 1, 77),
        ("Rank 3 scheduler died during initialization (exit code: -15).", -15, 0),
        ("failed (exitcode: -9) local_rank: 0 (pid: 4711) of binary: /usr/bin/python", -9, 4711),
        ("  exitcode  : -9 (pid: 4711)", -9, 4711),
        ("  traceback : Signal 9 (SIGKILL) received by PID 4711", -9, 4711),
        ("Command '['nvcc', '-c']' died with <Signals.SIGKILL: 9>.", -9, 0),
        ("Command 'ninja' returned non-zero exit status 127.", 127, 0),
        ("mpirun noticed that process rank 1 with PID 4711 on node n1 exited on signal 7 (Bus error).", -7, 4711),
        ("Shard process was signaled to shutdown with signal 4", -4, 0),
        ("[n1:4711:0:4711] Caught signal 11 (Segmentation fault: address not mapped)", -11, 0),
        ("worker rank=0 pid=6 was killed by SIGTERM (phase=serving)", -15, 6),
        ("Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits with an exit code 1.", 1, 0),
        ("  Exit code:    1", 1, 0),
        ("[n1:4711] Signal: Segmentation fault (11)", -11, 0),
        ("已杀死", -9, 0),
        ("段错误 (核心已转储)", -11, 0),
        ("Killed", -9, 0),
        ("Bus error (core dumped)", -7, 0),
        ("run.sh: line 7:  4711 Segmentation fault      (core dumped) python server.py", -11, 0),
        ("zsh: killed     python server.py", -9, 0),
        ("Illegal instruction (core dumped)", -4, 0),
        ("server exited with code 0", 0, 0),
    ],
)
def test_an_end_is_told(text: str, code: int, pid: int) -> None:
    assert told_end(text) == ToldEnd(code, pid)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
        "Worker unexpectedly exits with a connection error code 2. Some common causes include: (1) killed by SIGKILL",
        "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer",
        "If it was killed by SIGKILL, look at dmesg",
        "Killed nothing",
        "Aborted requests: 3",
        "Exiting the warmup with 3 codes",
        "Signals are handled; SIGTERM drains",
        "killed by signal 99",
        "exit code " + "9" * 4000,
    ],
)
def test_no_end_is_told(text: str) -> None:
    assert told_end(text) is None


@pytest.mark.parametrize(
    ("code", "asked"), [(0, True), (-15, True), (130, True), (-9, False), (1, False), (137, False)]
)
def test_an_end_that_was_wanted(code: int, asked: bool) -> None:
    assert ToldEnd(code).asked is asked
