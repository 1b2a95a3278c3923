"""Lock files that are in no table of the kernel."""

import os
from pathlib import Path

from tests.unit.evidence.conftest import Programs

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence.lock_files import bare_lock_files, build_folders, extension_folders, lock_folders
from firstlight.evidence.mounts import filesystem_at, mounts_of

CLOCK = SystemClock()


def test_extensions_are_built_where_the_environment_says() -> None:
    moved = {"TORCH_EXTENSIONS_DIR": "/x", "AITER_JIT_DIR": "/y", "HOME": "/home/me"}
    assert extension_folders(moved) == [Path("/x"), Path("/y")]
    assert extension_folders({"XDG_CACHE_HOME": "/c", "HOME": "/h"})[0] == Path("/c/torch_extensions")
    assert extension_folders({"HOME": "/home/me"}) == [
        Path("/home/me/.cache/torch_extensions"),
        Path("/home/me/.aiter"),
    ]


def test_the_hubs_locks_are_looked_at_where_the_hub_is() -> None:
    assert Path("/models/.locks") in lock_folders({"HF_HUB_CACHE": "/models", "HOME": "/home/me"}, ())


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
    assert (found.kind, found.path, found.holder, found.builders) == ("file", str(folder / "lock"), 0, ())
    assert found.filesystem == filesystem_at(str(tmp_path), mounts_of("self"))
    assert 299 < found.age_s < 360


def test_whoever_works_in_the_folder_is_taken_for_the_builder(tmp_path: Path, programs: Programs) -> None:
    (tmp_path / "lock").touch()
    text = "import os, sys, time\nos.chdir(sys.argv[1])\nprint('ready', flush=True)\ntime.sleep(600)"
    builder = programs.python(text, str(tmp_path))
    (found,) = bare_lock_files([tmp_path], CLOCK, within())
    assert found.holder == builder.id.pid
    assert found.holder_name.startswith("python")


def test_a_file_that_is_there_to_be_locked_again_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "tvm-ffi" / "kernel").mkdir(parents=True)
    (tmp_path / "tvm-ffi" / "kernel" / "lock").touch()
    assert bare_lock_files([tmp_path], CLOCK, within()) == ()


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


def test_compilers_at_work_for_the_folder_are_told_by_place_or_by_command_line(
    tmp_path: Path, programs: Programs
) -> None:
    build, elsewhere = tmp_path / "fused_rotary", tmp_path / "fused_rotary_2"
    build.mkdir()
    elsewhere.mkdir()
    (build / "lock").touch()
    (build / "main.ii").touch()
    (elsewhere / "main.ii").touch()
    compiler = tmp_path / "cicc"
    compiler.write_bytes(Path("/usr/bin/tail").read_bytes())
    compiler.chmod(0o755)
    beside = programs.command(["sh", "-c", f"echo ready; cd {build} && exec {compiler} -f main.ii"])
    naming = programs.command(["sh", "-c", f"echo ready; exec {compiler} -f {build}/main.ii"])
    others = programs.command(["sh", "-c", f"echo ready; cd {elsewhere} && exec {compiler} -f main.ii"])
    until_named("cicc", beside.id.pid, naming.id.pid, others.id.pid)
    (found,) = bare_lock_files([tmp_path], CLOCK, within())
    assert set(found.builders) == {beside.id.pid, naming.id.pid}
    assert found.holder == beside.id.pid


def until_named(name: str, *pids: int) -> None:
    ends = CLOCK.monotonic() + 20
    while any(Path(f"/proc/{pid}/comm").read_text() != f"{name}\n" for pid in pids):
        assert CLOCK.monotonic() < ends
        CLOCK.sleep(0.01)


def test_a_soft_lock_names_its_owner_and_an_empty_file_is_none(tmp_path: Path, programs: Programs) -> None:
    owner = programs.command(["sleep", "600"], ready=False)
    (tmp_path / "mine.lock").write_text(f"{owner.id.pid}\n{os.uname().nodename}\n")
    (tmp_path / "theirs.lock").write_text(f"{owner.id.pid}\nanother-host\n")
    (tmp_path / "empty.lock").touch()
    (tmp_path / "poetry.lock").write_text("# something else\n")
    found = {Path(one.path).name: one.holder for one in bare_lock_files([tmp_path], CLOCK, within())}
    assert found == {"mine.lock": owner.id.pid, "theirs.lock": 0}
