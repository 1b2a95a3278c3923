"""Which folders a server fills, and what lies in them, however many and however slow they are."""

import os
import threading
from pathlib import Path

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.evidence import folders as module
from firstlight.evidence.folders import folders, used_by


def deadline(seconds: float = 5.0) -> Deadline:
    return Deadline(SystemClock(), seconds, "folders")


def paths(found: tuple[tuple[str, Path], ...], purpose: str) -> list[str]:
    return [str(path) for one, path in found if one == purpose]


def test_caches_lie_where_their_owners_put_them() -> None:
    found = used_by({"HOME": "/home/u", "USER": "u"}, (), ())
    assert paths(found, "extensions") == ["/home/u/.cache/torch_extensions"]
    assert paths(found, "hub_cache")[0] == "/home/u/.cache/huggingface/hub"
    assert {"/home/u/.triton/cache", "/tmp/torchinductor_u", "/home/u/.nv/ComputeCache"} <= set(
        paths(found, "compile_cache")
    )
    assert "/home/u/.cache/vllm" in paths(found, "engine_cache")
    assert paths(found, "download") == paths(found, "hub_cache")


def test_variables_move_them() -> None:
    environ = {
        "HOME": "/home/u",
        "XDG_CACHE_HOME": "/big",
        "HF_HOME": "/models",
        "TRITON_CACHE_DIR": "/fast/triton",
        "TORCH_EXTENSIONS_DIR": "/fast/ext",
        "FLASHINFER_WORKSPACE_BASE": "/fast",
        "VLLM_CACHE_ROOT": "relative/is/nobody's/guess",
        "TMPDIR": "/scratch",
        "LOGNAME": "a b/c",
    }
    found = used_by(environ, (), ())
    assert paths(found, "extensions") == ["/fast/ext"]
    assert paths(found, "hub_cache")[0] == "/models/hub"
    assert "/fast/.cache/flashinfer" in paths(found, "compile_cache")
    assert "/fast/triton" in paths(found, "compile_cache")
    assert "/scratch/torchinductor_a_b_c" in paths(found, "compile_cache")
    assert "/big/vllm" in paths(found, "engine_cache")


def test_the_command_line_names_some_more() -> None:
    words = ["vllm", "serve", "m", "--download-dir", "/d", '--compilation-config={"cache_dir": "/c"}', "/w"]
    found = used_by({"HOME": "/h"}, words, ())
    assert "/d" in paths(found, "hub_cache")
    assert "/d" in paths(found, "download")
    assert "/c" in paths(found, "compile_cache")
    assert "/w/torch_extensions" in paths(found, "extensions")
    assert used_by({"HOME": "/h"}, ["--download-dir"], ()) == used_by({"HOME": "/h"}, (), ())


def test_open_files_tell_where_somebody_works() -> None:
    files = [
        "/x/torch_extensions/py312/a/lock",
        "/y/triton_cache/AB/k.so",
        "/z/blobs/e.incomplete",
        "rel/x.incomplete",
    ]
    found = used_by({"HOME": "/h"}, (), files)
    assert "/x/torch_extensions" in paths(found, "extensions")
    assert "/y/triton_cache" in paths(found, "compile_cache")
    assert "/z/blobs" in paths(found, "download")


def test_what_lies_in_a_folder_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "one").write_bytes(b"x" * 10)
    (tmp_path / "a" / "b" / "two").write_bytes(b"y" * 20)
    os.utime(tmp_path / "a" / "b" / "two", (2e9, 2e9))
    (tmp_path / "loop").symlink_to(tmp_path)
    (found,) = folders([("compile_cache", tmp_path), ("extensions", tmp_path / "absent")], deadline())
    assert (found.purpose, found.path, found.files, found.bytes) == ("compile_cache", str(tmp_path), 2, 30)
    assert found.newest == 2e9
    assert found.whole


def test_of_a_download_only_what_is_unfinished_counts(tmp_path: Path) -> None:
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "done").write_bytes(b"x" * 1000)
    assert folders([("download", tmp_path)], deadline()) == ()
    (blobs / "part.incomplete").write_bytes(b"x" * 7)
    os.utime(blobs / "part.incomplete", (1e9, 1e9))
    (found,) = folders([("download", tmp_path)], deadline())
    assert (found.files, found.bytes, found.newest) == (1, 7, 1e9)


def test_a_huge_folder_is_counted_in_part_and_what_changed_last_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 50)
    for number in range(20):
        folder = tmp_path / f"{number:02}"
        folder.mkdir()
        for name in range(10):
            (folder / str(name)).write_bytes(b"x")
        os.utime(folder, (1e9 + number, 1e9 + number))
    os.utime(tmp_path / "13" / "5", (3e9, 3e9))
    os.utime(tmp_path / "13", (3e9, 3e9))
    (found,) = folders([("compile_cache", tmp_path)], deadline())
    assert not found.whole
    assert found.files < 200
    assert found.newest == 3e9


def test_a_folder_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network file system: the first call on it never comes back."""
    never, real = threading.Event(), os.scandir

    def hanging(path: str):
        if "dead" in str(path):
            never.wait()
        return real(path)

    (tmp_path / "dead").mkdir()
    (tmp_path / "file").write_bytes(b"1234")
    monkeypatch.setattr(os, "scandir", hanging)
    found = folders([("compile_cache", tmp_path / "dead"), ("extensions", tmp_path)], deadline(0.5))
    never.set()
    assert [(one.purpose, one.whole) for one in found] == [("compile_cache", False), ("extensions", False)]
    assert found[1].bytes == 4


def test_a_file_where_a_folder_should_be_and_a_folder_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (found,) = folders([("compile_cache", tmp_path / "file")], deadline())
    assert found.files == 0


def test_folders_of_a_container_are_found_below_its_root_and_told_as_it_knows_them(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file").write_bytes(b"123")
    (found,) = folders([("compile_cache", Path("/cache"))], deadline(), root=tmp_path)
    assert (found.path, found.bytes) == ("/cache", 3)
