"""SGLang through the real command line, as a replay: a recorded log at ten times its pace, by a stand-in.

SGLang itself does not run on a machine without an accelerator. The lines, their order, the launch form, the titles
of the processes and the way its port opens are SGLang's; the work behind them is not done.
"""

import sys
from pathlib import Path

import pytest

from firstlight.core.events import MotionChanged, ProcessAppeared
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.launcher import free_port, in_disguise
from firstlight.testing.running import Starter

LOGS = Path(__file__).parents[1] / "golden" / "logs"
WAIT_S = 120.0


def recorded(words: str) -> Path:
    return next(path for path in sorted(LOGS.rglob("*.log")) if words in path.name)


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH in which `sglang.launch_server` replays a log."""
    return in_disguise(
        tmp_path / "site",
        "sglang.launch_server",
        "replay_log",
        str(recorded("sglang")),
        "--until=Shutting down",
        "--title=sglang::scheduler",
        "--title=sglang::detokenizer",
    )


def test_a_start_of_sglang_is_followed_by_its_own_markers(start: Starter, sglang: Path) -> None:
    server = [sys.executable, "-m", "sglang.launch_server", "--model-path", "tiny", "--port", str(free_port())]
    ended = start.command(server, up=["--once"], environ={"PYTHONPATH": str(sglang)}).wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.engine == "sglang"
    phases = {span.phase for span in ended.report.timeline}
    assert {Phase.RENDEZVOUS, Phase.WEIGHTS, Phase.KV_CACHE, Phase.HTTP_BIND, Phase.SERVING} <= phases
    appeared = ended.all(ProcessAppeared)
    assert Role.WORKER in {event.process.role for event in appeared}
    assert [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED] == []
    assert ended.left == ()
