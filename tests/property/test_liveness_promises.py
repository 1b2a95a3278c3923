"""What liveness promises whatever a server does: not wrong about one that works, not late about one that is stuck."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.gpus.watching import GpuSample
from firstlight.supervise.liveness.floors import KIB
from firstlight.supervise.liveness.judge import Confirmation, Judgement, Liveness, LogActivity, Thresholds
from firstlight.supervise.liveness.sampling import MainThread, Measurement
from firstlight.supervise.liveness.suspicion import Sleep

THRESHOLDS = Thresholds()
FLOORS = THRESHOLDS.floors
LOOKS_TAKE_S = 7
PROMISE_S = 30
PIDS = (10, 11, 12)


@dataclass(frozen=True)
class Second:
    """What one process does in one second."""

    cpu_s: float = 0.0
    read: int = 0
    disk: int = 0
    write: int = 0
    socket: int = 0
    memory: int = 0
    shared: int = 0
    faults: int = 0
    children_cpu_s: float = 0.0
    waits: int = 0
    state: str = "S"


SILENT = Second()


class Server:
    """Three processes and a watcher who takes two looks whenever they are wanted, and believes `seen`."""

    def __init__(self, seen: Confirmation) -> None:
        self.liveness = Liveness()
        self.seen = seen
        self.judgements: list[Judgement] = []
        self.looks_ended = 0
        self._totals = dict.fromkeys(PIDS, Second(cpu_s=1.0, memory=100 * KIB * KIB))
        self._looks_end_at: int | None = None

    def second(self, doing: dict[int, Second], **said: Any) -> Judgement:
        """One second passes."""
        for pid, act in doing.items():
            self._totals[pid] = _sum(self._totals[pid], act)
        at = 1000.0 + len(self.judgements)
        samples = {_id(pid): _sample(pid, total) for pid, total in self._totals.items()}
        sockets = {pid: total.socket for pid, total in self._totals.items()}
        processes = {
            _id(pid): Process(id=_id(pid), ppid=1, name=f"TP{pid}", cmdline=(), role=Role.WORKER, rank=pid)
            for pid in PIDS
        }
        main = {_id(pid): MainThread(total.cpu_s, total.waits) for pid, total in self._totals.items()}
        measurement = Measurement(at, 1.0, samples, sockets, said.pop("gpus", ()), main_threads=main)
        said.setdefault("phase", Phase.WEIGHTS)
        judgement = self.liveness.update(measurement, processes=processes, **said)
        self.judgements.append(self._look(judgement))
        return self.judgements[-1]

    def _look(self, judgement: Judgement) -> Judgement:
        now = len(self.judgements)
        if self._looks_end_at is None and judgement.wants_look:
            self._looks_end_at = now + LOOKS_TAKE_S
        if self._looks_end_at != now:
            return judgement
        self._looks_end_at = None
        self.looks_ended += 1
        return self.liveness.confirm(self.seen)

    @property
    def stalled_after(self) -> int | None:
        """The second in which a stall was first said, counted from 0."""
        return next((i for i, one in enumerate(self.judgements) if one.motion == Motion.STALLED), None)


def _sum(total: Second, act: Second) -> Second:
    return replace(
        act,
        cpu_s=total.cpu_s + act.cpu_s,
        read=total.read + act.read,
        disk=total.disk + act.disk,
        write=total.write + act.write,
        socket=total.socket + act.socket,
        memory=max(0, total.memory + act.memory),
        shared=total.shared + act.shared,
        faults=total.faults + act.faults,
        children_cpu_s=total.children_cpu_s + act.children_cpu_s,
        waits=total.waits + act.waits,
    )


def _id(pid: int) -> ProcessId:
    return ProcessId(pid=pid, started=1)


def _sample(pid: int, total: Second) -> ProcessSample:
    return ProcessSample(
        id=_id(pid),
        state=total.state,
        cpu_s=total.cpu_s,
        threads=4,
        major_faults=total.faults,
        memory_bytes=total.memory,
        shared_bytes=total.shared,
        read_bytes=total.read,
        write_bytes=total.write,
        disk_read_bytes=total.disk,
        children_cpu_s=total.children_cpu_s,
    )


STILL = Confirmation(still=frozenset(PIDS))
ANY_LOOKS = st.sampled_from(
    [
        STILL,
        Confirmation(),
        Confirmation(still=frozenset({11}), spinning=frozenset({10, 12})),
        Confirmation(moving=frozenset({12})),
    ]
)
IDLE = st.builds(
    Second,
    cpu_s=st.floats(0, 0.08),
    read=st.integers(0, 6 * KIB),
    socket=st.integers(0, KIB),
    waits=st.integers(2, 2000),
)
"""Below every floor: what a process does that only waits."""
WORK = st.sampled_from(
    [
        Second(read=int(FLOORS.bytes_s) + 1),
        Second(disk=int(FLOORS.disk_bytes_s) + 1),
        Second(socket=int(FLOORS.socket_bytes_s) + 1),
        Second(memory=FLOORS.growth_bytes // 5 + KIB),
        Second(faults=int(FLOORS.faults_s) + 1),
    ]
)
"""Just above one floor."""
BUSY = st.builds(
    Second,
    cpu_s=st.floats(0, 4),
    read=st.integers(0, 10**9),
    disk=st.integers(0, 10**9),
    socket=st.integers(0, 10**8),
    memory=st.integers(-(10**9), 10**9),
    faults=st.integers(0, 1000),
    state=st.sampled_from("RSD"),
)


@settings(max_examples=25, deadline=None)
@given(work=WORK, worker=st.sampled_from(PIDS), rest=st.lists(IDLE, min_size=3, max_size=3), looks=ANY_LOOKS)
def test_a_server_above_one_floor_is_never_asked_about_nor_stalled(
    work: Second, worker: int, rest: list[Second], looks: Confirmation
) -> None:
    server = Server(looks)
    for _ in range(90):
        doing = dict(zip(PIDS, rest, strict=True)) | {worker: work}
        assert server.second(doing).motion != Motion.STALLED
    assert server.looks_ended == 0


MIB = KIB * KIB
WAYS_TO_WORK: dict[str, Second | LogActivity | GpuSample] = {
    "reads": Second(read=MIB),
    "reads a little": Second(read=64 * KIB),
    "fetches from storage": Second(disk=64 * KIB),
    "writes": Second(write=MIB),
    "writes a little": Second(write=64 * KIB),
    "is fed by a pipe": Second(read=48 * KIB, waits=3),
    "downloads": Second(socket=32 * KIB),
    "downloads and keeps": Second(socket=32 * KIB, write=32 * KIB),
    "is sent weights": Second(memory=MIB),
    "grows": Second(memory=4 * MIB),
    "fills shared memory": Second(shared=2 * MIB),
    "maps weights": Second(faults=20),
    "computes": Second(cpu_s=0.8, waits=2),
    "computes in bursts": Second(cpu_s=0.12, waits=1),
    "computes in bursts on a crowded machine": Second(cpu_s=0.12, waits=1, state="R"),
    "runs compilers": Second(children_cpu_s=0.3),
    "runs small programs": Second(children_cpu_s=0.2),
    "reads and computes": Second(read=MIB, cpu_s=0.05),
    "talks": LogActivity(new_text=True, new_bytes=80),
    "counts": LogActivity(counter_moved=True, new_bytes=80),
    "uses a GPU": GpuSample(
        index=0, name="card", utilisation=90, memory_activity=40, power_w=300, power_limit_w=700, memory_bytes=1 << 30
    ),
}
"""What a server does in one second and, for the rest of the time, does not."""
PAUSE_MAX_S = 9
STARTS_S = 80


def beats(seed: int, seconds: int) -> Iterator[bool]:
    """In which seconds something is done: mostly again after one or two, at times after many."""
    pick = random.Random(seed)
    for _ in range(seconds):
        yield True
        yield from [False] * int(min(PAUSE_MAX_S, pick.lognormvariate(-0.5, 1.2)))


@pytest.mark.parametrize("way", WAYS_TO_WORK)
@pytest.mark.parametrize("seed", range(20))
def test_a_start_that_works_in_bursts_is_never_a_stall_though_looks_find_it_still(way: str, seed: int) -> None:
    server = Server(STILL)
    work = WAYS_TO_WORK[way]
    for works in itertools.islice(beats(seed, STARTS_S), STARTS_S):
        doing = {11: work} if works and isinstance(work, Second) else {}
        log = work if works and isinstance(work, LogActivity) else LogActivity()
        gpus = (work,) if works and isinstance(work, GpuSample) else ()
        assert server.second(doing, log=log, gpus=gpus).motion != Motion.STALLED


@settings(max_examples=25, deadline=None)
@given(
    cores=st.floats(FLOORS.cpu_cores + FLOORS.rest_cores_max + 0.01, 8),
    looks=st.sampled_from(
        [STILL, Confirmation(), Confirmation(moving=frozenset(PIDS)), Confirmation(spinning=frozenset(PIDS))]
    ),
)
def test_computing_with_nobody_missing_is_never_a_stall(cores: float, looks: Confirmation) -> None:
    server = Server(looks)
    for _ in range(150):
        assert server.second({10: Second(cpu_s=cores)}).motion != Motion.STALLED


@settings(max_examples=25, deadline=None)
@given(before=st.lists(st.fixed_dictionaries(dict.fromkeys(PIDS, BUSY)), max_size=30))
def test_total_silence_is_reported_within_the_promise_whatever_came_before(before: list[dict[int, Second]]) -> None:
    server = Server(STILL)
    for doing in before:
        server.second(doing)
    began = len(server.judgements)
    for _ in range(PROMISE_S):
        server.second(dict.fromkeys(PIDS, SILENT))
    assert server.judgements[-1].motion == Motion.STALLED
    first_look = next(i for i in range(began, began + PROMISE_S) if server.judgements[i].wants_look)
    assert first_look - began <= THRESHOLDS.quiet_s + 1


PATIENCE_S = int(THRESHOLDS.naps_s + THRESHOLDS.woken_s + LOOKS_TAKE_S) + 2
NAPS = st.builds(Sleep, seconds=st.floats(0, 200), seen_at=st.just(0.0), exact=st.booleans())


@settings(max_examples=25, deadline=None)
@given(
    seconds=st.lists(
        st.tuples(st.dictionaries(st.sampled_from(PIDS), NAPS), st.integers(0, 1)), min_size=1, max_size=20
    )
)
def test_a_silent_server_is_a_stall_in_the_end_whoever_sleeps_however_often(
    seconds: list[tuple[dict[int, Sleep], int]],
) -> None:
    server = Server(STILL)
    for sleeps, waits in itertools.islice(itertools.cycle(seconds), PATIENCE_S):
        seen_at = 998.0 + len(server.judgements)
        seen = {pid: msgspec.structs.replace(sleep, seen_at=seen_at) for pid, sleep in sleeps.items()}
        server.seen = msgspec.structs.replace(STILL, sleeps=seen)
        server.second(dict.fromkeys(PIDS, Second(waits=waits)))
    assert server.stalled_after is not None


@settings(max_examples=25, deadline=None)
@given(
    beats=st.lists(st.fixed_dictionaries(dict.fromkeys(PIDS, IDLE)), min_size=PROMISE_S, max_size=PROMISE_S),
    every_s=st.integers(1, 15),
    numbers=st.lists(st.integers(0, 10**9), min_size=PROMISE_S, max_size=PROMISE_S),
)
def test_heartbeats_do_not_delay_the_report(beats: list[dict[int, Second]], every_s: int, numbers: list[int]) -> None:
    server = Server(STILL)
    server.second({pid: Second(read=10**7) for pid in PIDS})
    server.liveness.is_new_text("[12:00:01] still waiting for 1 of 8 ranks (0x7f12, 10 s)")
    for second, (doing, number) in enumerate(zip(beats, numbers, strict=True)):
        line = f"[12:{number % 60:02d}:07] still waiting for {number} of 8 ranks (0x{number:x}, {number} s)"
        new = second % every_s == 0 and server.liveness.is_new_text(line)
        server.second(doing, log=LogActivity(new_text=new, new_bytes=len(line)))
    assert server.stalled_after is not None


@settings(max_examples=25, deadline=None)
@given(
    doing=st.lists(
        st.fixed_dictionaries({pid: st.one_of(st.just(SILENT), IDLE, BUSY) for pid in PIDS}), min_size=30, max_size=60
    ),
)
def test_nothing_is_a_stall_before_looks_have_shown_it(doing: list[dict[int, Second]]) -> None:
    server = Server(STILL)
    server._looks_end_at = -1  # looks that never end
    for acts in doing:
        assert server.second(acts).motion != Motion.STALLED


@settings(max_examples=25, deadline=None)
@given(
    doing=st.lists(
        st.fixed_dictionaries({pid: st.one_of(st.just(SILENT), IDLE, WORK) for pid in PIDS}), min_size=30, max_size=60
    ),
    told=st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_more_evidence_of_work_never_makes_a_server_quieter(doing: list[dict[int, Second]], told: list[bool]) -> None:
    plain, told_of = Server(STILL), Server(STILL)
    for acts, new_text in zip(doing, told, strict=False):
        fewer = plain.second(acts)
        more = told_of.second(acts, log=LogActivity(new_text=new_text))
        assert more.quiet_s <= fewer.quiet_s
