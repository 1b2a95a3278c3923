"""What liveness promises whatever a server does: not wrong about one that works, not late about one that is stuck."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.supervise.liveness.judge import Confirmation, Judgement, Liveness, LogActivity, Thresholds
from firstlight.supervise.liveness.sampling import Measurement
from firstlight.supervise.liveness.signals import KIB

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
    socket: int = 0
    memory: int = 0
    faults: int = 0
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
        measurement = Measurement(at, 1.0, samples, sockets, ())
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
        socket=total.socket + act.socket,
        memory=max(0, total.memory + act.memory),
        faults=total.faults + act.faults,
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
        shared_bytes=0,
        read_bytes=total.read,
        write_bytes=0,
        disk_read_bytes=total.disk,
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
IDLE = st.builds(Second, cpu_s=st.floats(0, 0.08), read=st.integers(0, 6 * KIB), socket=st.integers(0, KIB))
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
