"""`firstlight isolate` on real engines with real causes."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from firstlight.testing.hub import hub
from firstlight.testing.launcher import free_port
from firstlight.testing.marked import marked, title_of
from firstlight.testing.running import Up

pytestmark = [pytest.mark.engines, pytest.mark.timeout(2400)]

WAIT_S = 2300.0
POLL_S = 0.02
SHIM = "#include <unistd.h>\n__attribute__((constructor)) static void hook(void) { for (;;) pause(); }\n"
ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(autouse=True)
def _no_chatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the test's own surroundings would be searched as well."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


class Isolating:
    """Runs one isolation to its end: with `words` of its own before the command, itself run by `before`, while
    `meanwhile` is done to it again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._up: Up | None = None
        self.meanwhile: Callable[[Up], None] = lambda up: None
        self.words: tuple[str, ...] = ()
        self.before: tuple[str, ...] = ()

    def __call__(self, *argv: str, **environ: str) -> dict[str, Any]:
        words = [*self.words, "--", *argv]
        self._up = Up(words, self._folder / "home", environ, self.before, subcommand="isolate")
        ends = time.monotonic() + WAIT_S
        while (code := self._up.process.poll()) is None:
            assert time.monotonic() < ends, self._up.said()
            self.meanwhile(self._up)
            time.sleep(POLL_S)
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


@contextmanager
def held_by_us(path: Path) -> Iterator[None]:
    path.parent.mkdir()
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_folder_whose_lock_another_process_holds_is_found_in_vllm(
    isolating: Isolating, vllm_python: str, demo_model: Path, tmp_path: Path
) -> None:
    """vLLM 0.32 takes a lock for each model of the hub, `get_lock` in its weight_utils.py, in the folder for
    temporary files."""
    lock = tmp_path / "shared" / f"{hashlib.sha256(b'someone-demo').hexdigest()}someone-demo.lock"
    server = [vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", "someone/demo"]
    with held_by_us(lock), hub("someone/demo", demo_model, tmp_path / "hub") as there:
        answer = isolating(
            f"TMPDIR={lock.parent}",
            *server,
            *("--port", str(free_port())),
            *("--max-model-len", "2048", "--enforce-eager"),
            **{**ON_CPU, "HF_HUB_OFFLINE": "0"},
            **there,
        )
    assert answer["code"] == 0
    assert answer["culprits"] == [f"TMPDIR={lock.parent}"]
    assert answer["minimal"]
    assert str(lock) in json.dumps(answer["facts"])
    assert answer["launches"] <= 4, "the finding points to it"


CACHE_ALONE = """
[[options]]
name = "port"
names = ["--port"]
fixed = "it is where it listens"
[[variables]]
variables = ["VLLM_CACHE_ROOT"]
suspects = ["stale_jit_lock"]
"""


def two_layers_of(model: Path, folder: Path) -> Path:
    """The model without its weights, and small enough to be compiled in seconds."""
    folder.mkdir()
    for path in model.glob("*.json"):
        shutil.copy(path, folder)
    config = json.loads((model / "config.json").read_text()) | {"num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def compile_lock_of(cache: Path) -> tuple[Path, int] | None:
    """A lock of torch's inductor in this cache, and who holds it now."""
    table = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line)
    holders = {words[5].rpartition(":")[2]: int(words[4]) for words in table if words[1] == "FLOCK"}
    for path in cache.glob("torch_compile_cache/torch_aot_compile/*/inductor_cache/locks/*.lock"):
        if holder := holders.get(str(path.stat().st_ino)):
            return path, holder
    return None


@contextmanager
def stopped_while_it_compiles(argv: list[str], cache: Path, environ: dict[str, str]) -> Iterator[tuple[Path, int]]:
    """Another server with the same cache, whose worker is stopped while it holds a lock there."""
    server = subprocess.Popen(
        argv,
        env={**os.environ, **environ, "VLLM_CACHE_ROOT": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ends = time.monotonic() + 300
    try:
        while True:
            assert time.monotonic() < ends, "it never compiled"
            if held := compile_lock_of(cache):
                os.kill(held[1], signal.SIGSTOP)
                if compile_lock_of(cache) == held:
                    break
                os.kill(held[1], signal.SIGCONT)
            time.sleep(POLL_S)
        yield held
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)


def test_a_compile_cache_whose_lock_another_process_holds_is_found_in_vllm(
    isolating: Isolating, vllm_python: str, demo_model: Path, tmp_path: Path
) -> None:
    """torch's inductor takes a lock for each file that it compiles, and for each instruction set that it tries, in
    `inductor_cache/locks` below VLLM_CACHE_ROOT (torch 2.13: `check_build` in cpu_vec_isa.py, at every start)."""
    cache, model = tmp_path / "cache", two_layers_of(demo_model, tmp_path / "model")
    server = [vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    options = ["--max-model-len", "2048", "--load-format", "dummy"]
    table = tmp_path / "options.toml"
    table.write_text(CACHE_ALONE)
    environ = {**ON_CPU, "VLLM_CPU_KVCACHE_SPACE": "1", "HOME": str(tmp_path)}
    first = [*server, "--port", str(free_port()), *options]
    with stopped_while_it_compiles(first, cache, environ) as (lock, holder):
        isolating.words = ("--options", str(table))
        answer = isolating(f"VLLM_CACHE_ROOT={cache}", *server, *("--port", str(free_port())), *options, **environ)
    assert answer["code"] == 0
    assert len(answer["culprits"]) == 1
    assert answer["minimal"]
    assert [change["name"] for change in answer["cure"]] == ["env:VLLM_CACHE_ROOT"]
    fact = answer["facts"][0]
    assert (fact["id"], fact["verdict"]) == ("stale_jit_lock", "established")
    assert holder in fact["pids"]
    assert str(lock)[:100] in fact["title"]
    assert answer["launches"] <= 3


SHM_BYTES = 4 << 20
SMALL_SHM = (
    f"mount -t tmpfs -o size={SHM_BYTES} tmpfs /dev/shm"
    f' && head -c {SHM_BYTES - (256 << 10)} /dev/zero > /dev/shm/left_by_another && exec "$0" "$@"'
)


def test_a_full_shm_that_ends_vllm_is_not_an_option(
    isolating: Isolating, vllm_python: str, demo_model: Path, tmp_path: Path
) -> None:
    """vLLM 0.32 looks how much is free before it takes it, and ends with an error; with one rank as with two."""
    model = two_layers_of(demo_model, tmp_path / "model")
    server = [vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    options = ["--max-model-len", "2048", "--load-format", "dummy", "--enforce-eager", "-tp", "3"]
    isolating.before = ("unshare", "-m", "sh", "-c", SMALL_SHM)
    answer = isolating(*server, *("--port", str(free_port())), *options, **ON_CPU)
    assert answer["code"] == 1
    assert answer["end"] == "not an option"
    assert answer["launches"] == 2
    assert "shm_too_small" in [fact["id"] for fact in answer["facts"]]
    assert "fails the same" in answer["headline"]
    assert "/dev/shm" in answer["headline"]


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


def stop_its_worker(isolating: Up) -> None:
    """An outsider who stops the rank of whatever is launched."""
    for pid in marked(isolating.mark):
        if "firstlight.embedded.worker" in title_of(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)


def test_a_rank_that_an_outsider_stops_is_not_an_option(isolating: Isolating, demo_model: Path) -> None:
    serve = [sys.executable, "-m", "firstlight", "serve", str(demo_model), "--port", str(free_port())]
    isolating.meanwhile = stop_its_worker
    answer = isolating(*serve, "--max-num-seqs", "32", "--max-model-len", "512")
    assert answer["code"] == 1
    assert answer["end"] == "not an option"
    assert answer["launches"] == 2
    assert answer["facts"][0]["id"] == "stopped_process"


def test_two_that_stall_only_together_are_found_in_the_embedded_engine(
    isolating: Isolating, demo_model: Path
) -> None:
    """A fault that strikes rank 1, and the ranks without which there is no rank 1."""
    serve = [sys.executable, "-m", "firstlight", "serve", str(demo_model), "--port", str(free_port())]
    fault = "FIRSTLIGHT_FAULT=stop:rank=1:phase=warmup"
    answer = isolating("env", fault, *serve, "--tp", "3", "--wait-deadline", "300", "--max-num-seqs", "8")
    assert answer["code"] == 0
    assert set(answer["culprits"]) == {"--tp 3", fault}
    assert answer["minimal"]
    assert len(answer["cure"]) == 1
    assert answer["launches"] <= 16
