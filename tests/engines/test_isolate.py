"""`firstlight isolate` on real engines with real causes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.testing.launcher import free_port
from firstlight.testing.running import Up

pytestmark = [pytest.mark.engines, pytest.mark.timeout(2400)]

WAIT_S = 2300.0
SHIM = "#include <unistd.h>\n__attribute__((constructor)) static void hook(void) { for (;;) pause(); }\n"
ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(autouse=True)
def _no_chatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the test's own surroundings would be searched as well."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


class Isolating:
    """Runs one isolation to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._up: Up | None = None

    def __call__(self, *argv: str, **environ: str) -> dict[str, Any]:
        self._up = Up(["--", *argv], self._folder / "home", environ, subcommand="isolate")
        code = self._up.process.wait(WAIT_S)
        answer: dict[str, Any] = json.loads(self._up.printed().splitlines()[-1])
        assert answer["type"] == "answer", self._up.said()
        assert self._up.left() == ()
        return answer | {"code": code}

    def close(self) -> None:
        if self._up is not None:
            self._up.kill()


@pytest.fixture
def isolating(tmp_path: Path) -> Iterator[Isolating]:
    one = Isolating(tmp_path)
    yield one
    one.close()


def a_drafter_that_never_arrives(folder: Path, target: Path) -> Path:
    """An EAGLE-3 drafter for `target`, whose weights are a FIFO that nobody writes."""
    folder.mkdir()
    config = json.loads((target / "config.json").read_text())
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config["vocab_size"],
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    os.mkfifo(folder / "model.safetensors")
    return folder


def test_speculation_whose_drafter_never_arrives_is_found_in_vllm(
    isolating: Isolating, vllm_python: str, demo_model: Path, tmp_path: Path
) -> None:
    drafter = a_drafter_that_never_arrives(tmp_path / "drafter", demo_model)
    speculation = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": 2}
    server = [vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(demo_model)]
    options = ["--max-model-len", "2048", "--enforce-eager", "--max-num-seqs", "4"]
    answer = isolating(
        *server,
        *("--port", str(free_port())),
        *options,
        *("--speculative-config", json.dumps(speculation)),
        VLLM_CACHE_ROOT=str(tmp_path / "cache"),
        **ON_CPU,
    )
    assert answer["code"] == 0
    assert [change["name"] for change in answer["cure"]] == ["speculation"]
    assert answer["minimal"]
    assert answer["facts"][0]["id"] == "fifo_without_writer"
    assert answer["launches"] <= 5, "the finding points to it"


def test_a_preloaded_library_that_blocks_is_found_in_the_embedded_engine(
    isolating: Isolating, demo_model: Path, tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler to make the library with")
    (tmp_path / "shim.c").write_text(SHIM)
    library = tmp_path / "libhook.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "shim.c"], check=True)
    serve = [sys.executable, "-m", "firstlight", "serve", str(demo_model), "--port", str(free_port())]
    answer = isolating(f"LD_PRELOAD={library}", *serve, "--max-num-seqs", "32", "--max-model-len", "512")
    assert answer["code"] == 0
    assert [change["name"] for change in answer["cure"]] == ["env:LD_PRELOAD"]
    assert len(answer["culprits"]) == 1
    assert answer["minimal"]
    assert answer["launches"] <= 8
