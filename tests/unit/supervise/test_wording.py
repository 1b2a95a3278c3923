"""The sentences of a judgement say what was measured, and nothing that the numbers do not bear out."""

from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import Role, Signal
from firstlight.supervise.liveness import wording
from firstlight.supervise.liveness.activity import Activity, ProcessMotion
from firstlight.supervise.liveness.suspicion import Facts, Suspicion


def process(pid: int = 7, name: str = "front", **rates: float) -> ProcessMotion:
    every = {
        "cpu_cores": 0.0,
        "read_bytes_s": 0.0,
        "write_bytes_s": 0.0,
        "socket_bytes_s": 0.0,
        "growth_bytes_s": 0.0,
    }
    return ProcessMotion(
        id=ProcessId(pid=pid, started=1),
        name=name,
        role=Role.FRONT,
        rank=-1,
        state="S",
        signals=(Signal.READ,),
        quiet_s=0.0,
        **{**every, **rates},
    )


def facts(*processes: ProcessMotion, now: float = 9.0, progress_at: float = 6.0) -> Facts:
    return Facts(
        now=now,
        progress_at=progress_at,
        computed_at=0.0,
        stopped_since={},
        lost_since=None,
        peer_lost=False,
        expecting=True,
        allowed_s=12.0,
        cpu_only_s=12.0,
        processes={each.id.pid: each for each in processes},
    )


def reading(rate: float) -> str:
    reader = process(read_bytes_s=rate)
    return wording.moving(Activity({Signal.READ: 9.0}, {7: reader}), facts(reader))


def test_a_rate_is_told_while_it_lasts() -> None:
    assert reading(12_000_000) == "front reads 12 MB/s"


def test_a_rate_that_has_dropped_since_is_not_told_as_zero() -> None:
    assert reading(0) == "front has read"
    assert reading(3) == "front has read"


def test_before_the_first_sample_nothing_is_claimed() -> None:
    assert wording.moving(Activity({}, {}), facts(now=0.0, progress_at=0.0)) == "no sample yet"


def test_between_two_signs_of_progress_the_last_is_dated() -> None:
    one = process()
    assert wording.moving(Activity({}, {7: one}), facts(one)) == "the last sign of progress was 3 s ago"


def test_a_log_that_says_one_thing_again_and_again_is_not_called_silent() -> None:
    silent = facts(process())
    assert "no new log text for 3 s" in wording.stalled(Suspicion.QUIET, silent, ())
    assert "no new log text for 3 s" in wording.stalled(Suspicion.QUIET, silent._replace(repeats=1), ())
    told = wording.stalled(Suspicion.QUIET, silent._replace(repeats=4), ())
    assert "nothing new in the log (the same line again and again) for 3 s" in told
