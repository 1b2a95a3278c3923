"""Machines of the ninth lot: how such a start is put together.

Logs are written as the servers print them and read as firstlight reads them.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace
from tests.corpus.surroundings import SCHEDULER_MAIN, scheduler

from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.log import RawLine
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.engines import profile_for, recognise, typed_options
from firstlight.evidence.logs import tails
from firstlight.testing.bundles import FRONT, GB, PACKAGES, Made, bundle, ended, gpus, helper, ordinary_facts, process

SGLANG = "python -m sglang.launch_server --model-path /models/llm"
DIES = {"motion": Motion.MOVING, "quiet_s": 4}
TRACEBACK = "Scheduler hit an exception: Traceback (most recent call last):"
SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
RUN_SCHEDULER = f'  File "{PACKAGES}sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process'


def started(
    command: str,
    *processes: Made | Iterable[Made],
    log: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    **more: object,
) -> Bundle:
    """A server that was started by this command, with the lines that it has printed until now."""
    variables = dict(environment or {})
    words = recognise(shlex.split(command), variables)
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
            **{name: tuple(value) if isinstance(value, list) else value for name, value in more.items()},
        },
    )
    return said(made, command, log)


def said(made: Bundle, command: str, log: Iterable[str]) -> Bundle:
    """The same with this log, its last line as old as the silence is long."""
    known, lines = profile_for(recognise(shlex.split(command), {})), list(log)
    raw = [
        RawLine(stream="stderr", at=made.quiet_since - 2.0 * (len(lines) - 1 - at), text=text)
        for at, text in enumerate(lines)
    ]
    return replace(made, logs=tails(map(known.read_line, raw), known.errors().see))


def at(source: str, message: str) -> str:
    """A line of SGLang's log."""
    return f"[2026-11-28 09:14:07{f' {source}' if source else ''}] {message}"


def begun(ranks: int = 1) -> list[str]:
    """What every start of SGLang says first."""
    of = [f"TP{number}" if ranks > 1 else "" for number in range(ranks)]
    return [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        at("", "Using default HuggingFace chat template with detected content format: string"),
        *(at(who, "Attention backend not specified. Use flashinfer backend by default.") for who in of[:1]),
        *(at(who, "Init torch distributed begin.") for who in of),
    ]


def loaded(ranks: int = 1) -> list[str]:
    """What it says until the weights are there."""
    of = [f"TP{number}" if ranks > 1 else "" for number in range(ranks)]
    return [
        *begun(ranks),
        *(at(who, "Init torch distributed ends. mem usage=1.02 GB") for who in of),
        *(at(who, "Load weight begin. avail mem=77.92 GB") for who in of),
        "Loading safetensors checkpoint shards: 100% Completed | 8/8 [00:11<00:00,  1.44s/it]",
        *(at(who, "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=46.11 GB") for who in of),
    ]


def launcher(**more: object) -> Made:
    """The process that will answer HTTP, polling the pipes of its schedulers."""
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
        "facts": ordinary_facts(libraries=()),
        "cmdline": shlex.split(SGLANG),
        **more,
    }
    return process(FRONT, "python -m sglang.launch_server", **told)  # type: ignore[arg-type]


def fallen(*ranks: Made, code: int | None = None) -> tuple[Exit, ...]:
    """The end of the whole server: the main process kills what it started and itself, or raises if `code` is told."""
    main = ended(launcher(), code=code, ago_s=2) if code is not None else ended(launcher(), signal=9, ago_s=2)
    return (*(ended(one, ago_s=3) for one in ranks), main)


def plain(count: int) -> tuple[Made, ...]:
    """Schedulers of which only the identity matters."""
    return tuple(scheduler(number, (SCHEDULER_MAIN,)) for number in range(count))


def dead(command: str, ranks: int, phase: Phase, log: Sequence[str], **more: object) -> Bundle:
    """An SGLang server that fell a moment ago; of it nothing is left but its helper."""
    told = {"exits": fallen(*plain(ranks)), "gpus": gpus(ranks), **DIES, **more}
    return started(command, helper(ppid=1), phase=phase, log=log, **told)  # type: ignore[arg-type]
