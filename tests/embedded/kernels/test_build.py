"""Compiling: cached, safe when two do it at once, and never more than a reason when it cannot be done."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.embedded.kernels import build, native

DEADLINE_S = 120.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FIRSTLIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(native.SWITCH, raising=False)
    return tmp_path / "cache" / "firstlight" / "kernels"


def compiler(folder: Path, script: str) -> Path:
    """A program that passes for a compiler."""
    path = folder / "mycc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_two_at_once_and_then_from_the_cache(cache: Path) -> None:
    command = [sys.executable, "-c", "from firstlight.embedded.kernels import build; print(build.library())"]
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=DEADLINE_S)[0].strip() for process in pair]
    assert said[0] == said[1]
    assert [path.name for path in cache.iterdir()] == [Path(said[0]).name]
    before = Path(said[0]).stat().st_mtime_ns
    assert build.library() == Path(said[0])
    assert Path(said[0]).stat().st_mtime_ns == before
    assert isinstance(native.load(), native.Kernels)


def test_it_can_be_turned_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "off")
    assert native.load() == native.Unavailable("FIRSTLIGHT_KERNELS=off")
    assert not cache.exists()


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    assert native.load() == native.Unavailable("there is no C compiler")
    monkeypatch.setenv("CC", "nowhere-cc -O1")
    assert native.load() == native.Unavailable("there is no C compiler (nowhere-cc is not there)")


def test_a_compiler_that_fails(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '[ "$1" = --version ] && echo mycc 1.0 && exit 0; echo "no room on the device" >&2; exit 1'
    monkeypatch.setenv("CC", str(compiler(tmp_path, script)))
    loaded = native.load()
    assert isinstance(loaded, native.Unavailable)
    assert loaded.reason.endswith("mycc failed: no room on the device")
    assert not list(cache.iterdir())


def test_a_compiler_that_hangs(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "COMPILE_DEADLINE_S", 0.5)
    script = '[ "$1" = --version ] && echo mycc 1.0 && exit 0; sleep 60 & wait'
    monkeypatch.setenv("CC", str(compiler(tmp_path, script)))
    loaded = native.load()
    assert isinstance(loaded, native.Unavailable)
    assert loaded.reason == "compiling the kernels took more than 0.5 s"


def test_a_compiler_without_openmp(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is built without it, and keeps to one thread."""
    script = 'for word; do [ "$word" = -fopenmp ] && echo "no libgomp" >&2 && exit 1; done; exec cc "$@" -O0'
    monkeypatch.setenv("CC", str(compiler(tmp_path, script)))
    loaded = native.load()
    assert isinstance(loaded, native.Kernels)
    loaded.threads = 2
    assert loaded.threads == 1


def test_a_damaged_library_is_made_anew(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(compiler(tmp_path, 'exec cc "$@" -O0')))
    told: list[str] = []
    path = build.library(tell=told.append)
    assert len(told) == 1
    assert "compiling the C operations" in told[0]
    assert build.library(tell=told.append) == path
    assert len(told) == 1, "only what takes its time is said"
    whole = path.read_bytes()
    for content in (b"not a library", b"", whole[: len(whole) // 2], whole[:-100], b"\0" * len(whole)):
        path.unlink()  # what is loaded must not change
        path.write_bytes(content)
        assert isinstance(native.load(), native.Kernels)
        assert path.read_bytes() == whole


def test_what_is_no_file_is_replaced(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would ever write into a pipe, so it must not be opened to be read."""
    monkeypatch.setenv("CC", str(compiler(tmp_path, 'exec cc "$@" -O0')))
    path = build.library()
    path.unlink()
    os.mkfifo(path)
    assert isinstance(native.load(), native.Kernels)
    assert build.library() == path
    assert path.is_file()


def test_a_compiler_that_makes_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "true")
    loaded = native.load()
    assert isinstance(loaded, native.Unavailable)
    assert loaded.reason.endswith("true failed: it made no library")
    assert not list(cache.iterdir())


def test_a_compiler_that_cannot_be_understood(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", 'gcc "')
    assert native.load() == native.Unavailable("$CC cannot be understood: No closing quotation")


def test_a_cache_that_cannot_be_written(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert build.cached("some.so") == tmp_path / f"firstlight-kernels-{os.getuid()}" / "some.so"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    with pytest.raises(build.BuildFailed, match="can be written to"):
        build.cached("some.so")


def test_the_name_depends_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {build.name_of(["cc", "1", "-O3"]), build.name_of(["cc", "2", "-O3"]), build.name_of(["cc", "1", "-O2"])}
    monkeypatch.setattr(build, "processor_flags", lambda: "another processor")
    names.add(build.name_of(["cc", "1", "-O3"]))
    assert len(names) == 4
