"""Whatever a program writes comes out as lines: all of them, clean, bounded, and the same however it was cut."""

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.clock import HandClock
from firstlight.supervise.log.capture import BEHIND_BYTES, LINE_CHARS, READ_BYTES, STILL_S, LogFollower, clean


class Written:
    """A log file in the making, and who follows it."""

    def __init__(self, path):
        self.path = path
        self.path.touch()
        self.clock = HandClock()
        self.follower = LogFollower(path, "stdout", self.clock)

    def __call__(self, data):
        with self.path.open("ab") as file:
            file.write(data)
        return self.seen(self.follower.read())

    def later(self, seconds=STILL_S):
        self.clock.advance(seconds)
        return self.seen(self.follower.read())

    @staticmethod
    def seen(lines):
        return [("~" if line.transient else "") + line.text for line in lines]


@pytest.fixture
def write(tmp_path):
    return Written(tmp_path / "stdout.log")


def test_lines_come_as_they_are_written_with_stream_and_hour(write):
    assert write(b"one\ntwo\nthr") == ["one", "two"]
    assert write(b"ee\n") == ["three"]
    write.path.write_bytes(write.path.read_bytes() + b"four\n")
    (line,) = write.follower.read()
    assert (line.stream, line.at, line.transient) == ("stdout", write.clock.wall(), False)


def test_a_file_that_comes_later_is_found(tmp_path):
    follower = LogFollower(tmp_path / "late.log", "stderr", HandClock())
    assert follower.read() == []
    (tmp_path / "late.log").write_bytes(b"here\n")
    assert [line.text for line in follower.read()] == ["here"]


def test_of_progress_updates_the_last_is_kept_and_the_final_one_is_a_line(write):
    assert write(b"\rshards:  10%\rshards:  20%\rshards:  30%") == ["~shards:  20%"]
    assert write(b"\rshards: 100%") == ["~shards:  30%"]
    assert write(b"\nloaded\n") == ["shards: 100%", "loaded"]


def test_an_update_that_stands_for_a_while_is_shown_once(write):
    assert write(b"\rshards:  50% 1/2") == []
    assert write.later(STILL_S / 2) == []
    assert write.later() == ["~shards:  50% 1/2"]
    assert write.later() == []
    assert write(b"\rshards: 100% 2/2\n") == ["~shards:  50% 1/2", "shards: 100% 2/2"]


def test_a_prompt_without_an_end_is_shown_and_completed_later(write):
    assert write(b"Loading... ") == []
    assert write.later() == ["~Loading..."]
    assert write(b"done\n") == ["Loading... done"]


def test_the_last_words_need_no_end(write):
    assert write(b"one\nCUDA error: no") == ["one"]
    assert write.seen(list(write.follower.rest())) == ["CUDA error: no"]
    assert list(write.follower.rest()) == []


def test_the_rest_reads_on_to_the_end_of_the_file(write):
    with write.path.open("ab") as file:
        file.write(b"x" * 99 + b"\n")
        file.write((b"y" * 99 + b"\n") * (3 * READ_BYTES // 100) + b"last")
    lines = list(write.follower.rest())
    assert lines[0].text == "x" * 99
    assert lines[-1].text == "last"


def test_a_backlog_has_an_end_though_the_program_writes_on(write):
    megabyte = b"z" * (READ_BYTES - 1) + b"\n"
    write.path.write_bytes(megabyte)
    told = 0
    with write.path.open("ab", buffering=0) as file:
        for _ in write.follower.backlog():
            file.write(megabyte)
            told += 1
    assert 0 < told <= 2 * BEHIND_BYTES // READ_BYTES


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(b"\x1b[1;32mINFO\x1b[0m ready", "INFO ready", id="colours"),
        pytest.param(b"\x1b[2K\x1b[1Gdone", "done", id="erase and move"),
        pytest.param(b"\x1b[?25lhidden\x1b[?25h", "hidden", id="private modes"),
        pytest.param(b"\x1b]0;a title\x07text", "text", id="OSC to BEL"),
        pytest.param(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link", id="OSC to ST"),
        pytest.param(b"before\x1b]0;never ended", "before", id="OSC unterminated"),
        pytest.param(b"before\x1bPq#0;2;0\x1b\\after", "beforeafter", id="DCS"),
        pytest.param(b"cut\x1b[38;5", "cut", id="CSI cut off"),
        pytest.param(b"cut\x1b", "cut", id="lone escape"),
        pytest.param(b"\x1b(Btext\x1bM", "text", id="charset and index"),
        pytest.param(b"a\x00b\x00\x00c", "abc", id="NUL"),
        pytest.param(b"bell\x07 back\x08 del\x7f", "bell back del", id="control characters"),
        pytest.param("a\u202eb\u2066c\u2028d".encode(), "abcd", id="bidirectional overrides"),
        pytest.param("\x9b31mred".encode(), "red", id="CSI in one character"),
        pytest.param(b"col\tumn", "col    umn", id="tab"),
        pytest.param(b"\xff\xfe half \xe4\xbd", "�� half �", id="half UTF-8"),
        pytest.param("日本語 🚀 é".encode(), "日本語 🚀 é", id="real UTF-8"),
    ],
)
def test_a_line_is_cleaned(raw, text):
    assert clean(raw) == text


def test_blank_lines_and_bare_moves_say_nothing(write):
    assert write(b"\n\n\x1b[A\x1b[A\r\r   \r\nreal\n") == ["real"]


def test_windows_line_ends_are_line_ends_even_when_cut_in_two(write):
    assert write(b"one\r\ntwo\r") == ["one"]
    assert write(b"\nthree\r\r\n") == ["two", "three"]


TEXT = "\rbar 1%\rbär 99%\nℓine\r\n\x1b[1mbold\x1b[0m 🚀\nпоследний\n".encode()


@pytest.mark.parametrize("cuts", list(itertools.combinations(range(1, len(TEXT), 3), 2)))
def test_final_lines_do_not_depend_on_how_the_writes_were_cut(write, cuts):
    first, second = cuts
    texts = [write(TEXT[:first]), write(TEXT[first:second]), write(TEXT[second:])]
    assert [text for text in itertools.chain(*texts) if not text.startswith("~")] == [
        "bär 99%",
        "ℓine",
        "bold 🚀",
        "последний",
    ]


def test_a_line_too_long_is_cut(write):
    (text,) = write(b"x" * 10_000 + b"\n")
    assert len(text) == LINE_CHARS
    assert text.endswith("x…")


def test_megabytes_without_a_newline_cost_one_cut_line(write):
    for _ in range(20):
        assert write(b"z" * READ_BYTES) == []
    (text,) = write(b"\nnext\n")[:1]
    assert len(text) == LINE_CHARS
    assert write.follower.bytes_seen == 20 * READ_BYTES + 6


def test_one_call_reads_a_bounded_amount(write):
    line = b"y" * 99 + b"\n"
    with write.path.open("ab") as file:
        file.write(line * (4 * READ_BYTES // len(line)))
    assert len(write.follower.read()) <= READ_BYTES // len(line) + 1
    assert write.follower.bytes_seen == READ_BYTES


def test_a_follower_far_behind_skips_the_middle_and_says_so(write):
    line = b"y" * 99 + b"\n"
    with write.path.open("ab") as file:
        for _ in range(200):
            file.write(line * 10_000)
        file.write(b"the end\n")
    said = write.seen(write.follower.read())
    size = write.path.stat().st_size
    assert (
        said[0]
        == f"[firstlight: {size - READ_BYTES:,} bytes of the log were skipped here; {write.path} has them all]"
    )
    assert said[-1] == "the end"
    assert write.follower.bytes_seen == size
    assert size > BEHIND_BYTES


@given(st.binary(max_size=3000) | st.text(alphabet="\x1b[]0;m\x07\\ P\u202e\n\ta", max_size=200).map(str.encode))
def test_whatever_the_bytes_a_line_is_bounded_and_can_be_shown(raw):
    text = clean(raw)
    assert len(text) <= LINE_CHARS
    assert not {unicodedata.category(character) for character in text} & {"Cc", "Zl", "Zp"}


def test_binary_garbage_yields_only_text_that_can_be_shown(write):
    garbage = bytes((7 * n * n + n // 3) % 256 for n in range(100_000))
    for text in write(garbage + b"\nsane\n"):
        assert not {unicodedata.category(character) for character in text} & {"Cc", "Zl", "Zp"}
        assert len(text) <= LINE_CHARS + 1
    assert write(b"still sane\n") == ["still sane"]
