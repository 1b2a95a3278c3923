"""Anything at all as a log line, a title or a command: nothing raises, and what comes out can be written and read."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.log import Counter, LogLine, RawLine
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import Role
from firstlight.engines import profile, profile_for, recognise
from firstlight.engines.table import ENGINES

_PIECES = st.sampled_from(
    [
        *(
            "(Worker_TP1 pid=7) ",
            "INFO 11-29 12:42:22 [a.py:1] ",
            "[2026-11-29 13:50:55 TP3] ",
            "[firstlight front pid=5] ",
        ),
        *("[firstlight worker rank=", "phase=", "progress phase=weights done=", " total=", " unit=bytes", "version "),
        *(
            "9" * 400,
            "1/",
            "%|",
            "50% Completed | ",
            "3/4 [",
            "GiB",
            " of ",
            "shards",
            " NCCL INFO ",
            "pid=" + "9" * 30,
        ),
        *(
            "Traceback (most recent call last):",
            "  | ",
            "+-+--- 1 ---",
            "During handling of the above exception",
            "RayTaskError(",
        ),
        *(
            "Exception ignored in",
            "ValueError",
            "KeyError: 1",
            "1 validation error for ",
            "  x [type=",
            " exit code -9 ",
            ":",
        ),
        *(
            "(pid=7, ip=",
            "[rank0]: ",
            "0: ",
            "web-1  | ",
            "[1,0]<stderr>:",
            "(2 sub-exceptions)",
            "ERROR: ",
            "signal 77 ",
        ),
        *("Error: ", "Killed", "█", "\ufffd", "\x00", "\u0663", " "),
    ]
)
_TEXT = st.one_of(st.text(max_size=200), st.lists(_PIECES, max_size=12).map("".join))
_WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    "vllm",
                    "serve",
                    "python",
                    "-m",
                    "sglang.launch_server",
                    "--port",
                    "--port=",
                    "-tp",
                    "bash",
                    "-c",
                    "env",
                ),
                *(
                    "PORT=" + "9" * 5000,
                    "9" * 5000,
                    "--config",
                    "/dev/null",
                    "/",
                    "a\0b",
                    "torchrun",
                    "-np",
                    "\u0663",
                    "--",
                ),
                *("'", "vllm serve m && ;", "--dp", "--nnodes", "0", "-1", "[::]:1", "--listen", "http.server"),
            ]
        ),
        st.text(max_size=20),
    ),
    max_size=10,
)


@given(st.sampled_from(ENGINES), _TEXT, st.sampled_from(["", "0.5.4.post3", "0.32.0"]))
def test_any_line_can_be_read(engine: str, text: str, version: str) -> None:
    known = profile(engine)
    line = known.read_line(RawLine(stream="stdout", at=0.0, text=text))
    assert msgspec.json.decode(msgspec.json.encode(line), type=LogLine) == line
    assert all(mark.text == line.message for mark in known.marks(line, version))
    counter = known.counter(line)
    if counter is not None:
        assert msgspec.json.decode(msgspec.json.encode(counter), type=Counter) == counter
        assert 0.0 <= counter.fraction <= 1.0
    assert not (known.is_error(line) and known.is_consequence(line))
    assert line.message in line.text
    assert known.version(line) in line.message


@given(st.sampled_from(ENGINES), st.lists(_TEXT, max_size=30))
def test_any_log_has_errors_that_only_take_the_place_of_earlier_ones(engine: str, texts: list[str]) -> None:
    known = profile(engine)
    reader = known.errors()
    named: list[LogLine] = []
    for text in texts:
        line = known.read_line(RawLine(stream="stderr", at=0.0, text=text))
        seen = reader.see(line)
        assert seen.instead_of is None or any(seen.instead_of is one for one in named)
        assert seen.named or seen.instead_of is None
        named += [line] if seen.named else []


@given(_WORDS, st.dictionaries(st.sampled_from(["VLLM_API_KEY", "PORT", "FIRSTLIGHT_API_KEY"]), st.text(max_size=9)))
def test_any_command_can_be_recognised(argv: list[str], environ: dict[str, str]) -> None:
    command = recognise(argv, environ)
    assert msgspec.json.decode(msgspec.json.encode(command), type=ServerCommand) == command
    assert command.engine in ENGINES
    assert 0 <= command.port <= 65535
    assert command.ranks >= 0
    assert profile_for(command).name == command.engine


@given(_WORDS, st.text(max_size=15))
def test_any_process_has_a_role(cmdline: list[str], comm: str) -> None:
    identity = profile("generic").identify(cmdline, comm)
    assert identity.role in Role
    assert identity.rank >= -1
