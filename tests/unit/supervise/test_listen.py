"""What is kept of a log as it is read."""

from pathlib import Path

from firstlight.clock import SystemClock
from firstlight.core.events import LogSeen
from firstlight.engines import profile
from firstlight.supervise.log.capture import READ_BYTES, LogFollower
from firstlight.supervise.log.listen import LogListener
from firstlight.supervise.log.phases import PhaseTracker
from firstlight.supervise.stamp import Stamps


def heard(tmp_path: Path, log: str, engine: str = "generic") -> LogListener:
    written = tmp_path / "stderr.log"
    written.write_text(log)
    clock = SystemClock()
    follower = LogFollower(written, "stderr", clock)
    listener = LogListener(
        lambda: [follower], PhaseTracker(profile(engine), clock.wall()), lambda _: True, clock, Stamps(clock)
    )
    told = list(listener.drain())
    assert [event.text for event in told if isinstance(event, LogSeen) and event.first_error][-1:] == (
        [listener.first_error.text] if listener.first_error else []
    )
    return listener


def test_the_first_error_is_not_the_headline_over_it(tmp_path: Path) -> None:
    log = 'ERROR: start failed\nTraceback (most recent call last):\n  File "x.py", line 1, in f\nmy.Torn: shard 3\n'
    first = heard(tmp_path, log + "OSError: later\n").first_error
    assert first is not None
    assert first.message == "my.Torn: shard 3"


def test_a_log_that_gives_its_engine_away_is_read_on_as_that_engines(tmp_path: Path) -> None:
    log = "(EngineCore pid=7) INFO 11-29 12:42:10 [core.py:133] hello\nRuntimeError: Executor failed.\nOSError: x\n"
    first = heard(tmp_path, log).first_error
    assert first is not None
    assert first.message == "OSError: x"


def test_an_old_log_is_caught_up_with_beyond_a_megabyte_without_a_line(tmp_path: Path) -> None:
    written = tmp_path / "stderr.log"
    written.write_bytes(b"x" * (2 * READ_BYTES) + b"\nready\n")
    clock = SystemClock()
    follower = LogFollower(written, "stderr", clock)
    tracker = PhaseTracker(profile("generic"), clock.wall())
    log = LogListener(lambda: [follower], tracker, lambda _: True, clock, Stamps(clock))
    log.catch_up()
    assert log.lines[-1].text == "ready"


def test_a_private_key_in_a_log_is_kept_nowhere(tmp_path: Path) -> None:
    body = "MHcCAQEEIB8yVZ3mQ0kTq1"
    written = tmp_path / "stderr.log"
    written.write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n{body[:5]}==\n-----END PRIVATE KEY-----\nbegins\n")
    clock = SystemClock()
    follower = LogFollower(written, "stderr", clock)
    tracker = PhaseTracker(profile("generic"), clock.wall())
    log = LogListener(lambda: [follower], tracker, lambda _: True, clock, Stamps(clock), tell_all=True)
    told = list(log.drain())
    kept = [line.text for line in log.kept]
    assert (kept[1:3], kept[-1]) == (["***", "***"], "begins")
    assert body[:5] not in repr(told) + repr(kept)
