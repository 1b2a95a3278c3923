"""Places that a server uses: file systems, room, the bytes of a model; a file system that does not answer."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.host import Place
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host import places as module
from firstlight.evidence.host.places import is_slow, places, root_of, weight_bytes


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., dict[str, Place]]:
    """The places of a server whose home is `tmp_path`, by purpose."""

    def at(model: str = "", seconds: float = 5.0, **environ: str) -> dict[str, Place]:
        found = places(
            {"HOME": str(tmp_path), **environ}, model, root_of(0), Deadline(SystemClock(), seconds, "places")
        )
        return {one.purpose: one for one in reversed(found)}

    return at


def test_every_place_has_a_file_system_with_room(look, tmp_path: Path) -> None:
    found = look()
    assert {"home", "tmp", "extensions", "compile_cache", "engine_cache", "hub_cache"} <= set(found)
    for one in found.values():
        assert one.filesystem
        assert isinstance(one.free_bytes, int)
        assert isinstance(one.total_bytes, int)
        assert 0 <= one.free_bytes <= one.total_bytes
    assert found["home"].path == str(tmp_path)
    assert found["shm"].filesystem == "tmpfs"


def test_a_place_that_is_not_there_is_told_of_by_the_folder_it_would_be_made_in(look, tmp_path: Path) -> None:
    one = look(TORCH_EXTENSIONS_DIR=f"{tmp_path}/not/yet")["extensions"]
    assert one.path == f"{tmp_path}/not/yet"
    assert one.total_bytes == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert one.writable


def test_a_link_is_followed_to_the_file_system_that_it_means(look, tmp_path: Path) -> None:
    (tmp_path / ".triton").mkdir()
    (tmp_path / ".triton" / "cache").symlink_to("/dev/shm")
    assert look()["compile_cache"].filesystem == "tmpfs"


def test_a_model_in_a_folder_needs_what_an_engine_would_read_of_it(look, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name, size in (("a.safetensors", 100), ("b.safetensors", 50), ("pytorch_model.bin", 900), ("x.json", 7)):
        (tmp_path / "m" / name).write_bytes(b"x" * size)
    weights = look(model=f"{tmp_path}/m")["weights"]
    assert weights.path == f"{tmp_path}/m"
    assert weights.needed_bytes == 150


def test_a_model_of_the_hub_is_looked_for_in_its_cache(look, tmp_path: Path) -> None:
    folder = tmp_path / ".cache/huggingface/hub/models--maker--model"
    revision = "0123456789abcdef0123456789abcdef01234567"
    (folder / "snapshots" / revision).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    (folder / "blob").write_bytes(b"x" * 64)
    (folder / "snapshots" / revision / "model.safetensors").symlink_to(folder / "blob")
    weights = look(model="maker/model")["weights"]
    assert weights.path == str(folder)
    assert weights.needed_bytes == 64
    assert look(model="maker/absent")["weights"].needed_bytes == 0


def test_a_single_file_and_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x" * 30)
    assert weight_bytes(tmp_path / "m.gguf") == 30
    assert weight_bytes(tmp_path) == 30
    assert weight_bytes(tmp_path / "absent") == 0


def test_a_hub_folder_that_names_a_strange_revision_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("../../../etc")
    assert weight_bytes(tmp_path) == 0


def test_a_file_system_that_does_not_answer_is_a_gap_with_its_type(
    look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never, real = threading.Event(), os.statvfs

    def hanging(path: Path):
        if "dead" in str(path):
            never.wait()
        return real(path)

    (tmp_path / "dead").mkdir()
    monkeypatch.setattr(os, "statvfs", hanging)
    weights = look(model=f"{tmp_path}/dead", seconds=0.5)["weights"]
    never.set()
    assert isinstance(weights.free_bytes, Gap)
    assert weights.free_bytes.reason is GapReason.TIMED_OUT
    assert "file system" in weights.free_bytes.detail
    assert weights.filesystem
    assert module.is_slow("nfs4")


@pytest.mark.parametrize(
    ("filesystem", "slow"),
    [
        ("nfs4", True), ("nfs", True), ("lustre", True), ("fuse.s3fs", True), ("fuse", True), ("ceph", True),
        ("cifs", True), ("9p", True), ("beegfs", True), ("gpfs", True), ("ext4", False), ("overlay", False),
        ("tmpfs", False), ("xfs", False), ("nfsd", False), ("", False),
    ],
)  # fmt: skip
def test_network_and_user_space_file_systems_are_slow(filesystem: str, slow: bool) -> None:
    assert is_slow(filesystem) is slow


def test_a_place_that_may_not_be_written_to_is_told(look, tmp_path: Path, as_nobody) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    assert look(TRITON_CACHE_DIR=f"{tmp_path}/closed")["compile_cache"].filesystem
    assert as_nobody(lambda: not look(TRITON_CACHE_DIR=f"{tmp_path}/closed")["compile_cache"].writable)
