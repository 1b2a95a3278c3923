"""The bundle itself: processes, log and machine put together as two looks."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Folder, Look
from firstlight.core.process import Exit
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.testing.bundles.machine import NOW
from firstlight.testing.bundles.machine import host as healthy_host
from firstlight.testing.bundles.processes import Made, at_first_look

BOOTED_S = 50_000.0
LOOK_FIELDS = frozenset(
    {
        "listeners",
        "locks",
        "semaphores",
        "gpus",
        "leftovers",
        "pressure",
        "collectives",
        "communicators",
        "kernel_log",
    }
)


def ended(
    who: Made, *, code: int | None = None, signal: int | None = None, oom: bool = False, ago_s: float = 40
) -> Exit:
    """The end of a process; leave it out of the bundle's processes."""
    of = who.look.process
    unseen = Gap(what="exit status", reason=GapReason.NOT_SUPPORTED, detail="only its parent is told", pid=of.id.pid)
    return Exit(
        id=of.id,
        name=of.name,
        at=NOW - ago_s,
        code=unseen if code is None and signal is None else code,
        signal=signal,
        oom=oom,
        role=of.role,
        rank=of.rank,
        label=of.label,
    )


def line(
    message: str,
    *,
    source: str = "",
    level: str = "INFO",
    ago_s: float = 120,
    number: int = -1,
    pid: int = 0,
    stream: str = "stderr",
) -> LogLine:
    """One line of the log; `number` is the rank that says it. Level ERROR is an error, WARNING a warning."""
    return LogLine(
        stream=stream, at=NOW - ago_s, text=message, message=message, source=source, pid=pid, rank=number, level=level
    )


def tails(log: Iterable[str | LogLine]) -> tuple[LogTail, ...]:
    """Lines as the tails that a bundle holds, one for each source; a plain text is an ordinary line without one."""
    by_source: dict[str, list[LogLine]] = {}
    for one in log:
        said = line(one) if isinstance(one, str) else one
        by_source.setdefault(said.source, []).append(said)
    return tuple(
        LogTail(
            source=source,
            lines=tuple(said),
            first_error=next((one for one in said if one.level == "ERROR"), None),
            warnings=tuple(one for one in said if one.level == "WARNING"),
        )
        for source, said in by_source.items()
    )


def bundle(
    *processes: Made | Iterable[Made],
    phase: Phase = Phase.MODEL_INIT,
    host: Host | None = None,
    log: Iterable[str | LogLine] = (),
    folders: Iterable[tuple[Folder, int]] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str | Sequence[str]] | None = None,
    apart_s: float = 10,
    quiet_s: float = 300,
    engine: str = "vllm",
    version: str = "0.20.0",
    **more: object,
) -> Bundle:
    """A bundle of two looks `apart_s` seconds apart.

    Of the rest, what belongs to a look (`gpus`, `locks`, `collectives` …) is put into the last one and, so far as it
    does not move, the first; everything else (`exits`, `ranks`, `nodes` …) is a field of `core.bundle.Bundle`.
    """
    made = [one for given in processes for one in ([given] if isinstance(given, Made) else given)]
    of_look = {name: value for name, value in more.items() if name in LOOK_FIELDS}
    of_look = {name: tuple(value) if isinstance(value, list) else value for name, value in of_look.items()}
    rest = {name: value for name, value in more.items() if name not in LOOK_FIELDS}
    grown = list(folders)
    first = Look(
        at=NOW - apart_s,
        monotonic=BOOTED_S - apart_s,
        took_s=0.4,
        processes=tuple(at_first_look(one, apart_s) for one in made),
        folders=tuple(replace(one, bytes=one.bytes - grew) for one, grew in grown),
        **of_look,  # type: ignore[arg-type]
    )
    last = replace(
        first,
        at=NOW,
        monotonic=BOOTED_S,
        processes=tuple(one.look for one in made),
        folders=tuple(one for one, _ in grown),
    )
    told: dict[str, object] = {
        "made_by": "firstlight",
        "run": "r1",
        "command": (engine,),
        "started": NOW - quiet_s - 100,
        "timeline": (PhaseSpan(phase=phase, source="", began=NOW - quiet_s - 1),),
        "motion": Motion.STALLED,
        **rest,
    }
    return Bundle(
        at=NOW,
        engine=engine,
        engine_version=version,
        phase=phase,
        quiet_since=NOW - quiet_s,
        host=host or healthy_host(),
        looks=(first, last),
        logs=tails(log),
        environment=tuple((environment or {}).items()),
        options=tuple((name, _words(given)) for name, given in (options or {}).items()),
        **told,  # type: ignore[arg-type]
    )


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
