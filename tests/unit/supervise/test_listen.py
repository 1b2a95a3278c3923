"""What is kept of a log as it is read."""

from pathlib import Path

from firstlight.clock import SystemClock
from firstlight.engines import profile
from firstlight.supervise.log.capture import LogFollower
from firstlight.supervise.log.listen import LogListener
from firstlight.supervise.log.phases import PhaseTracker
from firstlight.supervise.stamp import Stamps


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
