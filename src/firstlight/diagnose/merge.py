"""Bundles of several machines, or of one at several times, as one. Pure.

In the merged bundle pids are moved up by machine, as `core.hosts` says, and `Bundle.hosts` tells the machines' names.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.gpu import GpuProcess
from firstlight.core.host import Host
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.log import LogLine
from firstlight.core.look import (
    Frame,
    Futex,
    Leftover,
    Listener,
    Lock,
    Look,
    NativeFrame,
    OpenFile,
    Pressure,
    ProcessLook,
    Semaphore,
    ThreadLook,
)
from firstlight.core.process import Process, ProcessId
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.diagnose.labels import global_ranks, own_labels
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
    """One bundle of several, by machine and rank. What was seen on each machine is kept in `machines`.

    Raises:
        BundleError: there is none, they are of different servers, or one is merged already.
    """
    given = list(bundles)
    if not given:
        raise BundleError("there is no bundle to merge")
    if len(given) > 1 and any(one.machines for one in given):
        raise BundleError(
            "a bundle of several machines cannot be merged again", "Give the bundles that it is made of."
        )
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


def _told_apart(bundles: list[Bundle]) -> tuple[str, ...]:
    """The machines' names; where several have the same or none, with the number of the node."""
    names = [one.host.name for one in bundles]
    alone = {name for name in names if name and names.count(name) == 1}
    return tuple(
        name if name in alone else f"{name} node {one.node}".strip() for name, one in zip(names, bundles, strict=True)
    )


def _several(bundles: list[Bundle]) -> Bundle:
    if len(bundles) > NODES_MAX:
        raise BundleError(f"bundles of {len(bundles)} machines cannot be merged; the most is {NODES_MAX}")
    hosts = _told_apart(bundles)
    moved = [moved_by(one, node * PIDS_A_NODE) for node, one in enumerate(bundles)]
    moved = own_labels(global_ranks(moved), hosts)
    nodes = max(len(moved), moved[0].nodes)
    moved = [msgspec.structs.replace(one, hosts=hosts, nodes=nodes) for one in moved]
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
        gaps=_all(moved, lambda one: one.gaps),
        watchers=_all(moved, lambda one: one.watchers),
        question=next((one.question for one in moved if one.question), ""),
        ranks=sum(one.ranks for one in moved),
        host=_all_hosts([one.host for one in moved]),
        machines=tuple(moved),
        root=None,
    )


def _all_hosts(hosts: Sequence[Host]) -> Host:
    """What can be said of several machines as one: nothing that decides."""
    own = Gap(what="facts of a machine", reason=GapReason.NOT_SUPPORTED, detail="each of several has its own")
    return Host(
        name=", ".join(one.name for one in hosts),
        kernel=", ".join(dict.fromkeys(one.kernel for one in hosts)),
        may_ptrace=", ".join(dict.fromkeys(one.may_ptrace for one in hosts)),
        cpus=sum(one.cpus for one in hosts),
        memory_bytes=sum(one.memory_bytes for one in hosts),
        shm_bytes=own,
        shm_used_bytes=own,
        cpu_arch=hosts[0].cpu_arch if len({one.cpu_arch for one in hosts}) == 1 else "",
    )


def _all(bundles: Sequence[Bundle], part: Callable[[Bundle], tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(one for bundle in bundles for one in part(bundle))


def _look(by_host: list[tuple[str, Look]]) -> Look:
    """One look of several machines, in which lines of a kernel's log say whose they are. How short of memory each
    machine is, its own look tells."""
    return msgspec.structs.replace(as_one([_of_host(host, one) for host, one in by_host]), pressure=Pressure())


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
