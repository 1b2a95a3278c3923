"""vLLM on CPU, live: what comes up is called serving, what hangs is called a stall, and each process by its name."""

import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.conftest import Vllm

from firstlight.core.events import Event, MotionChanged, PhaseBegan, TokenVerified
from firstlight.core.vocabulary import Motion, Outcome, Phase, Role
from firstlight.testing.running import Ended

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

WAIT_S = 400.0
EAGER = "--enforce-eager"


def phases(ended: Ended) -> set[Phase]:
    return {span.phase for span in ended.report.timeline}


def ranks(ended: Ended, role: Role) -> list[int]:
    """The ranks of the processes in this role."""
    return [process.rank for process in ended.report.processes if process.role is role]


def false_alarms(ended: Ended) -> list[str]:
    return [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED]


def in_phase(phase: Phase) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, PhaseBegan) and event.phase is phase


def serving(event: Event) -> bool:
    return isinstance(event, TokenVerified)


def health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def test_an_eager_start_is_followed_to_its_first_token(vllm: Vllm) -> None:
    ended = vllm(EAGER).wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    report = ended.report
    assert report.engine == "vllm"
    assert report.engine_version.startswith("0.32")
    assert report.first_token is not None
    assert report.first_token.text
    assert {Phase.WEIGHTS, Phase.KV_CACHE, Phase.HTTP_BIND, Phase.SERVING} <= phases(ended)
    assert len(ranks(ended, Role.FRONT)) == 1
    assert len(ranks(ended, Role.ENGINE)) == 1
    assert ranks(ended, Role.WORKER) == [0]
    assert report.findings == ()
    assert false_alarms(ended) == []
    assert ended.left == ()


def test_check_lets_a_command_pass_that_comes_up(vllm: Vllm) -> None:
    code, findings = vllm.checked(EAGER)
    assert code == 0, findings
    assert [finding.id for finding in findings if finding.verdict == "established"] == []


def test_check_knows_that_its_port_is_taken_and_by_whom(vllm: Vllm) -> None:
    with socket.create_server(("127.0.0.1", vllm.port)):
        code, findings = vllm.checked(EAGER)
    assert code == 1
    taken = next(finding for finding in findings if finding.id == "port_in_use")
    assert (taken.verdict, taken.pids) == ("established", (os.getpid(),))


def test_three_tensor_parallel_ranks_are_told_apart(vllm: Vllm) -> None:
    # By itself vLLM wants a NUMA node for each rank, and refuses to start where there are fewer.
    ended = vllm(EAGER, "-tp", "3", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1").wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    assert sorted(ranks(ended, Role.WORKER)) == [0, 1, 2]
    assert false_alarms(ended) == []
    assert ended.left == ()


def test_a_start_that_compiles_for_minutes_in_silence_is_no_stall(vllm: Vllm) -> None:
    ended = vllm().wait(550)
    assert ended.code == 0, ended.stderr[-4000:]
    assert Phase.COMPILE in phases(ended)
    assert false_alarms(ended) == []
    assert ended.left == ()


def test_a_configuration_error_is_the_first_error(vllm: Vllm) -> None:
    ended = vllm(EAGER, "-tp", "2").wait(WAIT_S)
    assert ended.code == 3
    assert ended.report.outcome is Outcome.EXITED
    assert ended.report.first_error is not None
    assert "must be divisible" in ended.report.first_error.text
    assert ended.left == ()


def a_drafter_that_never_arrives(folder: Path, target: Path) -> Path:
    """An EAGLE-3 drafter for `target`, whose weights are a FIFO that nobody writes."""
    folder.mkdir()
    config = json.loads((target / "config.json").read_text())
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config["vocab_size"],
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    os.mkfifo(folder / "model.safetensors")
    return folder


def test_drafter_weights_that_never_arrive_are_a_stall_of_the_worker(
    vllm: Vllm, demo_model: Path, tmp_path: Path
) -> None:
    drafter = a_drafter_that_never_arrives(tmp_path / "drafter", demo_model)
    speculation = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": 3}
    ended = vllm(EAGER, "--speculative-config", json.dumps(speculation), up=("--on-stall", "stop")).wait(WAIT_S)
    assert ended.code == 1, ended.stderr[-4000:]
    report = ended.report
    assert report.outcome is Outcome.STALLED
    worker = next(process for process in report.processes if process.role is Role.WORKER)
    fifo = next(finding for finding in report.findings if finding.id == "fifo_without_writer")
    assert fifo.verdict == "established"
    assert fifo.pids == (worker.pid,)
    assert "drafter/model.safetensors" in " ".join([fifo.title, *fifo.evidence])
    assert Phase.DRAFT_INIT in phases(ended)
    assert ended.left == ()


def test_an_engine_core_that_stops_while_health_says_200_is_a_stall(vllm: Vllm) -> None:
    up = vllm(EAGER, up=("--on-stall", "stop"))
    up.until(serving, WAIT_S)
    engine = up.pid_of("VLLM::EngineCore", WAIT_S)
    os.kill(engine, signal.SIGSTOP)
    assert health(vllm.port) == 200
    ended = up.wait(WAIT_S)
    assert ended.code == 1, ended.stderr[-4000:]
    assert ended.report.first_token is not None
    stopped = next(finding for finding in ended.report.findings if finding.id == "stopped_process")
    assert engine in stopped.pids
    assert ended.left == ()


def test_a_worker_killed_while_it_starts_is_named_with_its_signal(vllm: Vllm) -> None:
    up = vllm(EAGER, up=("--on-stall", "stop"))
    up.until(in_phase(Phase.WEIGHTS), WAIT_S)
    worker = up.pid_of("VLLM::Worker", WAIT_S)
    os.kill(worker, signal.SIGKILL)
    ended = up.wait(WAIT_S)
    assert ended.code in {1, 3}, "vLLM may notice and exit, or wait for ever: both name the worker"
    died = next(exit_ for exit_ in ended.report.exits if exit_.id.pid == worker)
    assert died.signal == signal.SIGKILL
    assert str(worker) in ended.report.headline
    assert ended.left == ()
