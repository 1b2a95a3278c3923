"""Last words by source, the first error of each, repetition removed, secrets replaced."""

import msgspec

from firstlight.core.log import ErrorSeen, LogLine
from firstlight.evidence import tails
from firstlight.evidence.logs import LINES_MAX, SOURCES_MAX, WARNINGS_MAX


def line(message: str, source: str = "", at: float = 1.0, stream: str = "stdout") -> LogLine:
    return LogLine(stream=stream, at=at, text=f"({source}) {message}", message=message, source=source)


def read_error(one: LogLine) -> ErrorSeen:
    return ErrorSeen("ERROR" in one.message)


def test_every_source_has_its_own_tail_and_first_error() -> None:
    lines = [
        line("ERROR first", "TP0", 1),
        line("loading", "TP1", 2),
        line("ERROR second", "TP0", 3),
        line("ERROR other", "TP1", 4),
    ]
    one, other = tails(lines, read_error)
    assert (one.source, other.source) == ("TP0", "TP1")
    assert one.first_error is not None
    assert other.first_error is not None
    assert (one.first_error.message, other.first_error.message) == ("ERROR first", "ERROR other")


def test_a_headline_gives_way_to_the_line_that_names_the_error() -> None:
    headline, error = line("ERROR while loading", at=1), line("Torn: shard 3", at=2)
    read = {headline.at: ErrorSeen(True), error.at: ErrorSeen(True, headline)}
    (tail,) = tails([headline, error], lambda one: read[one.at])
    assert tail.first_error == error
    assert tail.warnings == (headline, error)
    (tail,) = tails([line("ERROR a", at=0), *tail.lines], lambda one: read.get(one.at, ErrorSeen(True)))
    assert tail.first_error is not None
    assert tail.first_error.message == "ERROR a"


def test_lines_without_a_speaker_belong_to_their_stream() -> None:
    assert [tail.source for tail in tails([line("a"), line("b", stream="stderr")], read_error)] == [
        "stdout",
        "stderr",
    ]


def test_a_repeated_line_is_kept_once_and_in_its_last_form() -> None:
    lines = [line("start"), *(line(f"Waiting for 1 core engine ({n} s)", at=n) for n in range(100)), line("end")]
    (tail,) = tails(lines, read_error)
    assert [one.message for one in tail.lines] == ["start", "Waiting for 1 core engine (99 s)", "end"]


def test_only_the_last_lines_are_kept() -> None:
    words = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(200)]
    (tail,) = tails((line(f"line {word}") for word in words), read_error)
    assert len(tail.lines) == LINES_MAX
    assert tail.lines[-1].message == f"line {words[-1]}"


def test_a_flood_of_sources_is_bounded() -> None:
    assert len(tails((line("x", f"source {n}") for n in range(10_000)), read_error)) == SOURCES_MAX


def test_secrets_are_replaced_in_every_line() -> None:
    (tail,) = tails([line("ERROR api_key='s3cr3t'")], read_error)
    assert tail.first_error is not None
    for one in (*tail.lines, tail.first_error):
        assert "s3cr3t" not in one.text + one.message


def test_empty_lines_and_no_lines_are_nothing() -> None:
    assert tails([line("  ")], read_error) == ()
    assert tails([], read_error) == ()


def test_warnings_are_kept_by_their_shape_oldest_first_however_far_back() -> None:
    lines = [
        line("NCCL WARN Cuda failure 802 system not yet initialized", "TP0"),
        msgspec.structs.replace(line("cache is on NFS", "TP0"), level="WARNING"),
        *(msgspec.structs.replace(line(f"retry {n}", "TP0"), level="warning") for n in range(50)),
        line("ERROR it broke", "TP0"),
        *(line(f"loading {chr(97 + n)}", "TP0") for n in range(26)),
        *(line(f"more {chr(97 + n)}", "TP0") for n in range(26)),
        line("/x/torch/y.py:12: UserWarning: this is old", "TP1"),
        line("[rank1]:W1129 22:01:00.000000 123 torch/distributed: no device id", "TP1"),
        line("all is well; warnings: none", "TP1"),
    ]
    first, second = tails(lines, read_error)
    assert [one.message.partition(" ")[0] for one in first.warnings] == ["NCCL", "cache", "retry", "ERROR"]
    assert first.warnings[2].message == "retry 0"
    assert len(second.warnings) == 2


def test_a_flood_of_warnings_is_cut_to_the_earliest() -> None:
    words = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(300)]
    (tail,) = tails(
        (msgspec.structs.replace(line(f"w {word}"), level="ERROR") for word in words), lambda _: ErrorSeen()
    )
    assert len(tail.warnings) == WARNINGS_MAX
    assert tail.warnings[0].message == "w aa"


def test_secrets_in_warnings_are_replaced() -> None:
    (tail,) = tails([line("NCCL WARN api_key='s3cr3t'")], lambda _: ErrorSeen())
    assert "s3cr3t" not in tail.warnings[0].text + tail.warnings[0].message
