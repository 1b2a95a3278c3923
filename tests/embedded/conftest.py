"""Tiny Llama folders with random weights, and the engine started on them as a real server."""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from firstlight.embedded.model.checkpoint import Expected, expected_tensors
from firstlight.embedded.model.config import read_config

DEADLINE_S = 60.0

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
CHAT_TEMPLATE = (
    "{% if messages[0].role == 'forbidden' %}{{ raise_exception('no such role') }}{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% endif %}"
)


def write_model(folder: Path, **changes: Any) -> Path:
    """A model folder with random float32 weights, a byte-level tokenizer and a chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY | changes))
    random = np.random.default_rng(7)
    expected = expected_tensors(read_config(folder))
    save_file(
        {name: random_tensor(random, name, form) for name, form in expected.items()}, folder / "model.safetensors"
    )
    write_tokenizer(folder)
    return folder


def random_tensor(random: np.random.Generator, name: str, form: Expected) -> np.ndarray:
    """Numbers of a trained model's size. Packed weights are any bits; their scales make them as large."""
    if form.dtypes == ("I32",):
        return random.integers(-(2**31), 2**31, form.shape, dtype=np.int32)
    if form.dtypes == ("I8",):
        return random.integers(-127, 128, form.shape, dtype=np.int8)
    if name.endswith("weight_shape"):
        return np.zeros(form.shape, np.int64)
    kind = np.float16 if form.dtypes == ("F16",) else np.float32
    if name.endswith("weight_minimum"):
        return -random.uniform(0.3, 0.6, form.shape).astype(kind)
    if name.endswith("weight_scale"):
        largest = 127 if form.dtypes == ("F16",) and "layers" not in name else 8
        return (random.uniform(0.3, 0.6, form.shape) / largest).astype(kind)
    return random.normal(0.0, 0.3, form.shape).astype(kind)


def write_tokenizer(folder: Path) -> None:
    """One token a byte; four special tokens behind them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|user|>", "<|answer|>", "<|system|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI error object; every refusal must have all four fields."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return dict(error)


class Server:
    """The engine as a process, its log, and a client."""

    def __init__(
        self, *arguments: str | Path, key: str = "", program: Sequence[str] = ("-m", "firstlight.embedded")
    ) -> None:
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        command = [sys.executable, *program, *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"FIRSTLIGHT_API_KEY": key},
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()
        self.port = 0
        self.worker_pid = 0

    def _pump(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, part: str) -> str:
        """The first line from here on that has `part` in it; fails at the end of the log or after a minute."""
        until = time.monotonic() + DEADLINE_S
        while (line := self._lines.get(timeout=max(0.0, until - time.monotonic()))) is not None:
            self.log.append(line)
            if line.startswith("[firstlight worker") and not self.worker_pid:
                self.worker_pid = int(line.partition("pid=")[2].partition("]")[0])
            if part in line:
                return line
        raise AssertionError(f"no line with {part!r} in:\n" + "\n".join(self.log))

    def listening(self) -> "Server":
        self.port = int(self.line("listening host=").rpartition("port=")[2])
        return self

    def ready(self) -> "Server":
        self.listening()
        self.line("ready url=")
        return self

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)

    def ask(
        self, path: str, body: Any = None, *, raw: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """GET, or POST where there is a body."""
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(
                "GET" if content is None else "POST", path, content, self._headers if headers is None else headers
            )
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A streamed answer of which the first line has come; the caller closes the connection."""
        connection = self.connect()
        connection.request("POST", path, json.dumps(body | {"stream": True}), self._headers)
        response = connection.getresponse()
        assert response.status == 200
        assert response.readline().startswith(b"data: {")
        return connection, response

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first /health document for which `holds`."""
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            document: dict[str, Any] = self.ask("/health").json
            if holds(document):
                return document
            time.sleep(0.02)
        raise AssertionError(f"/health never said: {what}; last {document}")

    def end(self) -> int:
        """Ask the server to stop, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(DEADLINE_S)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Path]:
    return write_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Start servers; none of them survives the test."""
    servers: list[Server] = []

    def started(*arguments: str | Path) -> Server:
        servers.append(Server("--port", "0", *arguments))
        return servers[-1]

    yield started
    for server in servers:
        if server.worker_pid and alive(server.worker_pid):
            os.kill(server.worker_pid, signal.SIGCONT)
        server.process.kill()
        server.exit_code()


@pytest.fixture(scope="session")
def server_class() -> type[Server]:
    return Server


@pytest.fixture(scope="session")
def is_alive() -> Callable[[int], bool]:
    return alive


@pytest.fixture(params=["kernels", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the C operations and without them."""
    name = str(request.param)
    if name == "torch":
        monkeypatch.setenv("FIRSTLIGHT_KERNELS", "off")
    return name
