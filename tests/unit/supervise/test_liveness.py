"""Liveness is told measurements second by second; what it says of healthy starts and of stalls is the contract."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role, Signal
from firstlight.gpus.watching import GpuSample
from firstlight.supervise.liveness.history import Need
from firstlight.supervise.liveness.judge import Confirmation, Judgement, Liveness, LogActivity, Suspicion
from firstlight.supervise.liveness.sampling import MainThread, Measurement

KIB = 1024
MIB = 1024 * KIB
LOOKS_TAKE_S = 7
REFUSED = Gap(what="bytes read and written", reason=GapReason.NO_PERMISSION)


@dataclass
class Actor:
    """A process of the scene: counters that the test moves."""

    pid: int
    name: str = "server"
    role: Role = Role.OTHER
    rank: int = -1
    state: str = "S"
    cpu_s: float = 1.0
    faults: int = 0
    memory: int = 500 * MIB
    shared: int = 10 * MIB
    read: int | Gap = 0
    write: int | Gap = 0
    disk: int | Gap = 0
    sockets: int = 0
    threads: int = 1
    children_cpu_s: float = 0.0
    waits: int = 0
    """How often its main thread, which did all that it computed, went to wait."""

    @property
    def process(self) -> Process:
        id_ = ProcessId(pid=self.pid, started=self.pid)
        return Process(id=id_, ppid=1, name=self.name, cmdline=(self.name,), role=self.role, rank=self.rank)

    @property
    def sample(self) -> ProcessSample:
        return ProcessSample(
            id=self.process.id,
            state=self.state,
            cpu_s=self.cpu_s,
            threads=self.threads,
            major_faults=self.faults,
            memory_bytes=self.memory,
            shared_bytes=self.shared,
            read_bytes=self.read,
            write_bytes=self.write,
            disk_read_bytes=self.disk,
            children_cpu_s=self.children_cpu_s,
        )

    @property
    def exit(self) -> Exit:
        return Exit(id=self.process.id, name=self.name, at=0.0, code=1, role=self.role, rank=self.rank)


Looks = Callable[["Scene"], Confirmation]


def unchanged(scene: "Scene") -> Confirmation:
    """Two looks that found every process as it was."""
    return Confirmation(still=frozenset(scene.actors))


def working(scene: "Scene") -> Confirmation:
    """Two looks that found other stacks."""
    return Confirmation(moving=frozenset(scene.actors))


def refused(_: "Scene") -> Confirmation:
    """Two looks that were not allowed to see a stack."""
    return Confirmation()


@dataclass
class Scene:
    """A server and its watcher, who takes two looks whenever they are wanted."""

    actors: dict[int, Actor]
    looks: Looks = unchanged
    liveness: Liveness = field(default_factory=Liveness)
    phase: Phase = Phase.WEIGHTS
    at: float = 5000.0
    passed_s: int = 0
    looked: list[int] = field(default_factory=list)
    judgement: Judgement = field(default_factory=lambda: Liveness().initial())
    socket_gap: Gap | None = None
    gpus: tuple[GpuSample, ...] | Gap = ()
    _confirm_at: int | None = None

    def second(self, **said: Any) -> Judgement:
        """One second passes and is measured."""
        self.at += 1.0
        self.passed_s += 1
        sockets = self.socket_gap or {pid: actor.sockets for pid, actor in self.actors.items()}
        samples = {actor.process.id: actor.sample for actor in self.actors.values()}
        processes = {actor.process.id: actor.process for actor in self.actors.values()}
        main = {actor.process.id: MainThread(actor.cpu_s, actor.waits) for actor in self.actors.values()}
        measurement = Measurement(self.at, 1.0, samples, sockets, self.gpus, main_threads=main)
        self.judgement = self.liveness.update(measurement, processes=processes, phase=self.phase, **said)
        self._look()
        return self.judgement

    def _look(self) -> None:
        if self._confirm_at is None and self.judgement.wants_look:
            self.looked.append(self.passed_s)
            self._confirm_at = self.passed_s + LOOKS_TAKE_S
        if self._confirm_at == self.passed_s:
            self._confirm_at = None
            self.judgement = self.liveness.confirm(self.looks(self))

    def play(self, seconds: int, act: Callable[["Scene"], dict[str, Any] | None] = lambda _: None) -> Motion:
        """`act` moves the actors each second and may return what else `update` is told; stops at a stall."""
        for _ in range(seconds):
            if self.second(**(act(self) or {})).motion == Motion.STALLED:
                break
        return self.judgement.motion


def scene(*actors: Actor, looks: Looks = unchanged) -> Scene:
    """A server that has just started and read a little."""
    cast = actors or (Actor(10),)
    made = Scene({actor.pid: actor for actor in cast}, looks)
    made.second()
    made.second(log=LogActivity(new_text=True))
    made.passed_s = 0
    return made


# Stalls


def test_silence_is_asked_about_and_reported_within_half_a_minute() -> None:
    silent = scene(Actor(10), Actor(11))
    assert silent.play(30) == Motion.STALLED
    assert silent.looked == [12]
    assert silent.judgement.quiet_s <= 30
    assert "two looks showed no change" in silent.judgement.why


def test_no_silence_is_long_enough_by_itself() -> None:
    ignored = scene()
    for _ in range(600):
        ignored._confirm_at = 10**9  # looks that never end
        ignored.second()
    assert ignored.judgement.motion == Motion.QUIET
    assert ignored.judgement.wants_look


def heartbeat(scene: Scene) -> dict[str, Any]:
    """What a stuck server does: a little CPU, a keep-alive, the same line with other numbers."""
    actor = scene.actors[10]
    actor.cpu_s += 0.03
    actor.waits += 1
    actor.sockets += 60
    actor.read = int(actor.read) + 3 * KIB if not isinstance(actor.read, Gap) else actor.read
    text = f"[{scene.passed_s:02d}:07] Waiting for 1 core engine proc(s) ({scene.passed_s} s)"
    beat = scene.passed_s % 10 == 0
    return {"log": LogActivity(new_text=beat and scene.liveness.is_new_text(text), new_bytes=60 * beat)}


def test_a_heartbeat_does_not_hide_a_stall() -> None:
    beating = scene(Actor(10), Actor(11))
    assert beating.play(30, heartbeat) == Motion.STALLED
    assert "heartbeat" in beating.judgement.why


def test_a_stall_says_that_the_log_repeats_itself() -> None:
    repeating, silent = scene(), scene()
    assert repeating.play(30, lambda _: {"log": LogActivity(new_bytes=80)}) == Motion.STALLED
    assert "nothing new in the log (the same line again and again)" in repeating.judgement.why
    assert silent.play(30) == Motion.STALLED
    assert "no new log text" in silent.judgement.why


def test_a_heartbeat_of_a_process_that_cannot_be_seen_needs_two_proofs() -> None:
    beating = scene(Actor(10), Actor(11), looks=refused)
    assert beating.play(30, heartbeat) == Motion.STALLED
    assert len(beating.looked) == 2


def test_a_worker_stopped_by_a_signal_is_a_stall_even_while_others_load() -> None:
    stopped = scene(Actor(10, "TP0", Role.WORKER, 0), Actor(11, "TP1", Role.WORKER, 1))

    def load(now: Scene) -> None:
        now.actors[10].read = int(now.actors[10].read) + 50 * MIB  # type: ignore[arg-type]
        now.actors[11].state = "T"

    assert stopped.play(15, load) == Motion.STALLED
    assert stopped.judgement.stopped_pids == {11}
    assert "TP1 is stopped by a signal" in stopped.judgement.why


@pytest.mark.parametrize("role", [Role.HELPER, Role.COMPILER])
def test_a_stopped_helper_matters_once_all_is_silent(role: Role) -> None:
    stopped = scene(Actor(10), Actor(11, "helper", role))

    def load(now: Scene) -> None:
        now.actors[11].state = "T"
        if now.passed_s < 40:
            now.actors[10].read = int(now.actors[10].read) + 50 * MIB  # type: ignore[arg-type]

    assert stopped.play(40, load) == Motion.MOVING
    assert stopped.play(20, load) == Motion.STALLED


def test_a_stopped_process_that_goes_on_ends_the_stall() -> None:
    stopped = scene(Actor(10))
    stopped.actors[10].state = "T"
    assert stopped.play(30) == Motion.STALLED
    stopped.actors[10].state = "S"
    stopped.actors[10].cpu_s += 1.0
    assert stopped.second().motion == Motion.SLOW


def test_a_process_that_is_traced_is_not_stopped() -> None:
    traced = scene(Actor(10, state="t"))
    traced.play(8)
    assert not traced.looked


def spin(scene: Scene) -> dict[str, Any]:
    scene.actors[10].cpu_s += 1.0
    return {}


def spinning(scene: Scene) -> Confirmation:
    """Two looks that found 10 in the same busy-wait and all others as they were."""
    return Confirmation(still=frozenset(scene.actors) - {10}, spinning=frozenset({10}))


def test_a_rank_that_spins_for_one_that_is_gone_is_a_stall() -> None:
    gone = Actor(11, "TP1", Role.WORKER, 1)
    lost = scene(Actor(10, "TP0", Role.WORKER, 0), looks=spinning)
    assert lost.play(30, lambda now: spin(now) | {"gone": (gone.exit,)}) == Motion.STALLED
    assert "TP1 (pid 11) exited" in lost.judgement.why
    assert lost.judgement.quiet_s >= 8
    assert lost.passed_s <= 20


def test_a_rank_that_spins_for_one_that_is_stopped_is_a_stall() -> None:
    stopped = scene(Actor(10, "TP0", Role.WORKER, 0), Actor(11, "TP1", Role.WORKER, 1, state="T"), looks=spinning)
    assert stopped.play(20, spin) == Motion.STALLED


def crowd(*spinning: int) -> Callable[[Scene], Confirmation]:
    """Looks that find these pids in the same busy-wait, and all others as they were."""
    return lambda scene: Confirmation(still=frozenset(scene.actors) - set(spinning), spinning=frozenset(spinning))


def test_most_ranks_spinning_for_one_that_is_blocked_are_a_stall_after_a_minute() -> None:
    ranks = [Actor(10 + rank, f"TP{rank}", Role.WORKER, rank) for rank in range(3)]
    blocked = scene(*ranks, looks=crowd(10, 11))

    def spin_both(now: Scene) -> dict[str, Any]:
        now.actors[11].cpu_s += 1.0
        return spin(now)

    assert blocked.play(59, spin_both) == Motion.SLOW
    assert blocked.play(120, spin_both) == Motion.STALLED
    assert "spin" in blocked.judgement.why


def test_one_rank_in_a_long_native_step_while_its_peers_wait_is_slow() -> None:
    ranks = [Actor(10 + rank, f"TP{rank}", Role.WORKER, rank) for rank in range(3)]
    compiling = scene(*ranks, looks=spinning)
    assert compiling.play(600, spin) == Motion.SLOW


def test_a_server_has_time_to_fall_by_itself_when_a_rank_is_lost() -> None:
    gone = Actor(11, "TP1", Role.WORKER, 1)
    lost = scene(Actor(10))
    lost.play(7, lambda _: {"gone": (gone.exit,)})
    assert not lost.looked
    assert lost.play(20, lambda _: {"gone": (gone.exit,)}) == Motion.STALLED


def test_a_rank_lost_while_others_still_load_waits_for_them() -> None:
    gone = Actor(11, "TP1", Role.WORKER, 1)
    lost = scene(Actor(10))

    def load(now: Scene) -> dict[str, Any]:
        now.actors[10].disk = int(now.actors[10].disk) + MIB  # type: ignore[arg-type]
        return {"gone": (gone.exit,)}

    assert lost.play(60, load) == Motion.MOVING


def test_a_script_that_failed_at_once_is_no_lost_rank() -> None:
    script = Actor(99, "git")
    compiling = scene(looks=spinning)
    assert compiling.play(200, lambda now: spin(now) | {"gone": (script.exit,)}) == Motion.SLOW


def test_what_a_rank_forked_for_a_moment_is_no_lost_rank() -> None:
    rank, forked = Actor(10, "TP0", Role.WORKER, 0), Actor(99, "TP0", Role.WORKER, 0)
    done = msgspec.structs.replace(forked.exit, code=0)
    compiling = scene(rank, looks=spinning)
    assert compiling.play(200, lambda now: spin(now) | {"gone": (done,)}) == Motion.SLOW


# Healthy starts


def test_a_trickle_of_fifty_kilobytes_a_second_moves() -> None:
    def trickle(now: Scene) -> None:
        now.actors[10].read = int(now.actors[10].read) + 50_000  # type: ignore[arg-type]

    loading = scene()
    assert loading.play(300, trickle) == Motion.MOVING
    assert not loading.looked
    assert "server reads 50 kB/s" in loading.judgement.why


def test_a_trickle_that_the_kernel_counts_nowhere_but_in_memory_moves() -> None:
    def trickle(now: Scene) -> None:
        now.actors[10].memory += 50_000

    loading = scene()
    assert loading.play(300, trickle) == Motion.MOVING
    assert loading.judgement.signals == (Signal.MEMORY,)


def test_a_small_leak_is_no_progress() -> None:
    def leak(now: Scene) -> None:
        now.actors[10].memory += 30_000

    assert scene().play(30, leak) == Motion.STALLED


def test_a_thread_for_every_question_of_a_client_is_no_progress() -> None:
    def ask(now: Scene) -> None:
        now.actors[10].threads += 1
        now.actors[10].memory += 90_000

    asked = scene()
    asked.actors[10].threads = 20
    assert asked.play(30, ask) == Motion.STALLED


def test_growth_beyond_what_new_threads_cost_moves() -> None:
    def load(now: Scene) -> None:
        now.actors[10].threads += 1
        now.actors[10].memory += 90_000 + 128 * KIB

    assert scene().play(60, load) == Motion.MOVING


def test_a_heap_that_breathes_is_no_progress() -> None:
    def breathe(now: Scene) -> None:
        now.actors[10].memory = 500 * MIB + (now.passed_s % 7) * MIB

    breathing = scene()
    breathing.play(5, breathe)
    assert breathing.play(45, breathe) == Motion.STALLED


def test_a_download_moves() -> None:
    def download(now: Scene) -> None:
        now.actors[10].sockets += 30_000

    loading = scene()
    assert loading.play(120, download) == Motion.MOVING
    assert Signal.SOCKET in loading.judgement.signals


def test_a_compile_in_a_child_moves() -> None:
    def compile_on(now: Scene) -> None:
        now.actors[12].cpu_s += 0.9

    compiling = scene(Actor(10), Actor(12, "cicc", Role.COMPILER))
    assert compiling.play(150, compile_on) == Motion.MOVING
    assert not compiling.looked
    assert "cicc compiles" in compiling.judgement.why


def test_an_idle_compile_worker_is_no_progress() -> None:
    idle = scene(Actor(10), Actor(12, "inductor", Role.COMPILER))
    assert idle.play(30) == Motion.STALLED


def compilers_come_and_go(now: Scene) -> None:
    """A build that starts a short-lived compiler every second."""
    now.actors = {10: now.actors[10]}
    pid = 100 + now.passed_s
    now.actors[pid] = Actor(pid, "cc1plus", Role.COMPILER, cpu_s=0.8)


def test_short_lived_compilers_count_with_all_they_did_since_they_were_born() -> None:
    building = scene()
    assert building.play(60, compilers_come_and_go) != Motion.STALLED
    assert not building.looked


@pytest.mark.parametrize("share", [0.05, 0.8])
def test_programs_that_come_and_go_between_two_samples_compute(share: float) -> None:
    def run_programs(now: Scene) -> None:
        now.actors[10].children_cpu_s += share

    building = scene()
    assert building.play(120, run_programs) == Motion.SLOW
    assert "server computes" in building.judgement.why


def test_a_script_that_asks_each_second_whether_the_server_is_up_is_no_progress() -> None:
    def ask(now: Scene) -> None:
        now.actors[10].children_cpu_s += 0.02

    assert scene().play(30, ask) == Motion.STALLED


def test_a_child_that_had_lived_long_delays_the_report_by_a_moment_at_most() -> None:
    reaping = scene()
    reaping.play(10)
    reaping.actors[10].children_cpu_s += 3600.0
    reaping.passed_s = 0
    assert reaping.play(30) == Motion.STALLED


def test_computing_without_a_word_is_slow_and_never_a_stall() -> None:
    for looks in (spinning, working, refused):
        compiling = scene(looks=looks)
        assert compiling.play(300, spin) == Motion.SLOW
        assert "nothing else has told of progress" in compiling.judgement.why
        assert len(compiling.looked) < 10


def test_computing_on_a_crowded_machine_moves() -> None:
    def starve(now: Scene) -> None:
        now.actors[10].state = "R"
        now.actors[10].cpu_s += 0.02

    starved = scene(looks=spinning)
    assert starved.play(120, starve) == Motion.SLOW


def test_a_thread_that_a_crowd_leaves_less_than_a_heartbeat_computes_all_the_same() -> None:
    """Its main thread sleeps, so only the looks find a thread that wants a CPU."""

    def starve(now: Scene) -> None:
        now.actors[10].cpu_s += 0.09

    assert scene(looks=spinning).play(200, starve) != Motion.STALLED


def test_a_tenth_of_a_second_in_one_go_is_work_however_long_the_pauses() -> None:
    def burst(now: Scene) -> None:
        actor = now.actors[10]
        actor.waits += 1
        actor.cpu_s += 0.12 if now.passed_s % 8 == 0 else 0.0

    assert scene().play(120, burst) != Motion.STALLED


def test_work_in_one_go_is_seen_across_a_sample() -> None:
    def burst(now: Scene) -> None:
        actor = now.actors[10]
        actor.waits += 1 if now.passed_s % 8 == 1 else 0
        actor.cpu_s += 0.045 if now.passed_s % 8 in {0, 1} else 0.0

    assert scene().play(120, burst) != Motion.STALLED


def test_a_tenth_of_a_second_in_many_short_goes_is_a_heartbeat() -> None:
    def beat(now: Scene) -> None:
        actor = now.actors[10]
        actor.waits += 10
        actor.cpu_s += 0.12 if now.passed_s % 8 == 0 else 0.0

    assert scene().play(30, beat) == Motion.STALLED


def test_a_scrape_of_metrics_in_one_go_is_no_progress_of_a_server_that_hangs() -> None:
    def scrape(now: Scene) -> dict[str, Any]:
        now.actors[10].waits += 1
        now.actors[10].cpu_s += 0.12 if now.passed_s % 8 == 0 else 0.0
        return {"serving": True, "in_flight": 1}

    assert scene().play(30, scrape) == Motion.STALLED


def test_a_loop_that_naps_and_polls_is_a_heartbeat_though_a_crowd_keeps_it_ready() -> None:
    def poll(now: Scene) -> None:
        actor = now.actors[10]
        actor.state = "R"
        actor.waits += 1000
        actor.cpu_s += 0.05

    assert scene().play(30, poll) == Motion.STALLED


def test_looks_that_find_life_put_off_the_next_ones() -> None:
    slow = scene(looks=working)
    assert slow.play(200) != Motion.STALLED
    gaps = [b - a for a, b in zip(slow.looked, slow.looked[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 40


def test_a_phase_never_seen_before_is_progress_and_one_that_comes_back_is_not() -> None:
    phases = scene()
    for phase in (Phase.KV_CACHE, Phase.WARMUP):
        phases.play(10)
        phases.phase = phase
        assert phases.second().signals == (Signal.PHASE,)
    phases.play(6)
    phases.phase = Phase.KV_CACHE
    assert Signal.PHASE not in phases.second().signals


# Serving


def test_a_server_with_nothing_to_do_may_be_silent() -> None:
    idle = scene()
    assert idle.play(300, lambda _: {"serving": True, "in_flight": 0}) == Motion.QUIET
    assert not idle.looked
    assert "no request is in flight" in idle.judgement.why


def test_requests_in_flight_without_a_signal_are_a_stall() -> None:
    hung = scene()
    hung.play(100, lambda _: {"serving": True, "in_flight": 0})
    hung.passed_s = 0
    assert hung.play(30, lambda _: {"serving": True, "in_flight": 2}) == Motion.STALLED


def test_where_requests_cannot_be_counted_silence_says_nothing() -> None:
    unknown = scene()
    gap = Gap(what="requests in flight", reason=GapReason.NOT_SUPPORTED)
    assert unknown.play(100, lambda _: {"serving": True, "in_flight": gap}) == Motion.QUIET


def test_a_rank_lost_while_serving_is_a_stall_with_nothing_in_flight() -> None:
    gone = Actor(11, "TP1", Role.WORKER, 1)
    serving = scene()
    assert serving.play(20, lambda _: {"serving": True, "gone": (gone.exit,)}) == Motion.STALLED


def test_health_checks_are_no_progress_of_a_server_that_hangs() -> None:
    hung = scene(Actor(10, "APIServer", Role.FRONT), Actor(11, "EngineCore", Role.ENGINE))

    def scraped(now: Scene) -> dict[str, Any]:
        if now.passed_s % 15 == 0:
            now.actors[10].write = int(now.actors[10].write) + 100_000  # type: ignore[arg-type]
        return {"serving": True, "in_flight": 3}

    assert hung.play(30, scraped) == Motion.STALLED


def test_growth_is_no_progress_of_a_server_with_requests_in_flight() -> None:
    hung = scene()

    def take_in(now: Scene) -> dict[str, Any]:
        now.actors[10].memory += MIB
        now.actors[10].shared += MIB
        return {"serving": True, "in_flight": 1}

    assert hung.play(30, take_in) == Motion.STALLED


# What cannot be seen, and what history knows


def test_with_neither_bytes_nor_sockets_silence_must_last_twice_as_long() -> None:
    blind = scene(Actor(10, read=REFUSED, write=REFUSED, disk=REFUSED))
    blind.socket_gap = Gap(what="bytes on sockets", reason=GapReason.NOT_SUPPORTED)
    blind.play(40)
    assert blind.looked[0] == 24


def test_a_phase_may_be_as_silent_as_it_was_in_a_good_start_and_half_again() -> None:
    known = scene()
    known.liveness.expect({Phase.WEIGHTS: Need(quiet_s=40.0, duration_s=90.0)})
    known.play(100)
    assert known.looked == [62]


def test_a_start_tells_what_each_phase_needed() -> None:
    start = scene(looks=working)
    start.play(9)
    start.phase = Phase.WARMUP
    start.play(4)
    needed = start.liveness.needed
    assert needed[Phase.WEIGHTS].quiet_s == pytest.approx(9, abs=1)
    assert needed[Phase.WARMUP].duration_s == pytest.approx(3, abs=1)


def test_time_that_nobody_watched_is_no_silence() -> None:
    slept = scene()
    slept.play(5)
    slept.at += 3600.0
    judgement = slept.second()
    assert judgement.quiet_s <= 9
    assert not judgement.wants_look


def gpu(**numbers: Any) -> GpuSample:
    spins = {"utilisation": 100, "memory_activity": 0, "power_w": 70, "power_limit_w": 400, "memory_bytes": 0}
    return GpuSample(index=0, name="GPU", **(spins | numbers))


@pytest.mark.parametrize("numbers", [{"memory_activity": 20}, {"power_w": 300}])
def test_a_gpu_that_moves_memory_or_burns_power_works(numbers: dict[str, int]) -> None:
    computing = scene()

    def renew(now: Scene) -> None:
        now.gpus = (gpu(**numbers),)

    assert computing.play(60, renew) == Motion.MOVING
    assert computing.judgement.signals == (Signal.GPU,)


def test_a_gpu_at_full_utilisation_and_idle_watts_spins() -> None:
    hung = scene()

    def renew(now: Scene) -> None:
        now.gpus = (gpu(),)

    assert hung.play(30, renew) == Motion.STALLED


def test_an_old_answer_of_the_driver_is_no_new_work() -> None:
    hung = scene()
    hung.gpus = (gpu(memory_activity=50),)
    assert hung.play(30) == Motion.STALLED


def test_a_log_that_passes_through_a_pipe_is_no_progress_of_its_own() -> None:
    logging = scene(Actor(10), Actor(11, "tee"))

    def spam(now: Scene) -> dict[str, Any]:
        for pid in (10, 11):
            now.actors[pid].write = int(now.actors[pid].write) + 200_000  # type: ignore[arg-type]
        return {"log": LogActivity(new_bytes=200_000)}

    assert logging.play(30, spam) == Motion.STALLED


def test_the_judgement_has_the_numbers_for_a_screen() -> None:
    shown = scene(Actor(10, "TP0", Role.WORKER, 0))

    def load(now: Scene) -> None:
        now.actors[10].read = int(now.actors[10].read) + 2 * MIB  # type: ignore[arg-type]
        now.actors[10].cpu_s += 0.4

    shown.play(10, load)
    (process,) = shown.judgement.processes
    assert process.read_bytes_s == pytest.approx(2 * MIB, rel=0.01)
    assert process.cpu_cores == pytest.approx(0.4, rel=0.01)
    assert shown.judgement.threshold_s == 12
    assert shown.judgement.suspicion is None
    shown.play(12)
    assert shown.judgement.suspicion == Suspicion.QUIET
