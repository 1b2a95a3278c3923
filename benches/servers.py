"""The servers that benches measure: started, waited for, asked over HTTP, watched while another is measured, ended.

Every server has a log in a temporary folder; its end is said when one does not come up.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pairs import free_port
from processes import tree
from prompts import PROMPT, fresh_prompt

VLLM_PYTHON = os.environ.get("FIRSTLIGHT_VLLM_PYTHON", "")
VLLM_OPTIONS = ("--max-model-len", "2048", "--no-enable-prefix-caching")
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "2"}

EMBEDDED_UP_S = 120
VLLM_UP_S = 900
"""Compiling takes it three minutes on two quiet cores."""
END_S = 20
ANSWER_S = 600


class Answer(NamedTuple):
    """One request. `first_s` and `last_s` are when its first and last piece came, on time.perf_counter."""

    first_s: float
    last_s: float
    tokens: int
    text: str

    @property
    def decoded_per_s(self) -> float:
        """Tokens a second after the first one, so without the prompt."""
        return (self.tokens - 1) / (self.last_s - self.first_s)


class Server:
    """A running server with the OpenAI interface."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.name = name
        self.port = port
        self._process = process
        self._log = log

    @property
    def pids(self) -> set[int]:
        return tree(self._process.pid)

    def wait_until_ready(self, deadline_s: float) -> None:
        """Exits with the end of the server's log if it ends, or is not ready in time."""
        give_up = time.monotonic() + deadline_s
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health")[0] == 200:
                    return
            time.sleep(0.2)
        sys.exit(f"{self.name} did not come up:\n" + self._log.read_text(errors="replace")[-3000:])

    def get(self, path: str) -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def ask(self, prompt: str | list[int], tokens: int) -> Answer:
        """Exactly `tokens` tokens after `prompt`, the likeliest ones, as a stream."""
        with self._posted(prompt, tokens, stream=True, stream_options={"include_usage": True}) as response:
            return _read_stream(response)

    def decode_per_s(self, tokens: int) -> float:
        """Tokens a second of one request after its first token, so without the prompt."""
        return self.ask(PROMPT, tokens).decoded_per_s

    def prefill_per_s(self, tokens: int) -> float:
        """Tokens a second of a prompt never seen before, from its sending to the first token of the answer."""
        began = time.perf_counter()
        return tokens / (self.ask(fresh_prompt(tokens), 1).first_s - began)

    def batch_per_s(self, prompts: Sequence[str | list[int]], tokens: int) -> float:
        """Tokens a second of all requests together, from the first one sent to the last one answered.

        The answers come whole: reading many streams would take CPU time that the servers are measured by.
        """

        def whole(prompt: str | list[int]) -> int:
            with self._posted(prompt, tokens) as response:
                return int(json.load(response)["usage"]["completion_tokens"])

        with ThreadPoolExecutor(len(prompts)) as senders:
            began = time.perf_counter()
            counts = list(senders.map(whole, prompts))
            return sum(counts) / (time.perf_counter() - began)

    @contextlib.contextmanager
    def _posted(self, prompt: str | list[int], tokens: int, **fields: Any) -> Iterator[http.client.HTTPResponse]:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **fields}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                sys.exit(f"{self.name} answered {response.status}: {response.read().decode()}")
            yield response

    def end(self) -> None:
        """Ask, then insist, and leave none of its processes."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            print(f"  {self.name} did not end within {END_S} s of being asked, and was killed", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)


def _read_stream(response: http.client.HTTPResponse) -> Answer:
    """Times are taken before a piece is parsed. Pieces without a choice (the usage) are no tokens."""
    first = last = 0.0
    tokens, text = 0, []
    for line in response:
        now = time.perf_counter()
        data = line.removeprefix(b"data: ").strip()
        if not data or data == b"[DONE]":
            continue
        piece = json.loads(data)
        if "error" in piece:
            sys.exit(f"the stream says: {piece['error']}")
        tokens = (piece.get("usage") or {}).get("completion_tokens", tokens)
        if piece["choices"]:
            first, last = first or now, now
            text.append(piece["choices"][0]["text"])
    return Answer(first, last, tokens, "".join(text))


@contextlib.contextmanager
def started(name: str, command: Sequence[str], port: int, up_s: float, **environ: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="firstlight-bench-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environ},
                start_new_session=True,
            )
        server = Server(name, process, port, log)
        try:
            began = time.monotonic()
            server.wait_until_ready(up_s)
            print(f"  {name} was up after {time.monotonic() - began:.1f} s", flush=True)
            yield server
        finally:
            server.end()


def embedded(name: str, model: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    port = free_port()
    command = [sys.executable, "-m", "firstlight.embedded", str(model), "--port", str(port), *options]
    return started(name, command, port, EMBEDDED_UP_S)


def vllm(name: str, model: Path, *options: str, cpus: str = "auto") -> contextlib.AbstractContextManager[Server]:
    """`cpus` is a list like 0-1 on which its threads are bound; by itself it leaves one CPU to its scheduler."""
    port = free_port()
    command = [VLLM_PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    return started(
        name, [*command, *VLLM_OPTIONS, *options], port, VLLM_UP_S, **VLLM_ENVIRONMENT, VLLM_CPU_OMP_THREADS_BIND=cpus
    )


def has_vllm() -> bool:
    """Says so if not."""
    if Path(VLLM_PYTHON).is_file():
        return True
    print("  left out: FIRSTLIGHT_VLLM_PYTHON names no Python; `make test-engines` makes one in .venv-vllm\n")
    return False
