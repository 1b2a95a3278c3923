"""Mount tables, the file systems of files, and mounts that do not answer."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight.evidence import mounts
from firstlight.evidence.mounts import About, Disks, Mount, filesystem_at, mounts_of, parse_mounts

TABLE = r"""
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
23 22 0:21 / /proc rw - proc proc rw
24 22 0:50 / /mnt/big\040models rw master:3 - nfs4 server:/models rw,hard
25 22 0:51 / /dev/shm rw - tmpfs shm rw
26 24 0:52 / /mnt/big\040models/local rw - ext4 /dev/sda rw
nonsense
27 22
"""


def test_a_mount_table_is_read_and_nonsense_left_out() -> None:
    found = parse_mounts(TABLE)
    assert list(found) == [22, 23, 24, 25, 26]
    assert found[24] == Mount("/mnt/big models", "nfs4")


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/mnt/big models/a.safetensors", "nfs4"),
        ("/mnt/big models", "nfs4"),
        ("/mnt/big models/local/x", "ext4"),
        ("/mnt/big modelsX", "overlay"),
        ("/home/me", "overlay"),
        ("/", "overlay"),
        ("relative", ""),
    ],
)
def test_a_path_lies_on_the_longest_mount_over_it(path: str, filesystem: str) -> None:
    assert filesystem_at(path, parse_mounts(TABLE)) == filesystem


def test_this_machine_has_a_root_and_a_proc() -> None:
    assert filesystem_at("/proc/1", mounts_of("self")) == "proc"
    assert mounts_of(1 << 30) == {}


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """A file system that answers nobody; what was asked of it."""
    asked: list[Path] = []
    freed = threading.Event()

    def hang(path: Path) -> About:
        asked.append(path)
        freed.wait(20)
        return About("other", 0)

    monkeypatch.setattr(mounts, "kind_and_size", hang)
    monkeypatch.setattr(mounts, "PATIENCE_S", 0.05)
    yield asked
    freed.set()


def test_a_mount_that_does_not_answer_is_asked_once(hung: list[Path]) -> None:
    disks = Disks()
    paths = [Path(f"/mnt/nfs/{number}") for number in range(3)]
    found = [disks.about(path, "nfs4", "/mnt/nfs") for path in paths]
    assert found == [About("file", 0, answered=False)] * 3
    assert hung == paths[:1]


def test_kind_and_size_of_what_answers(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(77))
    os.mkfifo(tmp_path / "fifo")
    disks = Disks()
    assert disks.about(tmp_path / "weights", "ext4", "/") == About("file", 77)
    assert disks.about(tmp_path / "weights", "nfs4", "/mnt") == About("file", 77)
    assert disks.about(tmp_path / "fifo", "tmpfs", "/").kind == "fifo"
    assert disks.about(Path("/dev/null"), "devtmpfs", "/dev").kind == "device"
    assert disks.about(tmp_path / "missing", "ext4", "/") == About("other", 0)


def test_an_open_file_tells_its_file_system_size_and_position(programs: Programs, eyes: Eyes) -> None:
    path = programs.folder / "model.safetensors"
    path.write_bytes(bytes(8192))
    process = programs.python(
        "import sys, time\nfile = open(sys.argv[1], 'rb', buffering=0)\nfile.read(100)\n"
        "print('ready', flush=True)\ntime.sleep(600)",
        str(path),
    )
    file = next(one for one in eyes.look(process).processes[0].files if one.target == str(path))
    assert (file.kind, file.size, file.position, file.detail) == ("file", 8192, 100, "")
    assert file.filesystem == filesystem_at(str(path), mounts_of("self")) != ""
