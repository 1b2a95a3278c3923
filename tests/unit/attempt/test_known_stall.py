"""When a stall that is known is looked for, and when it is one."""

import msgspec
import pytest

from firstlight.attempt.known_stall import AGAIN_S, APART_S, QUIET_S, KnownStall
from firstlight.core.graph import Signature
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.diagnose import Change, Difference, ProcessChange
from firstlight.diagnose.compare import Stacks
from firstlight.supervise.liveness.activity import ProcessMotion
from firstlight.supervise.liveness.judge import Judgement, Thresholds
from firstlight.supervise.liveness.suspicion import Sleep

KNOWN = Signature(digest="aaaa", phase="weights", waits=())
OTHER = Signature(digest="bbbb", phase="weights", waits=())
LONG = QUIET_S + APART_S


def judged(quiet_s: float, threshold_s: float = Thresholds().quiet_s, motion: Motion = Motion.QUIET) -> Judgement:
    return Judgement(motion=motion, why="", quiet_s=quiet_s, threshold_s=threshold_s)


def looks(*changes: Change) -> Difference:
    processes = tuple(
        ProcessChange(
            id=ProcessId(pid=pid, started=1),
            name="server",
            change=change,
            why="",
            cpu=0.0,
            read_bytes=0,
            write_bytes=0,
            memory_bytes=0,
            major_faults=0,
            stacks=Stacks.UNCHANGED,
        )
        for pid, change in enumerate(changes, start=1)
    )
    return Difference(seconds=2.0, processes=processes)


def test_it_is_looked_for_in_its_phase_after_some_quiet() -> None:
    known = KnownStall(KNOWN)
    assert known.wants_look(judged(QUIET_S), Phase.WEIGHTS, 1.0)
    assert not known.wants_look(judged(QUIET_S - 0.1), Phase.WEIGHTS, 1.0)
    assert not known.wants_look(judged(QUIET_S), Phase.COMPILE, 1.0)


def test_nothing_is_looked_for_where_no_stall_is_known() -> None:
    assert not KnownStall(None).wants_look(judged(100.0), Phase.WEIGHTS, 1.0)


def test_a_phase_that_good_starts_were_quiet_in_is_given_its_time() -> None:
    patient = judged(QUIET_S, threshold_s=Thresholds().quiet_s + 1)
    assert not KnownStall(KNOWN).wants_look(patient, Phase.WEIGHTS, 1.0)


def test_the_same_signature_between_still_looks_is_the_stall() -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.STILL, Change.STILL), {}, judged(LONG), 1.0, lambda: KNOWN)
    assert known.seen


@pytest.mark.parametrize("change", [Change.MOVING, Change.SPINNING, Change.UNKNOWN])
def test_whoever_moves_or_cannot_be_seen_speaks_against_it(change: Change) -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.STILL, change), {}, judged(LONG), 1.0, lambda: KNOWN)
    assert not known.seen


@pytest.mark.parametrize("found", [OTHER, None])
def test_another_signature_is_another_stall(found: Signature | None) -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.STILL), {}, judged(LONG), 1.0, lambda: found)
    assert not known.seen


def asleep(seconds: float) -> dict[int, Sleep]:
    return {1: Sleep(seconds=seconds, seen_at=100.0, exact=True)}


def judged_of_one(quiet_s: float) -> Judgement:
    one = ProcessMotion(
        id=ProcessId(pid=1, started=1),
        name="server",
        role=Role.OTHER,
        rank=-1,
        state="S",
        cpu_cores=0.0,
        read_bytes_s=0.0,
        write_bytes_s=0.0,
        socket_bytes_s=0.0,
        growth_bytes_s=0.0,
        signals=(),
        quiet_s=quiet_s,
        waiting_s=quiet_s,
    )
    return msgspec.structs.replace(judged(quiet_s), processes=(one,))


@pytest.mark.parametrize(("seconds", "seen"), [(35.0, False), (1.0, True), (900.0, True)])
def test_who_sleeps_and_will_soon_wake_is_waited_for(seconds: float, seen: bool) -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.STILL), asleep(seconds), judged_of_one(LONG), 100.0, lambda: KNOWN)
    assert known.seen == seen


def test_a_signal_between_the_looks_speaks_against_it() -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.STILL), {}, judged(QUIET_S), 1.0, lambda: KNOWN)
    assert not known.seen


def test_it_is_not_looked_for_all_the_time() -> None:
    known = KnownStall(KNOWN)
    known.take(looks(Change.MOVING), {}, judged(LONG), 10.0, lambda: KNOWN)
    assert not known.wants_look(judged(LONG), Phase.WEIGHTS, 10.0 + AGAIN_S - 0.1)
    assert known.wants_look(judged(LONG), Phase.WEIGHTS, 10.0 + AGAIN_S)
