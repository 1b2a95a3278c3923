"""One look at all processes of a server: gentle probes first, the one that pauses last, and always an answer.

Each probe runs in its own worker and is abandoned when late; what it would have told is then a gap. The whole look
ends soon after its deadline whatever the processes or the kernel do.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from firstlight.clock import Clock, Deadline
from firstlight.core.facts import ProcessFacts
from firstlight.core.gap import Gap
from firstlight.core.look import Listener, Lock, Look, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import Process
from firstlight.evidence import files, inodes, listeners, locks, processes
from firstlight.evidence.around import Around
from firstlight.evidence.facts import facts_of
from firstlight.evidence.files import World
from firstlight.evidence.folders import used_by
from firstlight.evidence.inodes import Descriptor
from firstlight.evidence.stacks import Stacks, native_stacks, stacks_of, with_kernel_stacks, with_stacks
from firstlight.evidence.surroundings import survey, telling_sockets
from firstlight.evidence.workers import Probe

GENTLE_SHARE = 0.15
"""The part of the whole deadline that one gentle stage may use at most."""

_LOCKED_FOLDERS = frozenset({"extensions", "compile_cache", "hub_cache"})

_T = TypeVar("_T")


def look(
    targets: Sequence[Process],
    *,
    clock: Clock,
    port: int = 0,
    deadline_s: float = 10.0,
    stacks: bool = True,
    deep: bool = False,
    started: float = 0.0,
    environ: Mapping[str, str] | None = None,
    dumps: Path | None = None,
    pausing: bool = False,
) -> Look:
    """Collect the evidence about `targets` now; `port` is the port that the server wants, 0 if that is not known.

    With `deep` also what seldom changes or costs more: limits, libraries, environment, native stacks, semaphores,
    collectives, leftovers, and the kernel's log since `started` (wall time). `environ` is the server's environment,
    which tells where its caches are. `dumps` is the folder of `asking_by_signal`, if the server was started with it:
    its interpreters are asked for their stacks where reading them is refused. With `pausing` processes are stopped
    for their native stacks, by whichever tool is installed; otherwise only threads that wait show theirs.
    """
    looking = _Looking(clock, deadline_s)
    at, monotonic = clock.wall(), clock.monotonic()
    pids = [one.id.pid for one in targets]
    around = Around(pids, clock, looking.stage(), since=started, deep=deep)
    seen = looking.at_each("process", {one.id.pid: partial(processes.look_at, one, monotonic) for one in targets})
    known = looking.at_each("facts of the process", _facts(targets, seen)) if deep else {}
    has = _files(looking, seen, port)
    found_locks = looking.at_all("locks", partial(_locks, has.held, clock, looking.stage(0.8)))
    spied = stacks_of([one.process.id for one in seen.values()], clock, looking.whole, dumps) if stacks else {}
    finished = tuple(
        looking.finish(one, has.opened.get(pid, ()), spied.get(pid), known.get(pid)) for pid, one in seen.items()
    )
    told = around.told(finished, environ or {}, looking.stage())
    if deep and stacks:
        finished = _with_native_stacks(finished, clock, looking.whole if pausing else looking.stage(), pausing)
    return Look(
        at=at,
        took_s=clock.monotonic() - monotonic,
        monotonic=monotonic,
        processes=finished,
        listeners=_listeners(has.world, has.held, port),
        locks=found_locks if isinstance(found_locks, Gap) else locks.with_pollers(found_locks, finished),
        gaps=(*(gap for gap in looking.gaps if gap.pid not in seen), *_gaps(has.world)),
        **told,
    )


class _Files(NamedTuple):
    """What processes have open: all descriptors, the files among them that matter, and what surrounds these."""

    held: dict[int, list[Descriptor]]
    opened: dict[int, tuple[OpenFile, ...]]
    world: World | Gap


def _files(looking: "_Looking", seen: Mapping[int, ProcessLook], port: int) -> _Files:
    held = looking.at_each("open files", {pid: partial(inodes.descriptors, pid) for pid in seen})
    telling = looking.at_all("sockets", partial(telling_sockets, list(seen)))
    keys = () if isinstance(telling, Gap) else telling
    kept = {pid: files.interesting(held[pid], files.waited(seen[pid].threads), keys) for pid in held}
    world = looking.at_all("sockets and pipes", partial(survey, kept, port, looking.stage(0.8)))
    if isinstance(world, Gap):
        return _Files(held, {}, world)
    work = {pid: partial(_open_files, seen[pid], kept.get(pid, []), world) for pid in seen}
    return _Files(held, looking.at_each("open files", work), world)


def _facts(targets: Sequence[Process], seen: Mapping[int, ProcessLook]) -> "dict[int, partial[ProcessFacts]]":
    return {one.id.pid: partial(facts_of, one) for one in targets if one.id.pid in seen}


def look_around(
    *, clock: Clock, environ: Mapping[str, str], words: Sequence[str], port: int, deadline_s: float
) -> Look:
    """What a server with this environment and command line would find on the machine: a look without processes."""
    looking = _Looking(clock, deadline_s)
    at, monotonic = clock.wall(), clock.monotonic()
    around = Around((), clock, looking.stage(), since=0.0, deep=True)
    world = looking.at_all("sockets", partial(survey, {os.getpid(): []}, port, looking.stage(0.8)))
    folders = [path for purpose, path in used_by(environ, words, ()) if purpose in _LOCKED_FOLDERS]
    found_locks = looking.at_all("locks", partial(locks.bare_lock_files, folders, clock, looking.stage(0.8)))
    told = around.told((), environ, looking.stage())
    return Look(
        at=at,
        took_s=clock.monotonic() - monotonic,
        monotonic=monotonic,
        processes=(),
        listeners=_listeners(world, {}, port),
        locks=found_locks,
        gaps=tuple(looking.gaps),
        **told,
    )


def _with_native_stacks(
    looked: tuple[ProcessLook, ...], clock: Clock, deadline: Deadline, pausing: bool
) -> tuple[ProcessLook, ...]:
    """The processes with the native stacks of their threads, where these can be had; without a pause, unless that is
    allowed."""
    stacks = native_stacks([one.process.id for one in looked], clock, deadline, pausing=pausing)

    def completed(thread: ThreadLook, pid: int) -> ThreadLook:
        seen = stacks[pid]
        return msgspec.structs.replace(thread, native=seen if isinstance(seen, Gap) else seen.get(thread.tid, ()))

    return tuple(
        msgspec.structs.replace(one, threads=tuple(completed(thread, one.process.id.pid) for thread in one.threads))
        for one in looked
    )


class _Looking:
    """A look in the making: its deadline, and the gaps that it has met so far."""

    def __init__(self, clock: Clock, deadline_s: float) -> None:
        self._clock = clock
        self.whole = Deadline(clock, deadline_s, "the look")
        self.gaps: list[Gap] = []

    def stage(self, share: float = 1.0) -> Deadline:
        """The time of one stage, or the share of it that a probe has which keeps partial results itself."""
        seconds = min(self.whole.left, self.whole.seconds * GENTLE_SHARE)
        return Deadline(self._clock, seconds * share, "a stage of the look")

    def at_each(self, what: str, work: Mapping[int, "partial[_T]"]) -> dict[int, _T]:
        """Run one probe per process, all at once; what is missing from the answer is a gap."""
        probes = {pid: Probe(what, one, pid) for pid, one in work.items()}
        stage = self.stage()
        answers = {pid: probe.result(stage) for pid, probe in probes.items()}
        self.gaps += [answer for answer in answers.values() if isinstance(answer, Gap)]
        return {pid: answer for pid, answer in answers.items() if not isinstance(answer, Gap)}

    def at_all(self, what: str, work: "partial[_T]") -> _T | Gap:
        """Run one probe of the whole machine."""
        answer = Probe(what, work).result(self.stage())
        if isinstance(answer, Gap):
            self.gaps.append(answer)
        return answer

    def finish(
        self, one: ProcessLook, opened: tuple[OpenFile, ...], spied: Stacks | None, known: ProcessFacts | None
    ) -> ProcessLook:
        """The look at one process, made whole."""
        pid = one.process.id.pid
        gaps = [*one.gaps, *(gap for gap in self.gaps if gap.pid == pid)]
        if isinstance(spied, Gap):
            gaps.append(spied)
        threads = with_kernel_stacks(pid, with_stacks(one, spied), self.stage(0.5))
        facts = known or one.facts
        return msgspec.structs.replace(one, threads=threads, files=opened, facts=facts, gaps=tuple(gaps))


def _open_files(one: ProcessLook, kept: list[Descriptor], world: World) -> tuple[OpenFile, ...]:
    opening = dict.fromkeys(thread.path for thread in one.threads if thread.path)
    return (
        *(files.being_opened(one.process.id.pid, path) for path in opening),
        *(files.describe(descriptor, world) for descriptor in kept),
        *files.mapped_weights(one),
    )


def _listeners(world: World | Gap, held: Mapping[int, list[Descriptor]], port: int) -> tuple[Listener, ...] | Gap:
    if isinstance(world, Gap):
        return world
    owners = {one.key: pid for pid, found in held.items() for one in found if one.key.startswith("socket:")}
    return listeners.listeners(world.tcp, owners, port, world.holders)


def _gaps(world: World | Gap) -> tuple[Gap, ...]:
    return () if isinstance(world, Gap) else world.gaps


def _locks(held: dict[int, list[Descriptor]], clock: Clock, deadline: Deadline) -> tuple[Lock, ...]:
    return (*locks.kernel_locks(held), *locks.bare_lock_files(locks.build_folders(held), clock, deadline))
