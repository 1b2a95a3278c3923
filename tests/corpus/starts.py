"""How a start is put together: the command as a user gave it, and the log as the readers keep it.

Logs are written as the servers print them and read as firstlight reads them.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace
from tests.corpus.surroundings import idle_threads

from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.log import RawLine
from firstlight.core.look import OpenFile
from firstlight.core.vocabulary import GapReason, Role
from firstlight.engines import profile_for, recognise, typed_options
from firstlight.evidence.logs import tails
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    Made,
    bundle,
    engine,
    front,
    helper,
    ordinary_facts,
    process,
)

BARE = ordinary_facts(libraries=())
NO_NATIVE = Gap(what="native stacks", reason=GapReason.NO_PERMISSION, detail="give it SYS_PTRACE")
NO_CALL = Gap(what="system call", reason=GapReason.NO_PERMISSION, detail="give it SYS_PTRACE")
UNSEEN = {"stack": NO_PTRACE, "native": NO_NATIVE, "syscall": NO_CALL}
VERSIONS = {"vllm": "0.20.0", "sglang": "0.5.16"}
OUTSIDE = "none: it blocks outside of any system call"
FOR_A_PAGE = {
    "state": "D",
    "wchan": "folio_wait_bit_common",
    "syscall": OUTSIDE,
    "kernel": ("folio_wait_bit_common", "filemap_fault", "__do_fault", "do_fault", "handle_mm_fault"),
}
RATED = {
    "NVIDIA L4": (16.0, 72.0),
    "NVIDIA A10": (20.0, 150.0),
    "NVIDIA A30": (29.0, 165.0),
    "NVIDIA RTX A6000": (22.0, 300.0),
    "NVIDIA GeForce RTX 3090": (21.0, 350.0),
    "NVIDIA GeForce RTX 4090": (19.0, 450.0),
    "NVIDIA GeForce RTX 2080 Ti": (14.0, 250.0),
    "NVIDIA A100-SXM4-80GB": (62.0, 400.0),
    "NVIDIA A100 80GB PCIe": (48.0, 300.0),
    "NVIDIA H100 NVL": (64.0, 400.0),
    "NVIDIA H20": (112.0, 500.0),
    "NVIDIA B200": (141.0, 1000.0),
    "NVIDIA GB300": (190.0, 1400.0),
    "Tesla V100-PCIE-16GB": (26.0, 250.0),
    "NVIDIA L40S": (36.0, 350.0),
    "NVIDIA GB10": (9.0, 140.0),
    "NVIDIA GeForce RTX 5090": (24.0, 575.0),
    "NVIDIA A40": (24.0, 300.0),
    "NVIDIA A100-SXM4-40GB": (54.0, 400.0),
    "NVIDIA H200": (78.0, 700.0),
    "Tesla V100-PCIE-32GB": (25.0, 250.0),
    "Tesla V100-SXM2-32GB": (42.0, 300.0),
}
"""What such a card draws when idle, and at most."""
WORKER_MAIN = "worker_main (vllm/v1/executor/multiproc_executor.py:720)"
CORE_MAIN = (
    "__init__ (vllm/v1/engine/core.py:110)",
    "__init__ (vllm/v1/engine/core.py:650)",
    "run_engine_core (vllm/v1/engine/core.py:900)",
)
SGLANG = "python -m sglang.launch_server --model-path /models/llm"
SCHEDULER_MAIN = "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)"


def rated(card: Gpu) -> Gpu:
    """The card with the power that its kind draws, where nobody said otherwise."""
    idle, most = RATED.get(card.name, (card.power_w, card.power_limit_w))
    return replace(card, power_limit_w=most, power_w=idle if card.power_w in {28.0, 115.0} else card.power_w)


def started(
    command: str,
    *processes: Made | Iterable[Made],
    log: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    **more: object,
) -> Bundle:
    """A server that was started by this command, with the lines that it has printed until now."""
    variables = dict(environment or {})
    words, log = recognise(shlex.split(command), variables), list(log)
    named = re.search(r"version v?(\d[\w.]*)", "\n".join(log))
    version = named[1] if named and words.engine == "vllm" else VERSIONS.get(words.engine, "")
    if isinstance(cards := more.get("gpus"), tuple):
        more["gpus"] = tuple(map(rated, cards))
    made = bundle(
        *processes,
        engine=words.engine,
        environment=dict(redact.environ({**variables, **dict(words.env)})),
        **{  # type: ignore[arg-type]
            "command": redact.command(words.argv),
            "options": dict(typed_options(words)),
            "ranks": words.ranks,
            "port": words.port,
            "nodes": words.nodes,
            "node": words.node,
            "version": version,
            **{name: tuple(value) if isinstance(value, list) else value for name, value in more.items()},
        },
    )
    return said(made, command, log)


def said(made: Bundle, command: str, log: Iterable[str]) -> Bundle:
    """The same with this log, its last line as old as the silence is long."""
    known, lines = profile_for(recognise(shlex.split(command), {})), list(log)
    raw = [
        RawLine(stream="stderr", at=made.quiet_since - 3.0 * (len(lines) - 1 - at), text=text)
        for at, text in enumerate(lines)
    ]
    return replace(made, logs=tails(map(known.read_line, raw), known.errors().see))


def v(who: str, message: str, where: str = "core.py:84", level: str = "INFO", pid: int = 0) -> str:
    """A line of vLLM's log as V1 prints it."""
    number = int("".join(filter(str.isdigit, who.partition("_")[2][:3])) or 0)
    known = {"APIServer": 4000, "EngineCore": 4050}.get(who.partition("_")[0], 4100 + number)
    return f"({who} pid={pid or known}) {level} 11-28 09:14:07 [{where}] {message}"


def core_name(version: str) -> str:
    """What the engine core is called in the log when there is but one: until 0.18 it had a number."""
    return "EngineCore" if tuple(map(int, version.split(".")[:2])) >= (0, 19) else "EngineCore_DP0"


def begun(name: str = "/models/llm", version: str = "0.20.0") -> list[str]:
    """What every start of vLLM says first."""
    return [
        v("APIServer", f"vLLM API server version {version}", "api_server.py:1839"),
        v("APIServer", f"non-default args: {{'model_tag': '{name}', 'model': '{name}'}}", "utils.py:233"),
        v(core_name(version), f"Initializing a V1 LLM engine (v{version}) with config: model='{name}'", "core.py:77"),
    ]


def broadcasts(who: str = "EngineCore") -> list[str]:
    """What the engine core says once a minute while its workers do not come back."""
    text = (
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes "
        "are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
    )
    return [v(who, text, "shm_broadcast.py:681")] * 3


def core(stack: Sequence[str] | Gap, **more: object) -> Made:
    """An engine core that runs the model itself, as it does with one GPU."""
    return engine(stack=stack, **{"threads": idle_threads(), "memory": 6 * GB, "facts": None, **more})


def base() -> tuple[Made, ...]:
    """What surrounds the workers of a vLLM server."""
    return (front(), engine(), helper())


def at(source: str, message: str) -> str:
    """A line of SGLang's log."""
    return f"[2026-11-28 09:14:07{f' {source}' if source else ''}] {message}"


def opened(ranks: int = 1) -> list[str]:
    """What every start of SGLang says first."""
    of = [f"TP{number}" if ranks > 1 else "" for number in range(ranks)]
    return [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        *(at(who, "Attention backend not specified. Use flashinfer backend by default.") for who in of[:1]),
        *(at(who, "Init torch distributed begin.") for who in of),
    ]


def loaded(ranks: int = 1) -> list[str]:
    """What it says until the memory pool is there."""
    of = [f"TP{number}" if ranks > 1 else "" for number in range(ranks)]
    return [
        *opened(ranks),
        *(at(who, "Init torch distributed ends. elapsed=4.31 s, mem usage=1.02 GB") for who in of),
        *(at(who, "Load weight begin. avail mem=77.92 GB") for who in of),
        "Loading safetensors checkpoint shards: 100% Completed | 8/8 [00:11<00:00,  1.44s/it]",
        *(at(who, "Load weight end. elapsed=13.2 s, type=Qwen3ForCausalLM, avail mem=46.11 GB") for who in of),
        *(at(who, "KV Cache is allocated. #tokens: 360072, K size: 11.78 GB, V size: 11.78 GB") for who in of),
        *(at(who, "Memory pool end. avail mem=12.41 GB") for who in of),
    ]


def serves(ranks: int = 1) -> list[str]:
    """What it says once it serves."""
    first = "TP0" if ranks > 1 else ""
    return [
        *loaded(ranks),
        at(first, "Capture cuda graph end. Time elapsed: 21.4 s. mem usage=1.94 GB."),
        at("", "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
        at("", "The server is fired up and ready to roll!"),
    ]


def launcher(**more: object) -> Made:
    """SGLang's main process, polling the pipes of its schedulers."""
    told: dict[str, object] = {
        "stack": (
            "_poll (multiprocessing/connection.py:440)",
            "poll (multiprocessing/connection.py:257)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1277)",
            "_launch_subprocesses (sglang/srt/entrypoints/engine.py:796)",
            "launch_server (sglang/srt/entrypoints/http_server.py:1720)",
        ),
        "syscall": "poll(0x7f3a10, 0x1, 0x1388)",
        "role": Role.FRONT,
        "ppid": 1,
        "memory": GB,
        "facts": BARE,
        "cmdline": shlex.split(SGLANG),
        **more,
    }
    return process(FRONT, "python -m sglang.launch_server", **told)  # type: ignore[arg-type]


def listens() -> Made:
    """The same once it serves: the event loop waits for requests."""
    loop = ("run_forever (asyncio/base_events.py:608)", "run (uvicorn/server.py:66)")
    return launcher(stack=loop, syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)")


def detokenizer() -> Made:
    return process(
        4030, "sglang::detokenizer", role=Role.HELPER, syscall="poll(0x7f3e00, 0x1, 0xffffffff)", facts=BARE,
        stack=("recv (zmq/sugar/socket.py:1120)", "event_loop (sglang/srt/managers/detokenizer_manager.py:110)"),
    )  # fmt: skip


def mapped(path: str, filesystem: str, size: int = 5 * GB) -> OpenFile:
    """A weight file that a thread waits for a page of."""
    return OpenFile(fd=-2, kind="file", target=path, access="r", size=size, filesystem=filesystem)


def raylet() -> Made:
    return process(
        4061, "raylet", native=("epoll_wait (libc.so.6)",), syscall="epoll_wait(0x9, 0x7f20, 0x80, 0xffffffff)",
        facts=BARE, cpu=0.03, ppid=1,
    )  # fmt: skip
