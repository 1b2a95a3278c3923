"""Last words by source, the first error of each, repetition removed, secrets replaced."""

from firstlight.core.log import LogLine
from firstlight.evidence import tails
from firstlight.evidence.logs import LINES_MAX, SOURCES_MAX


def line(message: str, source: str = "", at: float = 1.0, stream: str = "stdout") -> LogLine:
    return LogLine(stream=stream, at=at, text=f"({source}) {message}", message=message, source=source)


def is_error(one: LogLine) -> bool:
    return "ERROR" in one.message


def test_every_source_has_its_own_tail_and_first_error() -> None:
    lines = [
        line("ERROR first", "TP0", 1),
        line("loading", "TP1", 2),
        line("ERROR second", "TP0", 3),
        line("ERROR other", "TP1", 4),
    ]
    one, other = tails(lines, is_error)
    assert (one.source, other.source) == ("TP0", "TP1")
    assert one.first_error is not None
    assert other.first_error is not None
    assert (one.first_error.message, other.first_error.message) == ("ERROR first", "ERROR other")


def test_lines_without_a_speaker_belong_to_their_stream() -> None:
    assert [tail.source for tail in tails([line("a"), line("b", stream="stderr")], is_error)] == ["stdout", "stderr"]


def test_a_repeated_line_is_kept_once_and_in_its_last_form() -> None:
    lines = [line("start"), *(line(f"Waiting for 1 core engine ({n} s)", at=n) for n in range(100)), line("end")]
    (tail,) = tails(lines, is_error)
    assert [one.message for one in tail.lines] == ["start", "Waiting for 1 core engine (99 s)", "end"]


def test_only_the_last_lines_are_kept() -> None:
    words = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(200)]
    (tail,) = tails((line(f"line {word}") for word in words), is_error)
    assert len(tail.lines) == LINES_MAX
    assert tail.lines[-1].message == f"line {words[-1]}"


def test_a_flood_of_sources_is_bounded() -> None:
    assert len(tails((line("x", f"source {n}") for n in range(10_000)), is_error)) == SOURCES_MAX


def test_secrets_are_replaced_in_every_line() -> None:
    (tail,) = tails([line("ERROR api_key='s3cr3t'")], is_error)
    assert tail.first_error is not None
    for one in (*tail.lines, tail.first_error):
        assert "s3cr3t" not in one.text + one.message


def test_empty_lines_and_no_lines_are_nothing() -> None:
    assert tails([line("  ")], is_error) == ()
    assert tails([], is_error) == ()
