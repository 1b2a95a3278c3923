"""Bundles made by hand, for the pure part: processes, threads and stacks with only what matters spelled out."""

from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Frame, Listener, Lock, Look, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Exit, Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import GapReason, Phase, Role

REFUSED = Gap(what="Python stacks", reason=GapReason.NO_PERMISSION, detail="give it SYS_PTRACE", pid=100)
HOST = Host(name="h", kernel="6", cpus=8, memory_bytes=1, shm_bytes=1, shm_used_bytes=0, may_ptrace="any process")
NOW = 1000.0
UNSEEN = Gap(what="exit status", reason=GapReason.NOT_SUPPORTED, detail="only its parent is told")


def frame(text: str) -> Frame:
    """ "function file:line code" as a frame."""
    function, place, *code = text.split(" ", 2)
    file, _, line = place.rpartition(":")
    return Frame(function=function, file=file, line=int(line), code=code[0] if code else "")


def stack(*frames: str) -> tuple[Frame, ...]:
    """Frames, innermost first."""
    return tuple(map(frame, frames))


def thread(
    tid: int = 100,
    frames: tuple[Frame, ...] | Gap = (),
    *,
    call: str | Gap = "clock_nanosleep(0x0)",
    state: str = "S",
    cpu_s: float = 0.0,
    name: str = "MainThread",
    **more: object,
) -> ThreadLook:
    return ThreadLook(
        tid=tid,
        name=name,
        state=state,
        cpu_s=cpu_s,
        wchan="",
        syscall=call,
        stack=frames,
        **more,  # type: ignore[arg-type]
    )


def process(
    pid: int = 100,
    *threads: ThreadLook,
    state: str = "S",
    ppid: int = 1,
    name: str = "server",
    role: Role = Role.OTHER,
    rank: int = -1,
    label: str = "",
    files: tuple[OpenFile, ...] = (),
    gaps: tuple[Gap, ...] = (),
    tracer: int = 0,
    cpu_s: float = 0.0,
    read: int | Gap = 0,
    written: int | Gap = 0,
    memory: int = 1 << 20,
    faults: int = 0,
    started: int = 1,
) -> ProcessLook:
    identity = ProcessId(pid=pid, started=started)
    return ProcessLook(
        process=Process(id=identity, ppid=ppid, name=name, cmdline=(name,), role=role, rank=rank, label=label),
        sample=ProcessSample(
            id=identity,
            state=state,
            cpu_s=cpu_s,
            threads=max(1, len(threads)),
            major_faults=faults,
            memory_bytes=memory,
            shared_bytes=0,
            read_bytes=read,
            write_bytes=written,
            disk_read_bytes=0,
        ),
        tracer=tracer,
        threads=threads,
        files=files,
        gaps=gaps,
    )


def look(
    *processes: ProcessLook,
    at: float = NOW,
    locks: tuple[Lock, ...] | Gap = (),
    listeners: tuple[Listener, ...] | Gap = (),
    gap: Gap | None = None,
) -> Look:
    gaps = (gap,) if gap else ()
    return Look(at=at, monotonic=at, took_s=0.1, processes=processes, locks=locks, listeners=listeners, gaps=gaps)


def bundle(
    *looks: Look,
    quiet_s: float = 24.0,
    phase: Phase = Phase.WEIGHTS,
    exits: tuple[Exit, ...] = (),
    logs: tuple[LogTail, ...] = (),
    timeline: tuple[PhaseSpan, ...] = (),
    gaps: tuple[Gap, ...] = (),
) -> Bundle:
    return Bundle(
        made_by="test",
        run="r",
        at=NOW,
        engine="vllm",
        engine_version="",
        command=("vllm",),
        phase=phase,
        quiet_since=NOW - quiet_s,
        host=HOST,
        looks=looks,
        exits=exits,
        logs=logs,
        timeline=timeline,
        gaps=gaps,
    )


def twice(*processes: ProcessLook, **more: object) -> Bundle:
    """A bundle in which nothing moved between two looks."""
    return bundle(look(*processes, at=NOW - 5), look(*processes), **more)  # type: ignore[arg-type]


def ended(pid: int, name: str = "server", *, at: float = NOW - 30, started: int = 1, **more: object) -> Exit:
    return Exit(id=ProcessId(pid=pid, started=started), name=name, at=at, **more)  # type: ignore[arg-type]


def line(message: str, *, source: str = "", at: float = NOW - 30, pid: int = 0) -> LogLine:
    return LogLine(stream="stderr", at=at, text=message, message=message, source=source, pid=pid)
