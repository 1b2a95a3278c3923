"""Log lines of every engine and version, understood: who speaks, how loudly, and what."""

import pytest

from firstlight.core.log import LogLine, RawLine
from firstlight.engines import profile, revealed


def read(engine: str, text: str) -> LogLine:
    return profile(engine).read_line(RawLine(stream="stderr", at=1.0, text=text))


@pytest.mark.parametrize(
    ("engine", "text", "source", "pid", "rank", "level", "message"),
    [
        # vLLM >= 0.32: the logger's own prefix
        (
            "vllm",
            "(EngineCore pid=21619) INFO 11-29 12:42:10 [core.py:133] Initializing",
            *("EngineCore", 21619, -1, "INFO", "Initializing"),
        ),
        ("vllm", "(Worker pid=7) WARNING 11-29 12:42:22 [cpu_worker.py:114] slow", "Worker", 7, 0, "WARNING", "slow"),
        ("vllm", "(VllmWorker-2 pid=7) INFO 11-29 12:42:22 [vllm.py:725] x", "VllmWorker-2", 7, 2, "INFO", "x"),
        ("vllm", "(Worker_DP0_TP1 pid=7) INFO 11-29 12:42:22 [a.py:1] x", "Worker_DP0_TP1", 7, 1, "INFO", "x"),
        (
            "vllm",
            "(APIServer pid=7) ERROR 11-29 12:45:03 [a.py:9]     await x()",
            "APIServer",
            7,
            -1,
            "ERROR",
            "    await x()",
        ),
        ("vllm", "INFO:     Application startup complete.", "", 0, -1, "INFO", "Application startup complete."),
        (
            "vllm",
            "Loading safetensors checkpoint shards:   0% Completed",
            "",
            0,
            -1,
            "",
            "Loading safetensors checkpoint shards:   0% Completed",
        ),
        # vLLM 0.9.2 to 0.28: every line of a process is prefixed
        ("vllm", "(VllmWorker rank=3 pid=9) INFO 07-01 01:02:03 [a.py:1] x", "VllmWorker", 9, 3, "INFO", "x"),
        (
            "vllm",
            "(EngineCore_DP0 pid=9) Capturing CUDA graphs: 50%",
            "EngineCore_DP0",
            9,
            -1,
            "",
            "Capturing CUDA graphs: 50%",
        ),
        (
            "vllm",
            "(APIServer pid=9) INFO:     Started server process [9]",
            "APIServer",
            9,
            -1,
            "INFO",
            "Started server process [9]",
        ),
        ("vllm", "INFO 04-01 01:02:03 [core.py:58] Initializing", "", 0, -1, "INFO", "Initializing"),
        # SGLang
        ("sglang", "[2026-11-29 13:50:51] Init parallel begin.", "", 0, -1, "", "Init parallel begin."),
        ("sglang", "[2026-11-29 13:50:51 TP3] Load weight begin.", "TP3", 0, 3, "", "Load weight begin."),
        ("sglang", "[2026-11-29 13:50:51.123 DP1 PP0 TP3 EP3] x", "DP1 PP0 TP3 EP3", 0, 3, "", "x"),
        (
            "sglang",
            "[2026-11-29 13:50:59] INFO:     Started server process [1]",
            "",
            0,
            -1,
            "INFO",
            "Started server process [1]",
        ),
        # firstlight's own
        ("embedded", "[firstlight front pid=5] phase=http_bind begin", "front", 5, -1, "", "phase=http_bind begin"),
        ("embedded", "[firstlight worker rank=1 pid=6] error: no", "worker rank=1", 6, 1, "ERROR", "no"),
        # anything
        ("generic", "WARNING: careful", "", 0, -1, "WARNING", "careful"),
        ("generic", "ERROR:root:it broke", "", 0, -1, "ERROR", "root:it broke"),
        ("generic", "2026-01-02 03:04:05,678 - server.main - ERROR - it broke", "", 0, -1, "ERROR", "it broke"),
        ("generic", "2026-01-02T03:04:05.678Z INFO router: text", "", 0, -1, "INFO", "router: text"),
        (
            "generic",
            "[2026-01-02 03:04:05 +0000] [77] [CRITICAL] worker timed out",
            "",
            0,
            -1,
            "CRITICAL",
            "worker timed out",
        ),
        ("generic", "[WARN] careful", "", 0, -1, "WARNING", "careful"),
        ("generic", "plain words", "", 0, -1, "", "plain words"),
        # NCCL speaks for itself in every engine
        (
            "sglang",
            "node1:4711:4800 [3] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 8 - Init START",
            *("", 4711, -1, "INFO", "ncclCommInitRank comm 0x1 rank 3 nranks 8 - Init START"),
        ),
    ],
)
def test_prefixes(*, engine: str, text: str, source: str, pid: int, rank: int, level: str, message: str) -> None:
    line = read(engine, text)
    assert (line.source, line.pid, line.rank, line.level, line.message) == (source, pid, rank, level, message)
    assert line.text == text


@pytest.mark.parametrize("engine", ["vllm", "sglang", "embedded", "generic"])
@pytest.mark.parametrize(
    "text", ["", " ", "(", "[", "\ufffd\ufffd(pid=)", "[2026-11-29 13:50:51 tp] x", "(a pid=1)", "x" * 4096]
)
def test_any_text_is_a_line(engine: str, text: str) -> None:
    line = read(engine, text)
    assert line.text == text
    assert line.message in text


@pytest.mark.parametrize(
    ("engine", "text", "version"),
    [
        (
            "vllm",
            "(APIServer pid=1) INFO 11-29 12:41:44 [api_utils.py:347]  ▄▄ ▄█ █     █  █ ▀▄▀ █  version 0.32.0",
            "0.32.0",
        ),
        ("vllm", "INFO 04-01 01:02:03 [api_server.py:1043] vLLM API server version 0.8.5", "0.8.5"),
        (
            "vllm",
            "(EngineCore pid=1) INFO 11-29 12:42:10 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with",
            "0.32.0",
        ),
        ("vllm", "(APIServer pid=1) INFO 11-29 12:42:10 [x.py:1] NCCL version 2.27", ""),
        ("embedded", "[firstlight front pid=5] start version=0.1.0 model=/m", "0.1.0"),
        ("sglang", "[2026-11-29 13:50:51] version 3", ""),
    ],
)
def test_the_version(engine: str, text: str, version: str) -> None:
    assert profile(engine).version(read(engine, text)) == version


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", "INFO:     Application startup complete."),
        ("sglang", "[2026-11-29 13:51:00] The server is fired up and ready to roll!"),
        ("embedded", "[firstlight front pid=5] ready url=http://127.0.0.1:8000 seconds=3.2"),
        ("generic", "main: server is listening on http://127.0.0.1:8080 - starting the main loop"),
        ("generic", "[2026-01-02 03:04:05 +0000] [77] [INFO] Listening at: http://127.0.0.1:8000 (77)"),
    ],
)
def test_lines_that_claim_readiness(engine: str, text: str) -> None:
    assert profile(engine).ready(read(engine, text))


def test_sglang_is_not_ready_when_uvicorn_is() -> None:
    assert not profile("sglang").ready(
        read("sglang", "[2026-11-29 13:50:59] INFO:     Application startup complete.")
    )


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("(APIServer pid=21345) INFO 11-29 12:41:44 [api_utils.py:347] ", "vllm"),
        ("[2026-11-29 13:50:27] server_args={'model_path': '/m'}", "sglang"),
        ("[2025-03-01 13:50:27] server_args=ServerArgs(model_path='/m'", "sglang"),
        ("[firstlight front pid=5] start version=0.1.0 model=/m", "embedded"),
        ("INFO:     Application startup complete.", ""),
        ("this wrapper starts vllm for you", ""),
    ],
)
def test_first_lines_that_give_an_engine_away(text: str, engine: str) -> None:
    assert revealed(text) == engine


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'tgi'.*vllm, sglang, embedded, generic"):
        profile("tgi")
