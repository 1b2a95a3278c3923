"""Files that commands write: whole, or the old one as it was."""

import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.cli import rendered
from firstlight.core.record import to_json
from firstlight.errors import UsageError
from firstlight.testing.bundles import bundle, rank


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    there = tmp_path / "seen.json"
    there.write_text("old")
    there.chmod(0o640)
    rendered.write_file(there, b"new", "bundle")
    assert there.read_bytes() == b"new"
    assert there.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [there]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    rendered.write_file(tmp_path / "link", b"new", "bundle")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "seen.json"
    there.write_text("old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="could not be written"):
        rendered.write_file(there, b"new", "bundle")
    assert there.read_text() == "old"
    assert list(tmp_path.iterdir()) == [there]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    rendered.write_file(pipe, b"new", "bundle")
    reader.join(timeout=10)
    assert read == [b"new"]


def test_a_full_disk_behind_stdout_is_no_bug(
    cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "seen.json").write_bytes(to_json(bundle(rank(0))))
    weighed = cli("why", str(tmp_path / "seen.json"), shell="> /dev/full")
    assert weighed.stderr == "firstlight: the output could not be written: No space left on device\n"
