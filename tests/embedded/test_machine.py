"""Where the engine keeps what it makes."""

from pathlib import Path

import pytest

from firstlight.embedded import machine
from firstlight.embedded.demo.demo_model import ensure_demo_model
from firstlight.embedded.errors import EngineError
from firstlight.embedded.kernels import build


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("FIRSTLIGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")
    return monkeypatch


def test_the_cache_is_the_one_named_most_closely(nowhere: pytest.MonkeyPatch) -> None:
    assert machine.cache_folder() == Path("/h/.cache/firstlight")
    nowhere.setenv("XDG_CACHE_HOME", "not/absolute")
    assert machine.cache_folder() == Path("/h/.cache/firstlight")
    nowhere.setenv("XDG_CACHE_HOME", "/x")
    assert machine.cache_folder() == Path("/x/firstlight")
    nowhere.setenv("FIRSTLIGHT_CACHE", "/own")
    assert machine.cache_folder() == Path("/own")


def test_models_and_compiled_operations_lie_in_the_same_cache(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv("FIRSTLIGHT_CACHE", str(tmp_path))
    assert build.cached("some.so") == tmp_path / "kernels" / "some.so"
    (tmp_path / "models").write_text("a file, not a folder")
    with pytest.raises(EngineError, match=f"cannot be kept in {tmp_path}/models/"):
        ensure_demo_model()


def test_a_user_whom_the_system_does_not_know_has_a_cache_too(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.delenv("HOME")
    nowhere.setattr("os.getuid", lambda: 2**31 - 7)  # pwd(3) has no such user
    assert machine.cache_folder() == Path("/.cache/firstlight")
