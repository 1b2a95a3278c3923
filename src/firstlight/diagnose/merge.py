"""Bundles of several machines, or of one at several times, as one. Pure.

In the merged bundle pids are moved up by machine, as `core.hosts` says, and `Bundle.hosts` tells the machines' names.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.gap import Gap
from firstlight.core.gpu import GpuProcess
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import (
    Frame,
    Futex,
    Leftover,
    Listener,
    Lock,
    Look,
    NativeFrame,
    OpenFile,
    ProcessLook,
    Semaphore,
    ThreadLook,
)
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.diagnose.one_host import as_one, of_one_machine
from firstlight.errors import BundleError

NODES_MAX = 500
"""More would take pids beyond the 31 bits that a system call's arguments hold."""
CLOCKS_APART_S = 600.0
"""What the wall clocks of two machines of one server may differ by."""
_PIDS: dict[type, tuple[str, ...]] = {
    Bundle: ("watchers",),
    Futex: ("owner",),
    Gap: ("pid",),
    GpuProcess: ("pid",),
    Leftover: ("pid",),
    Listener: ("pid",),
    Lock: ("holder", "waiters", "builders"),
    LogLine: ("pid",),
    OpenFile: ("peers",),
    Process: ("ppid",),
    ProcessId: ("pid",),
    ProcessLook: ("tracer",),
    Semaphore: ("waiting", "mapped_by"),
    ThreadLook: ("tid",),
}
"""Every field that holds pids or thread ids."""
_WITHOUT_PIDS = (Frame, NativeFrame, str, int, float)
NAMES_CHILD = re.compile(r"(?P<call>wait4\(|waitid\(0x1, )0x(?P<pid>[0-9a-f]+)")
_MOTIONS = (Motion.MOVING, Motion.SLOW, Motion.QUIET, Motion.STALLED)
_PHASES = tuple(Phase)
_T = TypeVar("_T")
_R = TypeVar("_R", bound=Record)


def merge(bundles: Iterable[Bundle]) -> Bundle:
    """One bundle of several, by machine and rank. The facts of the machine itself are those of the first.

    Raises:
        BundleError: there is none, or they are of different servers.
    """
    given = list(bundles)
    if not given:
        raise BundleError("there is no bundle to merge")
    nodes: dict[tuple[str, int], list[Bundle]] = {}
    for one in sorted(given, key=lambda one: (one.node, one.at)):
        nodes.setdefault((one.host.name, one.node), []).append(one)
    at_last = [of_one_machine(of_one) for of_one in nodes.values()]
    for other in at_last[1:]:
        _same_server(at_last[0], other)
    return at_last[0] if len(at_last) == 1 else _several(at_last)


def _same_server(one: Bundle, other: Bundle) -> None:
    """Refuse bundles that cannot be of one server."""
    names = f"{one.host.name} and {other.host.name}"
    way_out = "Give the bundles of one run, one from each machine."
    if one.engine != other.engine or one.nodes != other.nodes:
        raise BundleError(
            f"the bundles of {names} are of different servers: {one.engine} on {one.nodes} nodes, {other.engine} on "
            f"{other.nodes}",
            way_out,
        )
    if one.nodes > 1 and one.node == other.node:
        raise BundleError(
            f"the bundles of {names} are of different runs: each says that it is node {one.node}", way_out
        )
    began = [min([bundle.started or bundle.at, *(span.began for span in bundle.timeline)]) for bundle in (one, other)]
    if began[0] > other.at + CLOCKS_APART_S or began[1] > one.at + CLOCKS_APART_S:
        raise BundleError(
            f"the bundles of {names} are of different runs: one began after the other was seen", way_out
        )


def _several(bundles: list[Bundle]) -> Bundle:
    if len(bundles) > NODES_MAX:
        raise BundleError(f"bundles of {len(bundles)} machines cannot be merged; the most is {NODES_MAX}")
    hosts = tuple(one.host.name for one in bundles)
    moved = [moved_by(one, node * PIDS_A_NODE) for node, one in enumerate(bundles)]
    moved = _own_labels(_global_ranks(moved), hosts)
    first = moved[0]
    count = 2 if all(len(one.looks) > 1 for one in moved) else max(min(1, len(one.looks)) for one in moved)
    seen = [(host, one) for host, one in zip(hosts, moved, strict=True) if one.looks]
    looks = [_look([(host, one.looks[at]) for host, one in seen]) for at in ((), (-1,), (0, -1))[count]]
    return msgspec.structs.replace(
        first,
        at=max(one.at for one in moved),
        started=min((one.started for one in moved if one.started), default=0.0),
        phase=min((one.phase for one in moved), key=_PHASES.index),
        motion=min((one.motion for one in moved), key=_MOTIONS.index),
        quiet_since=max(one.quiet_since for one in moved),
        looks=tuple(looks),
        timeline=tuple(sorted(_all(moved, lambda one: one.timeline), key=lambda span: span.began)),
        exits=_all(moved, lambda one: one.exits),
        logs=_all(moved, lambda one: one.logs),
        gaps=(*_all(moved, lambda one: one.gaps), _other_machines(hosts)),
        watchers=_all(moved, lambda one: one.watchers),
        question=next((one.question for one in moved if one.question), ""),
        ranks=sum(one.ranks for one in moved),
        nodes=max(len(moved), first.nodes),
        hosts=hosts,
    )


def _other_machines(hosts: Sequence[str]) -> Gap:
    return Gap(
        what=f"facts of the machines {', '.join(hosts[1:])[:200]}",
        reason=GapReason.NOT_SUPPORTED,
        detail="several bundles are judged with the machine of the first; judge each by itself as well",
    )


def _all(bundles: Sequence[Bundle], part: Callable[[Bundle], tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(one for bundle in bundles for one in part(bundle))


def _look(by_host: list[tuple[str, Look]]) -> Look:
    """One look of several machines, in which lines of a kernel's log say whose they are."""
    return as_one([_of_host(host, one) for host, one in by_host])


def _of_host(host: str, look: Look) -> Look:
    told = look.kernel_log
    if isinstance(told, Gap):
        return look
    return msgspec.structs.replace(look, kernel_log=tuple(f"{host}: {line}" for line in told))


def moved_by(record: _R, step: int) -> _R:
    """The record with every pid in it moved up by `step`; 0, which is nobody, stays."""
    return _moved(record, step) if step else record


def pids_of(record: Record) -> set[int]:
    """Every pid and thread id in it."""
    found: set[int] = set()
    work: list[Any] = [record]
    while work:
        value = work.pop()
        if isinstance(value, tuple):
            work += value if value and not isinstance(value[0], _WITHOUT_PIDS) else ()
        elif isinstance(value, Record):
            for name, is_pid in _concerned(type(value)):
                inner = getattr(value, name)
                if not is_pid or isinstance(inner, Gap):
                    work.append(inner)
                else:
                    found.update(inner if isinstance(inner, tuple) else (inner,))
    return found


def _moved(value: Any, step: int) -> Any:
    if isinstance(value, tuple):
        return (
            value if not value or isinstance(value[0], _WITHOUT_PIDS) else tuple(_moved(one, step) for one in value)
        )
    if not isinstance(value, Record):
        return value
    changed = {}
    for name, is_pid in _concerned(type(value)):
        old = getattr(value, name)
        new = _pids(old, step) if is_pid else _moved(old, step)
        if new is not old:
            changed[name] = new
    if isinstance(value, ThreadLook) and isinstance(value.syscall, str):
        changed["syscall"] = NAMES_CHILD.sub(lambda found: _child(found, step), value.syscall)
    return msgspec.structs.replace(value, **changed) if changed else value


@cache
def _concerned(kind: type[Record]) -> tuple[tuple[str, bool], ...]:
    """The fields of a record that hold pids, and those that hold records in which there may be some."""
    pids = _PIDS.get(kind, ())
    fields = msgspec.structs.fields(kind)
    return tuple((one.name, one.name in pids) for one in fields if one.name in pids or _holds_records(one.type))


def _holds_records(annotated: Any) -> bool:
    if isinstance(annotated, type) and issubclass(annotated, Record):
        return not issubclass(annotated, _WITHOUT_PIDS)
    return any(map(_holds_records, get_args(annotated)))


def _pids(value: Any, step: int) -> Any:
    if isinstance(value, Gap):
        return _moved(value, step)
    if isinstance(value, tuple):
        return tuple(pid + step if pid > 0 else pid for pid in value)
    return value + step if value > 0 else value


def _child(found: re.Match[str], step: int) -> str:
    """The child that wait4 or waitid names in its arguments; other values mean any child, or a group."""
    pid = int(found["pid"], 16)
    return f"{found['call']}{pid + step if 0 < pid < 1 << 31 else pid:#x}"


def _global_ranks(bundles: list[Bundle]) -> list[Bundle]:
    """Ranks that each machine counts from 0 become ranks of the whole."""
    own = [_ranks(one) for one in bundles]
    if all(a.isdisjoint(b) for at, a in enumerate(own) for b in own[:at]):
        return bundles
    width = max([one.ranks for one in bundles] + [max(ranks, default=-1) + 1 for ranks in own])
    return [_named(one, lambda label: label, width * node) for node, one in enumerate(bundles)]


def _ranks(bundle: Bundle) -> set[int]:
    looks = (one.process.rank for look in bundle.looks for one in look.processes)
    return {rank for rank in (*looks, *(gone.rank for gone in bundle.exits)) if rank >= 0}


def _own_labels(bundles: list[Bundle], hosts: Sequence[str]) -> list[Bundle]:
    """Labels that several machines use say whose they are: a line of the log belongs to one of them."""
    used = Counter(label for one in bundles for label in _labels(one))
    return [
        _named(one, lambda label, host=host: f"{label} on {host}" if used[label] > 1 else label, 0)  # type: ignore[misc]
        for one, host in zip(bundles, hosts, strict=True)
    ]


def _labels(bundle: Bundle) -> set[str]:
    looks = (one.process.label for look in bundle.looks for one in look.processes)
    return {*looks, *(tail.source for tail in bundle.logs), *(gone.label for gone in bundle.exits)} - {""}


def _named(bundle: Bundle, name: Callable[[str], str], by: int) -> Bundle:
    """The bundle with labels and sources put through `name`, and ranks moved up by `by`."""
    replace = msgspec.structs.replace

    def line(one: LogLine) -> LogLine:
        return replace(one, source=name(one.source), rank=one.rank + by if one.rank >= 0 else one.rank)

    def tail(one: LogTail) -> LogTail:
        error = line(one.first_error) if one.first_error else None
        lines, warnings = tuple(map(line, one.lines)), tuple(map(line, one.warnings))
        return replace(one, source=name(one.source), lines=lines, first_error=error, warnings=warnings)

    def someone(one: Any) -> Any:
        return replace(one, label=name(one.label), rank=one.rank + by if one.rank >= 0 else one.rank)

    def span(one: PhaseSpan) -> PhaseSpan:
        return replace(one, source=name(one.source), rank=one.rank + by if one.rank >= 0 else one.rank)

    def look(one: Look) -> Look:
        seen = tuple(replace(each, process=someone(each.process)) for each in one.processes)
        return replace(one, processes=seen)

    exits: tuple[Exit, ...] = tuple(map(someone, bundle.exits))
    return replace(
        bundle,
        looks=tuple(map(look, bundle.looks)),
        exits=exits,
        logs=tuple(map(tail, bundle.logs)),
        timeline=tuple(map(span, bundle.timeline)),
    )
