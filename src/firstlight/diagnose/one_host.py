"""Bundles of one machine: looks at the same server at several times, or at several of its processes at one. Pure.

`firstlight look` sees the process that it is given and what that one started. Ranks that were started side by side,
each by its own command, are looked at one after the other; they are one server nevertheless.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Look, ProcessLook
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import Motion, Phase
from firstlight.errors import BundleError

TOGETHER_S = 120.0
"""Between looks at several processes that are taken for one moment: so long it takes to type the commands."""
NO_ENGINE = "generic"
_MOTIONS = (Motion.MOVING, Motion.SLOW, Motion.QUIET, Motion.STALLED)
_PHASES = tuple(Phase)
_T = TypeVar("_T")


def of_one_machine(bundles: Sequence[Bundle]) -> Bundle:
    """One bundle of several of one machine, oldest first.

    Raises:
        BundleError: they are of different runs or servers.
    """
    first, last = bundles[0], bundles[-1]
    if len(bundles) == 1:
        return last
    _same_run(bundles)
    by_root = {_root(one): one for one in bundles}
    if len(by_root) == 1 or None in by_root:
        return _later(bundles)
    if last.at - first.at > TOGETHER_S:
        if set(_ids(first)) & set(_ids(last)):
            return _later(bundles)
        raise BundleError(
            f"these bundles of {last.host.name} are of different processes, seen {last.at - first.at:.0f} s apart",
            f"Look at all processes of the server within {TOGETHER_S:.0f} s, or judge each bundle by itself.",
        )
    return _side_by_side(list(by_root.values()))


def _same_run(bundles: Sequence[Bundle]) -> None:
    last = bundles[-1]
    other = next((one for one in bundles if one.run != last.run), None)
    if other:
        raise BundleError(
            f"these bundles of {last.host.name} are of different runs: {other.run} and {last.run}",
            "Judge each by itself, or give those of one run.",
        )


def _ids(bundle: Bundle) -> list[ProcessId]:
    return [one.process.id for look in bundle.looks for one in look.processes]


def _root(bundle: Bundle) -> ProcessId | None:
    """The eldest process of a bundle; two bundles that share it are looks at the same processes. None without one."""
    return min(_ids(bundle), key=lambda one: (one.started, one.pid), default=None)


def _later(bundles: Sequence[Bundle]) -> Bundle:
    """The last of several bundles of the same processes, with the last look of the first one before its own."""
    first, last = bundles[0], bundles[-1]
    exits = tuple(dict.fromkeys(gone for one in bundles for gone in one.exits))
    return msgspec.structs.replace(last, looks=(*first.looks[-1:], *last.looks[-1:]), exits=exits)


def _side_by_side(bundles: list[Bundle]) -> Bundle:
    """One bundle of the processes of several. The command is that of the eldest process whose engine is known."""
    engines = {one.engine for one in bundles} - {NO_ENGINE}
    if len(engines) > 1:
        raise BundleError(
            f"these bundles of {bundles[0].host.name} are of different servers: {' and '.join(sorted(engines))}",
            "Give the bundles of one server, or judge each by itself.",
        )
    base = min(bundles, key=lambda one: (one.engine == NO_ENGINE, min(id_.started for id_ in _ids(one))))
    newest = {id_: at for at, one in enumerate(bundles) for id_ in _ids(one)}
    own = [_without(one, {id_ for id_, newer in newest.items() if newer != at}) for at, one in enumerate(bundles)]
    places = (0, -1) if all(len(one.looks) > 1 for one in own) else (-1,)
    looks = [as_one([one.looks[at] for one in own if one.looks]) for at in places]
    return msgspec.structs.replace(
        base,
        at=max(one.at for one in own),
        started=min((one.started for one in own if one.started), default=0.0),
        phase=min((one.phase for one in own), key=_PHASES.index),
        motion=min((one.motion for one in own), key=_MOTIONS.index),
        quiet_since=max(one.quiet_since for one in own),
        looks=tuple(_without_own_leftovers(look) for look in looks),
        timeline=tuple(sorted(_each(own, lambda one: one.timeline), key=lambda span: span.began)),
        exits=_each(own, lambda one: one.exits),
        logs=_each(own, lambda one: one.logs),
        gaps=_each(own, lambda one: one.gaps),
        watchers=_each(own, lambda one: one.watchers),
        question=next((one.question for one in own if one.question), ""),
        ranks=max(one.ranks for one in own),
    )


def _each(bundles: Iterable[Bundle], part: Callable[[Bundle], tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(one for bundle in bundles for one in part(bundle)))


def _without(bundle: Bundle, ids: set[ProcessId]) -> Bundle:
    """The bundle without processes that a later one has seen as well."""

    def kept(processes: tuple[ProcessLook, ...]) -> tuple[ProcessLook, ...]:
        return tuple(one for one in processes if one.process.id not in ids)

    looks = (msgspec.structs.replace(look, processes=kept(look.processes)) for look in bundle.looks)
    return msgspec.structs.replace(bundle, looks=tuple(looks))


def _without_own_leftovers(look: Look) -> Look:
    """A process that one look took for a leftover may be what another one was given to look at."""
    if isinstance(look.leftovers, Gap):
        return look
    own = {one.process.id.pid for one in look.processes}
    return msgspec.structs.replace(look, leftovers=tuple(one for one in look.leftovers if one.pid not in own))


def as_one(looks: Sequence[Look]) -> Look:
    """One look of several that were taken at about the same time. What one could not see is a gap of all."""
    together: dict[str, Any] = {}
    gaps = [gap for one in looks for gap in one.gaps]
    for name in (
        "listeners",
        "locks",
        "semaphores",
        "gpus",
        "leftovers",
        "collectives",
        "communicators",
        "kernel_log",
    ):
        seen = [getattr(one, name) for one in looks]
        gaps += [one for one in seen if isinstance(one, Gap)]
        known = [one for one in seen if not isinstance(one, Gap)]
        together[name] = tuple(dict.fromkeys(each for one in known for each in one)) if known else seen[0]
    return msgspec.structs.replace(
        looks[0],
        at=max(one.at for one in looks),
        took_s=max(one.took_s for one in looks),
        processes=tuple(process for one in looks for process in one.processes),
        folders=tuple(dict.fromkeys(folder for one in looks for folder in one.folders)),
        gaps=tuple(dict.fromkeys(gaps)),
        **together,
    )
