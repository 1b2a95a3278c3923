"""What others put in front of a server's lines is taken off, in one place, for every engine."""

import pytest

from firstlight.core.log import LogLine, RawLine
from firstlight.engines import profile

ERROR = "RuntimeError: the port is taken"


def read(engine: str, text: str) -> LogLine:
    return profile(engine).read_line(RawLine(stream="stderr", at=1.0, text=text))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "embedded", "generic"])
@pytest.mark.parametrize(
    ("prefix", "source", "pid", "rank"),
    [
        ("(RayWorkerWrapper pid=77) ", "RayWorkerWrapper", 77, -1),
        ("(RayWorkerWrapper pid=77, ip=10.0.0.2) ", "RayWorkerWrapper pid=77, ip=10.0.0.2", 0, -1),
        ("(pid=77, ip=10.0.0.2) ", "pid=77, ip=10.0.0.2", 0, -1),
        ("(pid=77) ", "", 77, -1),
        ("(ServeReplica:app:LLM pid=77) ", "ServeReplica:app:LLM", 77, -1),
        ("(raylet) ", "raylet", 0, -1),
        ("(raylet, ip=10.0.0.2) ", "raylet", 0, -1),
        ("(EngineCore_DP0 pid=7) ", "EngineCore_DP0", 7, -1),
        ("(Worker_TP1 pid=7) ", "Worker_TP1", 7, 1),
        ("(VllmWorker rank=3 pid=7) ", "VllmWorker", 7, 3),
        ("[rank1]: ", "", 0, 1),
        ("[default3]:", "", 0, 3),
        ("[1,2]<stderr>: ", "", 0, 2),
        ("[1,2]<stdout>:", "", 0, 2),
        ("0: ", "task 0", 0, -1),
        (" 7: ", "task 7", 0, -1),
        ("vllm-1  | ", "", 0, -1),
        ("2026-11-29T12:42:10.123456789Z ", "", 0, -1),
        ("2026-11-29T12:42:10.123456789+01:00 stderr F ", "", 0, -1),
        ("Nov 30 01:10:23 node-1 vllm.service[4711]: ", "", 0, -1),
        ("2026-11-30T01:10:23+0000 node-1 vllm@a.service[4711]: ", "", 0, -1),
        ("[pod/llm-0/server] ", "", 0, -1),
        ("llm-1  | 2026-11-29T12:42:10.123456789Z (EngineCore pid=7) (RayWorker pid=8) ", "RayWorker", 8, -1),
        ("Nov 30 01:10:23 n1 srun[4711]: 3: [rank1]: ", "", 0, 1),
    ],
)
def test_a_prefix_is_no_part_of_the_message(engine: str, prefix: str, source: str, pid: int, rank: int) -> None:
    line = read(engine, prefix + ERROR)
    assert (line.message, line.source, line.pid, line.rank) == (ERROR, source, pid, rank)
    assert line.text == prefix + ERROR
    assert profile(engine).is_error(line)


@pytest.mark.parametrize(
    ("engine", "text", "source", "level", "message"),
    [
        ("vllm", "vllm-1  | (EngineCore pid=7) ERROR 11-29 12:42:10 [core.py:9] x", "EngineCore", "ERROR", "x"),
        ("vllm", "(RayWorker pid=8) ERROR 02-16 19:30:36 worker.py:16] x", "RayWorker", "ERROR", "x"),
        ("sglang", "0: [2026-11-29 13:50:51 TP3] Load weight begin.", "TP3", "", "Load weight begin."),
        ("sglang", "sgl  | [2026-11-29 13:50:59] INFO:     Started", "", "INFO", "Started"),
        ("embedded", "1: [firstlight worker rank=2 pid=5] error: x", "worker rank=2", "ERROR", "x"),
        ("generic", "tgi-1  | 2026-05-14T15:11:26.264451Z ERROR launcher: x", "", "ERROR", "launcher: x"),
        ("generic", "triton-1  | [TensorRT-LLM][ERROR] Assertion failed: x", "", "ERROR", "Assertion failed: x"),
        ("generic", "[11/21/2026-10:26:10] [TRT-LLM] [E] x", "", "ERROR", "x"),
        ("generic", "[11/21/2026-10:26:10] [TRT-LLM] [RANK 3] [W] x", "", "WARNING", "x"),
        ("generic", "2026-08-27 12:54:55.123 | ERROR    | app.main:run:7 - x", "", "ERROR", "x"),
        ("generic", "llm-1  | 2026-08-27 12:54:55 | ERROR | stderr |   File", "", "ERROR", "  File"),
        ("generic", "2026-05-31 02:32:02,239    WARNING worker.py:16 -- x", "", "WARNING", "worker.py:16 -- x"),
    ],
)
def test_the_engine_is_understood_behind_it(engine: str, text: str, source: str, level: str, message: str) -> None:
    line = read(engine, text)
    assert (line.source, line.level, line.message) == (source, level, message)


@pytest.mark.parametrize(
    "text",
    [
        "INFO     | server:main:7 - started",
        "ERROR | x",
        "Loading safetensors checkpoint shards: 50% Completed | 1/2 [00:01<00:01]",
        '  File "x.py", line 3, in f',
        "   3: core::panicking::panic",
        "(3 of 7) done",
        "[0, 1]: equal",
        "2026-11-29T12:42:10.123456Z of the request",
        "Note: x",
    ],
)
def test_what_only_looks_like_a_prefix_stays(text: str) -> None:
    assert read("sglang", text).message == text


def test_the_indentation_of_a_frame_is_kept() -> None:
    assert read("vllm", '[rank0]:   File "x.py", line 3').message == '  File "x.py", line 3'
    assert read("vllm", '(Worker pid=7)   File "x.py", line 3').message == '  File "x.py", line 3'
