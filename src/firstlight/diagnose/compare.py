"""Two looks at the same server some seconds apart: "slow or stuck" is a difference, not a snapshot. Pure.

Threads that come, go and wait are no movement: a server that hangs makes one for every question it is asked, ours
included. A file read onwards is movement, however few the bytes: a loop that polls goes back to the beginning.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from firstlight.core.gap import Gap
from firstlight.core.look import Look, OpenFile, ProcessLook, ThreadLook
from firstlight.core.process import ProcessId, ProcessSample
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason
from firstlight.core.words import size
from firstlight.diagnose import frames

IDLE_CPU = 0.02
"""CPU seconds a second that a heartbeat may use: below, a process is not computing."""
BUSY_CPU = 0.5
"""CPU seconds a second from which a process that stays in one place is said to spin there."""
HEARTBEAT_CPU = 0.10
"""With the same stacks and nothing moved: loops that poll and sleep for milliseconds use up to so much."""
CHILDREN_CPU = 0.03
"""CPU of children that came and went: a script that asks whether the server is up comes to 1 to 2 %."""
HEARTBEAT_BYTES_S = 8192
"""Monitoring threads that re-read /proc come to some kilobytes a second."""
GROWTH_BYTES = 1024 * 1024
THREAD_BYTES = 128 * 1024
"""What a new thread may cost; it is taken off the growth."""
MAJOR_FAULTS_S = 1.0
_NAP = re.compile(r"\bsleep\(")


class Change(StrEnum):
    """What a process did between two looks."""

    MOVING = "moving"
    """It read or wrote, grew, computed in changing places, or its stacks changed beyond a heartbeat."""
    SPINNING = "spinning"
    """It computed all the time in one place, with nothing else moving: a busy wait, or one long step."""
    STILL = "still"
    """No CPU, no I/O, the same stacks."""
    UNKNOWN = "unknown"
    """Too much of it could not be seen."""


class Stacks(StrEnum):
    """What two looks say of a process's Python stacks."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"


class ProcessChange(Record):
    """One process between two looks. `cpu` is in cores; bytes are deltas. `why` is what the verdict rests on,
    as a clause that follows its name; `moved` what moved besides CPU and stacks, empty if nothing did."""

    id: ProcessId
    name: str
    change: Change
    why: str
    cpu: float
    read_bytes: int | Gap
    write_bytes: int | Gap
    memory_bytes: int
    major_faults: int
    stacks: Stacks
    moved: str = ""

    @property
    def may_spin(self) -> bool:
        """Whether it computed and nothing moved, in places that could not be seen: it works, or waits busily."""
        busy = self.change is Change.MOVING and self.cpu >= BUSY_CPU
        return busy and self.stacks is Stacks.UNKNOWN and not self.moved


class Difference(Record):
    """Two looks compared. `appeared` and `gone` are processes that were there at one of them only; `missed` are those
    that one of them could not see in time, though they may have been there."""

    seconds: float
    processes: tuple[ProcessChange, ...]
    appeared: tuple[ProcessId, ...] = ()
    gone: tuple[ProcessId, ...] = ()
    missed: tuple[ProcessId, ...] = ()

    @property
    def change(self) -> Change:
        """The server as a whole: moving if anything moved, still only if everything was seen to be."""
        seen = {one.change for one in self.processes} | ({Change.UNKNOWN} if self.missed else set())
        if self.appeared or self.gone:
            return Change.MOVING
        order = (Change.MOVING, Change.SPINNING, Change.UNKNOWN, Change.STILL)
        return next((change for change in order if change in seen), Change.UNKNOWN)

    def of(self, pid: int) -> ProcessChange | None:
        return next((one for one in self.processes if one.id.pid == pid), None)


def compare(first: Look, second: Look) -> Difference:
    """What changed from `first` to `second`."""
    seconds = max(0.001, _seconds_between(first, second))
    before = {one.process.id: one for one in first.processes}
    after = {one.process.id: one for one in second.processes}
    both = [identity for identity in after if identity in before]
    late = _late(first) | _late(second)
    once = [identity for identity in (*before, *after) if identity not in before or identity not in after]
    return Difference(
        seconds=seconds,
        processes=tuple(_compared(before[identity], after[identity], seconds) for identity in both),
        appeared=tuple(identity for identity in once if identity in after and identity.pid not in late),
        gone=tuple(identity for identity in once if identity in before and identity.pid not in late),
        missed=tuple(identity for identity in once if identity.pid in late),
    )


def _late(look: Look) -> set[int]:
    """Processes that were there, or may have been, and could not be seen."""
    return {gap.pid for gap in look.gaps if gap.what == "process" and gap.reason is not GapReason.VANISHED}


def together(differences: Sequence[Difference | None]) -> Difference | None:
    """What changed on several machines; None if one of them was looked at but once."""
    known = [one for one in differences if one]
    if len(known) < len(differences):
        return None
    return Difference(
        seconds=max(one.seconds for one in known),
        processes=tuple(each for one in known for each in one.processes),
        appeared=tuple(each for one in known for each in one.appeared),
        gone=tuple(each for one in known for each in one.gone),
        missed=tuple(each for one in known for each in one.missed),
    )


def _seconds_between(first: Look, second: Look) -> float:
    if first.monotonic and second.monotonic:
        return second.monotonic - first.monotonic
    return second.at - first.at


def _compared(before: ProcessLook, after: ProcessLook, seconds: float) -> ProcessChange:
    old, new = before.sample, after.sample
    cpu = max(0.0, new.cpu_s - old.cpu_s) / seconds
    read = _delta(old.read_bytes, new.read_bytes)
    written = _delta(old.write_bytes, new.write_bytes)
    memory = new.memory_bytes - old.memory_bytes
    kept = memory - THREAD_BYTES * max(0, new.threads - old.threads)
    faults = new.major_faults - old.major_faults
    stacks = compare_stacks(before.threads, after.threads, seconds)
    moved = (
        _moved(read, written, kept, faults, seconds)
        or _read_on(before.files, after.files)
        or _children_worked(old, new, seconds)
    )
    busy = cpu >= BUSY_CPU or (cpu > IDLE_CPU and _always_runs(before, after))
    change, why = _judged(new.state, cpu, stacks, busy=busy, moved=moved, place=_busiest_place(before, after))
    return ProcessChange(
        id=after.process.id,
        name=after.process.name,
        change=change,
        why=why,
        cpu=cpu,
        read_bytes=read,
        write_bytes=written,
        memory_bytes=memory,
        major_faults=faults,
        stacks=stacks,
        moved=moved,
    )


def _delta(old: int | Gap, new: int | Gap) -> int | Gap:
    if isinstance(old, Gap) or isinstance(new, Gap):
        return new if isinstance(new, Gap) else old
    return new - old


def _moved(read: int | Gap, written: int | Gap, memory: int, faults: int, seconds: float) -> str:
    """What moved besides CPU and stacks, in words; empty if nothing did."""
    for what, amount in (("read", read), ("wrote", written)):
        if not isinstance(amount, Gap) and amount > HEARTBEAT_BYTES_S * seconds:
            return f"{what} {size(amount)} in {seconds:.1f} s"
    if memory >= GROWTH_BYTES:
        return f"grew by {size(memory)} in {seconds:.1f} s"
    if faults > MAJOR_FAULTS_S * seconds:
        return f"fetched {faults} pages from storage in {seconds:.1f} s"
    return ""


def _read_on(before: tuple[OpenFile, ...], after: tuple[OpenFile, ...]) -> str:
    """Which file was read further than before, in words; empty if none was."""
    old = {(file.fd, file.target): file.position for file in before if _is_only_read(file)}
    for file in after:
        read = file.position - old.get((file.fd, file.target), file.position)
        if read > 0:
            return f"read {size(read)} further in {file.target}"
    return ""


def _is_only_read(file: OpenFile) -> bool:
    """Whether a file is read from storage: what is written may be a log, and /proc is no storage."""
    return file.kind == "file" and file.access == "r" and not file.target.startswith(("/proc/", "/sys/", "/dev/"))


def _children_worked(old: ProcessSample, new: ProcessSample, seconds: float) -> str:
    used_s = new.children_cpu_s - old.children_cpu_s
    return f"ran programs that used {used_s:.1f} s of CPU" if used_s > CHILDREN_CPU * seconds else ""


def _judged(state: str, cpu: float, stacks: Stacks, *, busy: bool, moved: str, place: str) -> tuple[Change, str]:
    if state in "TtZX":
        return Change.STILL, f"is in state {state}"
    if moved or stacks is Stacks.CHANGED:
        return Change.MOVING, moved or "went on to other functions"
    if busy:
        known = stacks is Stacks.UNCHANGED
        return (Change.SPINNING if known else Change.MOVING), f"used {cpu:.0%} of a core in {place}"
    if cpu > (HEARTBEAT_CPU if stacks is Stacks.UNCHANGED else IDLE_CPU):
        return Change.MOVING, f"used {cpu:.0%} of a core"
    if stacks is Stacks.UNKNOWN:
        return Change.UNKNOWN, "used no CPU; whether its stacks changed could not be seen"
    return Change.STILL, "used no CPU, moved no data, and stayed in the same functions"


def compare_stacks(before: tuple[ThreadLook, ...], after: tuple[ThreadLook, ...], seconds: float) -> Stacks:
    """Whether a process's Python stacks changed beyond what heartbeat threads do."""
    if any(isinstance(thread.stack, Gap) for thread in (*before, *after)):
        return Stacks.UNKNOWN
    old = {thread.tid: thread for thread in before}
    changed = any(
        _moved_on(old[thread.tid], thread, seconds) if thread.tid in old else _works(thread, seconds)
        for thread in after
    )
    return Stacks.CHANGED if changed else Stacks.UNCHANGED


def _works(newcomer: ThreadLook, seconds: float) -> bool:
    """Whether a Python thread that was not there before has done more than wait."""
    return bool(newcomer.stack) and newcomer.cpu_s / seconds > IDLE_CPU


def _moved_on(before: ThreadLook, after: ThreadLook, seconds: float) -> bool:
    """Whether a thread got somewhere: it left the function that it was in, or a caller of it went on to another line.

    A loop comes back to its function, by whatever line and helper; a heartbeat that hardly computes may also be
    anywhere in its callers.
    """
    if isinstance(before.stack, Gap) or isinstance(after.stack, Gap):
        return False
    computes = (after.cpu_s - before.cpu_s) / seconds > IDLE_CPU
    one, other = frames.own_frames(before.stack), frames.own_frames(after.stack)
    shared = min(len(one), len(other))
    return any(
        (old.function, old.file) != (new.function, new.file)
        or (computes and depth < shared - 1 and old.line != new.line)
        for depth, (old, new) in enumerate(zip(one[:shared], other[:shared], strict=True))
    )


def _always_runs(before: ProcessLook, after: ProcessLook) -> bool:
    """Whether some thread wanted a CPU at both looks: on a crowded machine it gets less than it would burn."""
    running = {thread.tid for thread in before.threads if _wants_cpu(thread)}
    return any(thread.tid in running for thread in after.threads if _wants_cpu(thread))


def _wants_cpu(thread: ThreadLook) -> bool:
    """One that naps for microseconds between two polls is always ready on such a machine, and computes nothing."""
    naps = not isinstance(thread.stack, Gap) and thread.stack and _NAP.search(thread.stack[0].code)
    return thread.state == "R" and not naps


def _busiest_place(before: ProcessLook, after: ProcessLook) -> str:
    """Where the thread is that computed most between the looks."""
    old = {thread.tid: thread.cpu_s for thread in before.threads}
    busiest = max(after.threads, key=lambda thread: thread.cpu_s - old.get(thread.tid, 0.0), default=None)
    if busiest is None or isinstance(busiest.stack, Gap):
        return "a place that could not be seen"
    return frames.shown(busiest.stack[0]) if busiest.stack else "native code"
