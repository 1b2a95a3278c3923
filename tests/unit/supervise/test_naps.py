"""Who sleeps for long is waited for, within bounds; who polls, or waits for somebody, is not."""

import pytest
from tests.unit.supervise.test_liveness import Actor, Scene, scene, unchanged, working

from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.supervise.liveness.history import Need
from firstlight.supervise.liveness.judge import Confirmation
from firstlight.supervise.liveness.suspicion import Sleep

LOOK_S = 2.0
"""How long before they are told of the second look was taken."""


class Sleeper:
    """Its main thread sleeps for `naps_s`, again and again, and shows nothing of what it does in between."""

    def __init__(self, *naps_s: float, exact: bool = True, pid: int = 10) -> None:
        self._naps_s = naps_s
        self._exact = exact
        self._pid = pid
        self._began: float | None = None
        self._nap = 0
        self.awake = False

    def __call__(self, now: Scene) -> None:
        """One second of its life."""
        self._began = now.at if self._began is None else self._began
        if not self.awake and now.at >= self._ends:
            now.actors[self._pid].waits += 1
            self._began, self._nap = now.at, self._nap + 1
            self.awake = self._nap == len(self._naps_s)

    @property
    def _ends(self) -> float:
        return (self._began or 0.0) + self._naps_s[self._nap]

    def shown(self, scene: Scene) -> Confirmation:
        """Two looks that found all as they were, and this one asleep."""
        if self.awake:
            return Confirmation(still=frozenset(scene.actors))
        seen_at = scene.at - LOOK_S
        seconds = self._ends - seen_at if self._exact else self._naps_s[self._nap]
        sleeps = {self._pid: Sleep(seconds=seconds, seen_at=seen_at, exact=self._exact)}
        return Confirmation(still=frozenset(scene.actors), sleeps=sleeps)


def asleep(sleeper: Sleeper, *actors: Actor) -> Scene:
    return scene(*actors, looks=sleeper.shown)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("naps_s", [(40.0, 40.0), (20.0,), (60.0, 60.0), (120.0,), (13.0, 25.0, 50.0)])
def test_attempts_with_long_sleeps_between_them_are_no_stall(naps_s: tuple[float, ...], exact: bool) -> None:
    sleeper = Sleeper(*naps_s, exact=exact)
    retrying = asleep(sleeper)

    def live(now: Scene) -> None:
        sleeper(now)
        if sleeper.awake:
            now.actors[10].read = int(now.actors[10].read) + 50_000_000  # type: ignore[arg-type]

    assert retrying.play(int(sum(naps_s)) + 60, live) == Motion.MOVING


def test_who_sleeps_is_named_with_its_end() -> None:
    sleeper = Sleeper(40.0)
    retrying = asleep(sleeper, Actor(10, "TP0", Role.WORKER, 0), Actor(11, "TP1", Role.WORKER, 1))
    retrying.play(25, sleeper)
    assert retrying.judgement.motion == Motion.QUIET
    assert retrying.judgement.asleep == "TP0 is asleep and wakes in 15 s"
    assert retrying.judgement.why == f"no progress signal for 25 s; {retrying.judgement.asleep}"


def test_who_wakes_and_shows_nothing_is_looked_at_at_once() -> None:
    sleeper = Sleeper(40.0)
    hung = asleep(sleeper)
    assert hung.play(120, sleeper) == Motion.STALLED
    assert hung.looked == [12, 42]
    assert not hung.judgement.asleep


def test_who_wakes_before_the_end_and_shows_nothing_is_looked_at_at_once() -> None:
    sleeper = Sleeper(100.0)
    hung = asleep(sleeper)
    hung.play(30, sleeper)
    hung.actors[10].waits += 1
    hung.looks = unchanged
    assert hung.play(20) == Motion.STALLED
    assert hung.looked[1:] == [33]


def test_a_child_that_slept_and_is_gone_leaves_nothing_to_wait_for() -> None:
    sleeper = Sleeper(100.0, pid=11)
    script = asleep(sleeper, Actor(10, "bash"), Actor(11, "sleep"))
    script.play(30, sleeper)
    del script.actors[11]
    script.looks = unchanged
    assert script.play(20) == Motion.STALLED


def test_attempt_after_attempt_without_success_is_a_stall_in_the_end() -> None:
    sleeper = Sleeper(*[30.0] * 100)
    hung = asleep(sleeper)
    assert hung.play(600, sleeper) == Motion.STALLED
    assert 60 <= hung.judgement.quiet_s <= 140
    assert "is asleep and wakes in" in hung.judgement.why


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("nap_s", [1.0, 5.0, 10.0])
def test_a_poll_is_no_nap(nap_s: float, exact: bool) -> None:
    sleeper = Sleeper(*[nap_s] * 100, exact=exact)
    polling = asleep(sleeper)
    assert polling.play(30, sleeper) == Motion.STALLED
    assert polling.passed_s <= 20


@pytest.mark.parametrize("exact", [True, False])
def test_a_sleep_that_ends_too_late_is_not_waited_for_and_is_told(exact: bool) -> None:
    sleeper = Sleeper(600.0, exact=exact)
    sleeping = asleep(sleeper)
    assert sleeping.play(30, sleeper) == Motion.STALLED
    assert sleeping.passed_s <= 20
    assert "server is asleep and wakes in 9 min" in sleeping.judgement.why


def test_who_sleeps_for_ever_beside_one_who_soon_wakes_hides_nothing() -> None:
    sleeper = Sleeper(40.0)

    def looks(now: Scene) -> Confirmation:
        shown = sleeper.shown(now)
        ages = Sleep(seconds=9000.0, seen_at=now.at - LOOK_S, exact=True)
        return Confirmation(still=shown.still, sleeps={**shown.sleeps, 11: ages})

    retrying = scene(Actor(10), Actor(11, "keeper"), looks=looks)
    assert retrying.play(39, sleeper) == Motion.QUIET
    assert "server is asleep" in retrying.judgement.asleep
    assert retrying.play(30, sleeper) == Motion.STALLED
    assert "keeper is asleep" in retrying.judgement.why


@pytest.mark.parametrize("role", [Role.HELPER, Role.COMPILER])
def test_a_helper_that_sleeps_explains_nothing(role: Role) -> None:
    sleeper = Sleeper(60.0, pid=11)
    hung = asleep(sleeper, Actor(10), Actor(11, "monitor", role))
    assert hung.play(30, sleeper) == Motion.STALLED


def rank_lost(now: Scene) -> dict[str, object]:
    return {"gone": (Actor(99, "TP1", Role.WORKER, 1).exit,)}


def test_a_rank_that_is_gone_is_missed_whoever_sleeps() -> None:
    sleeper = Sleeper(60.0)
    lost = asleep(sleeper, Actor(10, "TP0", Role.WORKER, 0))
    assert lost.play(20, rank_lost) == Motion.STALLED


def test_a_program_that_failed_and_is_tried_again_later_is_not_missed_yet() -> None:
    curl = Actor(99, "curl")
    sleeper = Sleeper(40.0, pid=11)
    script = asleep(sleeper, Actor(10, "bash"), Actor(11, "sleep"), curl)
    script.play(4)
    del script.actors[99]

    def live(now: Scene) -> dict[str, object]:
        sleeper(now)
        return {"gone": (curl.exit,)}

    assert script.play(35, live) == Motion.QUIET
    assert script.play(30, live) == Motion.STALLED


def test_ranks_that_spin_for_one_that_sleeps_are_slow() -> None:
    ranks = [Actor(10 + rank, f"TP{rank}", Role.WORKER, rank) for rank in range(3)]
    sleeper = Sleeper(50.0, 50.0, pid=12)

    def spinning(now: Scene) -> Confirmation:
        shown = sleeper.shown(now)
        return Confirmation(still=frozenset({12}), spinning=frozenset({10, 11}), sleeps=shown.sleeps)

    def spin(now: Scene) -> None:
        sleeper(now)
        now.actors[10].cpu_s += 1.0
        now.actors[11].cpu_s += 1.0

    waiting = scene(*ranks, looks=spinning)
    assert waiting.play(100, spin) == Motion.SLOW
    assert waiting.play(100, spin) == Motion.STALLED


def test_who_is_stopped_is_told_though_another_sleeps() -> None:
    sleeper = Sleeper(60.0)
    stopped = asleep(sleeper, Actor(10, "TP0", Role.WORKER, 0), Actor(11, "TP1", Role.WORKER, 1, state="T"))
    assert stopped.play(20, sleeper) == Motion.STALLED


@pytest.mark.parametrize(
    ("left_s", "slept_s", "motion"),
    [(0.5, 0.0, Motion.STALLED), (4.0, 5.0, Motion.STALLED), (9.0, 5.0, Motion.QUIET)],
)
def test_of_a_thread_it_counts_how_long_that_was_seen_asleep(left_s: float, slept_s: float, motion: Motion) -> None:
    """The main thread has waited for it all the while, which says nothing."""

    def looks(now: Scene) -> Confirmation:
        sleep = Sleep(seconds=left_s + LOOK_S, seen_at=now.at - LOOK_S, exact=True, slept_s=slept_s)
        return Confirmation(still=frozenset(now.actors), sleeps={10: sleep})

    assert scene(looks=looks).play(20) == motion


def test_looks_that_find_life_put_nothing_off() -> None:
    def living(now: Scene) -> Confirmation:
        return Confirmation(moving=frozenset(now.actors), sleeps={10: Sleep(seconds=90, seen_at=now.at, exact=True)})

    slow, as_slow = scene(looks=living), scene(looks=working)
    slow.play(60)
    as_slow.play(60)
    assert slow.looked == as_slow.looked


def test_a_silence_that_a_nap_explains_is_not_learnt() -> None:
    sleeper = Sleeper(60.0)
    start = asleep(sleeper)
    start.play(70, sleeper)
    assert start.liveness.needed[Phase.WEIGHTS].quiet_s <= 20


def test_what_is_learnt_is_allowed_beside_naps() -> None:
    sleeper = Sleeper(30.0)
    known = asleep(sleeper)
    known.liveness.expect({Phase.WEIGHTS: Need(quiet_s=40.0, duration_s=90.0)})
    known.play(100, sleeper)
    assert known.looked == [62]
