"""The table of kernel locks, and lock files that are in no table."""

import os
from pathlib import Path

from tests.unit.evidence.conftest import Programs

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.locks import KernelLock, bare_lock_files, build_folders, extension_folders, parse_locks

CLOCK = SystemClock()

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


def test_extensions_are_built_where_the_environment_says() -> None:
    assert extension_folders({"TORCH_EXTENSIONS_DIR": "/x", "HOME": "/home/me"}) == [Path("/x")]
    assert extension_folders({"XDG_CACHE_HOME": "/c"}) == [Path("/c/torch_extensions")]
    assert extension_folders({"HOME": "/home/me"}) == [Path("/home/me/.cache/torch_extensions")]


def test_folders_of_the_command_line_are_looked_at_too(programs: Programs) -> None:
    text = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    process = programs.python(text, f"--folder={programs.folder}")
    assert programs.folder / "torch_extensions" in build_folders([process.id.pid])


def within(seconds: float = 20) -> Deadline:
    return Deadline(CLOCK, seconds, "lock files")


def test_a_lock_file_with_nobody_beside_it_has_no_holder(tmp_path: Path) -> None:
    folder = tmp_path / "py311_cpu" / "fused_rotary"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "other").touch()
    os.utime(folder / "lock", (0, CLOCK.wall() - 300))
    (found,) = bare_lock_files([tmp_path], CLOCK, within())
    assert (found.kind, found.path, found.holder) == ("file", str(folder / "lock"), 0)
    assert 299 < found.age_s < 360


def test_whoever_works_in_the_folder_is_taken_for_the_builder(tmp_path: Path, programs: Programs) -> None:
    (tmp_path / "lock").touch()
    text = "import os, sys, time\nos.chdir(sys.argv[1])\nprint('ready', flush=True)\ntime.sleep(600)"
    builder = programs.python(text, str(tmp_path))
    (found,) = bare_lock_files([tmp_path], CLOCK, within())
    assert found.holder == builder.id.pid
    assert found.holder_name.startswith("python")


def test_a_lock_file_too_deep_or_a_folder_that_is_missing_is_not_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c" / "d" / "e" / "f"
    deep.mkdir(parents=True)
    (deep / "lock").touch()
    assert bare_lock_files([tmp_path, tmp_path / "missing"], CLOCK, within()) == ()


def test_a_huge_folder_is_not_read_to_its_end(tmp_path: Path) -> None:
    for number in range(60):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        for file in range(100):
            (folder / f"{file}").touch()
    (tmp_path / "zzz").mkdir()
    (tmp_path / "zzz" / "lock").touch()
    assert len(bare_lock_files([tmp_path], CLOCK, within())) <= 1
