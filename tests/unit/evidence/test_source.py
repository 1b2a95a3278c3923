"""Source lines of frames: read through the process's own root, never of a file that changed since."""

import os
from pathlib import Path

from firstlight.clock import SystemClock
from firstlight.core.look import Frame
from firstlight.evidence.stacks.source import FRAMES_MAX, SourceLines


def code(path: Path | str, line: int, started: float | None = None) -> str:
    now = SystemClock().wall() if started is None else started
    frame = Frame(function="f", file=str(path), line=line)
    return SourceLines(os.getpid(), now).annotate((frame,))[0].code


def test_a_line_is_read_stripped_and_redacted(tmp_path: Path) -> None:
    file = tmp_path / "load.py"
    file.write_text("def f():\n    connect(token='s3cr3t')\n" + "x" * 5000 + "\n")
    assert code(file, 1) == "def f():"
    assert code(file, 2) == "connect(token='***')"
    assert len(code(file, 3)) <= 200


def test_what_cannot_be_read_is_left_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "short.py").write_text("one\n")
    for file in (tmp_path / "missing.py", tmp_path / "fifo.py", tmp_path, "<string>", "relative.py"):
        assert code(file, 1) == ""
    assert code(tmp_path / "short.py", 0) == code(tmp_path / "short.py", 2) == code(tmp_path / "short.py", -1) == ""


def test_a_file_changed_since_the_start_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text("new text\n")
    assert code(tmp_path / "load.py", 1, started=SystemClock().wall() - 3600) == ""


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("x\n" * 2_000_000)
    assert code(tmp_path / "big.py", 1) == ""


def test_only_the_innermost_frames_get_their_text(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text("text\n")
    stack = tuple(Frame(function="f", file=str(tmp_path / "load.py"), line=1) for _ in range(FRAMES_MAX + 5))
    shown = SourceLines(os.getpid(), SystemClock().wall()).annotate(stack)
    assert [bool(frame.code) for frame in shown] == [True] * FRAMES_MAX + [False] * 5
