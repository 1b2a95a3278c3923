"""Stamps that everyone can read, whatever happens to the one who writes them."""

import mmap
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.embedded.worker.board import NOTHING, RECORD, SLOT, SLOTS, Board, OwnStamp, create

READ_OUTSIDE = """
import mmap, struct, sys, zlib
from pathlib import Path
for link in Path(f"/proc/{sys.argv[1]}/fd").iterdir():
    if str(link.readlink()) == "/memfd:firstlight-stamps (deleted)":
        with link.open("rb") as file:
            board = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
magic, ranks = struct.unpack_from("=8sq", board, 0)
whole = []
for slot in (512 * 2 + 64, 512 * 2 + 64 + 192):
    crc, body = struct.unpack_from("=I156s", board, slot)
    if zlib.crc32(body) == crc:
        whole.append(struct.unpack("=Iqqqqqq24s80s", body))
pid, serial, at_ns, steps, number, collective, size, phase, what = max(whole, key=lambda fields: fields[1])
print(magic, ranks, pid, steps, number, collective, size, phase.rstrip(b"\\0"), what.rstrip(b"\\0"))
"""


@pytest.fixture
def board() -> Board:
    return Board(create(3))


def test_a_rank_that_has_not_begun_is_not_seen(board: Board) -> None:
    assert board.ranks == 3
    assert board.read(2) == NOTHING


def test_a_stamp_says_who_does_what(board: Board) -> None:
    stamp = OwnStamp(board, 1)
    stamp.enter("weights")
    assert board.read(1).place == "phase weights"
    stamp.begin(17, "decode pass 17")
    assert board.read(1).place == "decode pass 17"
    stamp.meet("layer 3 mlp", 2304)
    seen = board.read(1)
    assert seen.place == "layer 3 mlp of pass 17"
    assert (seen.pid, seen.phase, seen.steps, seen.collective, seen.size) == (os.getpid(), "weights", 2, 1, 2304)
    assert board.read(0) == board.read(2) == NOTHING


def test_work_makes_steps_and_a_sign_of_life_does_not(board: Board) -> None:
    stamp = OwnStamp(board, 0)
    stamp.beat()
    before = board.read(0)
    stamp.write()
    after = board.read(0)
    assert (after.steps, after.serial) == (before.steps, before.serial + 1)
    assert after.at_ns >= before.at_ns


def test_long_and_foreign_names_are_cut(board: Board) -> None:
    stamp = OwnStamp(board, 0)
    stamp.begin(1, "é" * 100)
    stamp.enter("p" * 100)
    assert board.read(0).phase == "p" * 24
    stamp.begin(1, "x" + "é" * 100)
    assert board.read(0).what == "x" + "é" * 39 + "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("spoilt", range(0, SLOT - 32, 13))
def test_a_writer_killed_in_the_middle_leaves_the_stamp_before(board: Board, spoilt: int) -> None:
    stamp = OwnStamp(board, 1)
    stamp.begin(1, "before")
    stamp.begin(2, "after")
    latest = RECORD * 2 + SLOTS + SLOT * (board.read(1).serial & 1)
    board.memory[latest + spoilt] ^= 0xFF
    assert board.read(1).what == "before"


def test_it_can_be_read_from_outside_as_documented() -> None:
    fd = create(3)
    stamp = OwnStamp(Board(fd), 1)
    stamp.enter("serving")
    stamp.begin(17, "")
    stamp.meet("layer 3 mlp", 2304)
    command = [sys.executable, "-c", READ_OUTSIDE, str(os.getpid())]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        os.close(fd)
    assert out == f"b'FLSTAMP1' 3 {os.getpid()} 2 17 1 2304 b'serving' b'layer 3 mlp'\n"


def test_readers_never_see_half_a_stamp(board: Board) -> None:
    """A child writes as fast as it can; each of its stamps has the same number in three places."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        stamp = OwnStamp(board, 1)
        while os.getppid() == parent:
            for number in range(1, 1000):
                stamp.begin(number, str(number) * 20)
    try:
        seen = set()
        while len(seen) < 300:
            read = board.read(1)
            assert not read.what or read.what == str(read.number) * 20
            seen.add(read.serial)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_only_one_process_is_the_first_to_speak(board: Board) -> None:
    assert board.claimed == -1
    children = []
    for rank in range(3):
        if (pid := os.fork()) == 0:
            os._exit(board.claim(rank))
        children.append(pid)
    claims = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert sorted(claims) == [0, 0, 1]
    assert board.claimed == claims.index(1)
    assert board.claim(board.claimed), "who spoke may speak again"


def test_who_may_open_no_more_files_still_speaks(board: Board) -> None:
    """The limit may be the very thing that went wrong."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        first, second = board.claim(2), board.claim(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert (first, second) == (True, False)


def test_something_else_is_no_board(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(mmap.PAGESIZE) + struct.pack("=q", 3))
    with path.open("r+b") as file, pytest.raises(ValueError, match="holds no board of stamps"):
        Board(file.fileno())
