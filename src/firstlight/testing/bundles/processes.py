"""The processes of a server in a bundle made by hand, and what each did between two looks."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from firstlight.core.facts import ProcessFacts
from firstlight.core.gap import Gap
from firstlight.core.look import Futex, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import Role
from firstlight.testing.bundles.facts import GB, ordinary_facts
from firstlight.testing.bundles.stacks import frame, thread

FRONT, ENGINE, FIRST_RANK, FIRST_COMPILER, FIRST_HELPER = 4000, 4050, 4100, 4900, 4020
CPU_S, FAULTS = 5000.0, 1_000_000


class Moves(NamedTuple):
    """What a process did between the two looks. `stack` is where it stood at the first, if elsewhere."""

    read_bytes: int = 0
    written_bytes: int = 0
    memory_bytes: int = 0
    faults: int = 0
    locked_bytes: int = 0
    stack: tuple[str, ...] | None = None


IDLE = Moves()


class Made(NamedTuple):
    """A process as it stood at the last look, the cores that it kept busy, and what else it did since the first."""

    look: ProcessLook
    cores: float
    moves: Moves


def process(
    pid: int,
    name: str,
    *,
    stack: Sequence[str] | Gap = (),
    syscall: str | Gap = "futex(0x7f3a10, 0x80, 0x0)",
    native: Sequence[str] | Gap = (),
    kernel: Sequence[str] | Gap = (),
    state: str = "S",
    cpu: float = 0.0,
    moves: Moves = IDLE,
    wchan: str | Gap = "",
    fds: tuple[int, ...] = (),
    path: str = "",
    futex: Futex | None = None,
    threads: Iterable[ThreadLook] = (),
    files: Iterable[OpenFile] = (),
    facts: ProcessFacts | None = None,
    gaps: Iterable[Gap] = (),
    role: Role = Role.OTHER,
    rank: int = -1,
    label: str = "",
    ppid: int = FRONT,
    cmdline: Sequence[str] = (),
    tracer: int = 0,
    started: int = 0,
    memory: int = 4 * GB,
    shared: int = GB // 4,
) -> Made:
    """A process whose main thread stands in `stack`; `threads` are its others. `cpu` is in cores."""
    main = thread(
        stack,
        tid=pid,
        syscall=syscall,
        native=native,
        kernel=kernel,
        state=state,
        wchan=wchan,
        fds=fds,
        path=path,
        cpu_s=CPU_S,
        futex=futex,
    )
    others = [one if one.tid else replace(one, tid=pid + 10_000 + at) for at, one in enumerate(threads)]
    identity = ProcessId(pid=pid, started=started or pid)
    sample = ProcessSample(
        id=identity,
        state=state,
        cpu_s=CPU_S,
        threads=1 + len(others),
        major_faults=FAULTS,
        memory_bytes=memory,
        shared_bytes=shared,
        read_bytes=20 * GB,
        write_bytes=GB // 64,
        disk_read_bytes=20 * GB,
    )
    who = Process(
        id=identity, ppid=ppid, name=name, cmdline=tuple(cmdline) or (name,), role=role, rank=rank, label=label
    )
    look = ProcessLook(
        process=who,
        sample=sample,
        tracer=tracer,
        threads=(main, *others),
        files=tuple(files),
        gaps=tuple(gaps),
        facts=facts if facts is not None else ordinary_facts(),
    )
    return Made(look, cpu, moves)


def front(**more: object) -> Made:
    """The process that will answer HTTP, waiting for its engine."""
    told: dict[str, object] = {
        "stack": [
            "select (selectors.py:468)",
            "wait (multiprocessing/connection.py:948)",
            "wait_for_engine_startup (vllm/v1/engine/utils.py:900)",
        ],
        "syscall": "poll(0x7f3a10, 0x2, 0x2710)",
        "role": Role.FRONT,
        "label": "APIServer",
        "ppid": 1,
        "memory": GB,
        "facts": ordinary_facts(libraries=()),
        **more,
    }
    return process(FRONT, "vllm", **told)  # type: ignore[arg-type]


def engine(**more: object) -> Made:
    """The engine core, waiting for its workers."""
    told: dict[str, object] = {
        "stack": [
            "select (selectors.py:415)",
            "wait (multiprocessing/connection.py:948)",
            "wait_for_ready (vllm/v1/executor/multiproc_executor.py:640)",
        ],
        "syscall": "poll(0x7f3a10, 0x2, 0xffffffff)",
        "role": Role.ENGINE,
        "label": "EngineCore",
        "memory": GB,
        "facts": ordinary_facts(libraries=()),
        **more,
    }
    return process(ENGINE, "VLLM::EngineCore", **told)  # type: ignore[arg-type]


def rank(number: int, **more: object) -> Made:
    """Worker `number`, a child of the engine core."""
    told: dict[str, object] = {
        "name": f"VLLM::Worker_TP{number}",
        "role": Role.WORKER,
        "rank": number,
        "label": f"Worker_TP{number}",
        "ppid": ENGINE,
        **more,
    }
    return process(FIRST_RANK + number, **told)  # type: ignore[arg-type]


def ranks(count: int, **more: object) -> tuple[Made, ...]:
    """Workers 0 to `count` - 1, all standing in the same place."""
    return tuple(rank(number, **more) for number in range(count))


def compiler(name: str = "cicc", number: int = 0, *, cmdline: Sequence[str] = (), **more: object) -> Made:
    """A compiler at work, a child of rank 0 unless `ppid` says otherwise; `cpu=0` for one that is stuck."""
    told: dict[str, object] = {
        "state": "R",
        "cpu": 1.0,
        "role": Role.COMPILER,
        "ppid": FIRST_RANK,
        "memory": GB // 2,
        "cmdline": cmdline,
        "facts": ordinary_facts(libraries=()),
        **more,
    }
    return process(FIRST_COMPILER + number, name, **told)  # type: ignore[arg-type]


def helper(number: int = 0, name: str = "resource_tracker", **more: object) -> Made:
    """A helper that idles all its life."""
    told: dict[str, object] = {
        "stack": ["main (multiprocessing/resource_tracker.py:240)"],
        "syscall": "read(0x5, 0x7f3a10, 0x2000)",
        "role": Role.HELPER,
        "memory": GB // 64,
        "facts": ordinary_facts(libraries=()),
        **more,
    }
    return process(FIRST_HELPER + number, name, **told)  # type: ignore[arg-type]


def at_first_look(made: Made, seconds: float) -> ProcessLook:
    """The process as it stood `seconds` before the last look."""
    look, cores, moves = made
    sample = replace(
        look.sample,
        cpu_s=look.sample.cpu_s - cores * seconds,
        major_faults=look.sample.major_faults - moves.faults,
        memory_bytes=look.sample.memory_bytes - moves.memory_bytes,
        read_bytes=_less(look.sample.read_bytes, moves.read_bytes),
        write_bytes=_less(look.sample.write_bytes, moves.written_bytes),
        disk_read_bytes=_less(look.sample.disk_read_bytes, moves.read_bytes),
    )
    main = replace(look.threads[0], cpu_s=look.threads[0].cpu_s - cores * seconds)
    if moves.stack is not None:
        main = replace(main, stack=tuple(map(frame, moves.stack)))
    facts = replace(look.facts, locked_bytes=_less(look.facts.locked_bytes, moves.locked_bytes))
    return replace(look, sample=sample, threads=(main, *look.threads[1:]), facts=facts)


def _less(value: int | Gap, by: int) -> int | Gap:
    return value if isinstance(value, Gap) else value - by
