"""The three screens, fed with the same recorded start."""

import contextlib
import json
import os
import pty
import re
import select
import termios
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec
import pytest
from rich.cells import cell_len

from firstlight.attempt import Options
from firstlight.cli.screen import make_screen
from firstlight.cli.screen import outlet as outlets
from firstlight.cli.screen.draw import draw
from firstlight.cli.screen.jsonlines import JsonScreen
from firstlight.cli.screen.live import ENDING_NOW, LiveScreen
from firstlight.cli.screen.outlet import Outlet
from firstlight.cli.screen.phasenews import PhaseNews
from firstlight.cli.screen.plain import HEARTBEAT_S, PlainScreen, heartbeat
from firstlight.cli.screen.sentences import sentence
from firstlight.clock import HandClock
from firstlight.core.events import (
    Event,
    LogSeen,
    MotionChanged,
    PhaseBegan,
    PhaseEnded,
    ProcessGone,
    Stopped,
    Stopping,
    Verdict,
    read_event,
)
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import Report
from firstlight.core.view import LiveView
from firstlight.core.vocabulary import GapReason, Motion, Outcome, Phase, Role

PLAIN = """\
[    0.0 s] started vllm as process 7, expected at http://127.0.0.1:8000; its log and journal are in /state/runs/r
[    1.0 s] import began
[    9.0 s] import took 8.0 s
[   10.0 s] weights began in Worker_TP0
[   13.0 s] quiet in weights: nothing moves
[   16.0 s] │ ERROR �[2J it broke
[   21.0 s] weights took 11 s in 2 processes
[   50.0 s] asking for a first token: 503: loading
[   60.0 s] first light after 60 s: ' Paris'
[   70.0 s] Worker_TP1 (rank 1, pid 9) was killed by signal 9 (SIGKILL)
[   71.0 s] gap: GPU work: not installed (install it)
[   80.0 s] stalled in weights: rank 1 is gone
[   85.0 s] looked at every process in 1.2 s, because quiet for 12 s; written to /state/runs/r/bundle-1.json
[   88.0 s] it has stalled; ending the server
[   89.0 s] the server has ended; 9 processes were asked, 1 had to be killed, no process, \
port or shared memory of it is left
"""


def drawn(view: LiveView, width: int = 100, height: int = 30, ending: str = "") -> list[str]:
    return ["".join(piece.text for piece in line) for line in draw(view, width, height, ending=ending)]


class Page:
    """A file to write on through an outlet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        self.outlet = Outlet(self._file)

    def text(self) -> str:
        assert self.outlet.drain()
        return self._path.read_text(encoding="utf-8")

    def lines(self) -> list[str]:
        return self.text().splitlines()


@pytest.fixture
def out(tmp_path: Path) -> Page:
    return Page(tmp_path / "out")


@pytest.fixture
def results(tmp_path: Path) -> Page:
    return Page(tmp_path / "results")


class TestPlain:
    def test_what_matters_is_a_line_each_and_the_verdict_is_on_stdout(
        self, stream: list[Event], out: Page, results: Page
    ) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        for event in stream:
            screen.event(event)
        screen.close()
        assert out.text() == PLAIN
        assert results.text().startswith("STALLED  rank 1 is stopped by a signal\n")

    def test_an_error_line_is_shown_without_its_secrets(self, out: Page, results: Page) -> None:
        line = "ERROR GET https://host/x?token=verysecretkey"
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(LogSeen(at=0.0, t=1.0, stream="stderr", source="", level="ERROR", text=line))
        assert "ERROR" in out.text()
        assert "verysecretkey" not in out.text()

    def test_the_first_error_is_shown_though_it_does_not_say_that_it_is_one(self, out: Page, results: Page) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(LogSeen(at=0.0, t=1.0, stream="stderr", source="", level="", text="a.B: 3", first_error=True))
        assert "a.B: 3" in out.text()

    def test_the_same_verdict_again_is_one_line(self, stream: list[Event], out: Page, results: Page) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(stream[-1])
        once = results.text()
        screen.event(stream[-1])
        assert results.text() == f"{once}rank 1 is stopped by a signal\n"

    def test_a_heartbeat_comes_only_when_nothing_else_was_said(
        self, view: LiveView, stream: list[Event], out: Page, results: Page
    ) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(stream[0])
        for second in range(1, 36):
            screen.tick(msgspec.structs.replace(view, elapsed_s=float(second)))
            if second == 25:
                screen.event(msgspec.structs.replace(stream[2], t=25.0))
        said = [float(line[1:8]) for line in out.lines()]
        assert said == [0.0, HEARTBEAT_S, 20.0, 25.0, 35.0]

    def test_the_heartbeat_says_what_moves(self, view: LiveView) -> None:
        assert heartbeat(view) == (
            "weights, 27 of 64 shards, about 14 s left, moving: 9 of 9 processes busy, CPU 877 %, reads 108 MB/s"
        )

    def test_the_heartbeat_says_how_long_nothing_does(self, view: LiveView) -> None:
        quiet = msgspec.structs.replace(view, motion=Motion.QUIET, quiet_s=9.0, counter=None)
        assert heartbeat(quiet) == "weights, quiet for 9.0 s, looking closer after 12 s"
        longer = msgspec.structs.replace(quiet, quiet_s=14.0)
        assert heartbeat(longer) == "weights, quiet for 14 s"
        assert heartbeat(msgspec.structs.replace(longer, looking=True)) == "weights, quiet for 14 s, looking closer"
        asleep = msgspec.structs.replace(longer, asleep="TP0 is asleep and wakes in 26 s")
        assert heartbeat(asleep) == "weights, quiet for 14 s, TP0 is asleep and wakes in 26 s"
        assert heartbeat(msgspec.structs.replace(longer, motion=Motion.STALLED)) == "weights, stalled for 14 s"

    @pytest.mark.parametrize(
        ("in_flight", "words"),
        [(0, "serving, idle"), (1, "serving, 1 request in flight"), (2, "serving, 2 requests in flight")],
    )
    def test_a_server_that_serves_is_idle_or_has_requests(self, view: LiveView, in_flight: int, words: str) -> None:
        for motion in (Motion.MOVING, Motion.QUIET):
            serving = msgspec.structs.replace(
                view, phase=Phase.SERVING, motion=motion, quiet_s=40.0, counter=None, in_flight=in_flight
            )
            assert heartbeat(serving) == words
            assert drawn(serving)[3] == f"  {words}" + ("  reads 96 MB/s" if in_flight else "")

    def test_a_stay_in_the_foreground_says_how_to_end_it(self, report: Report, out: Page, results: Page) -> None:
        serving = msgspec.structs.replace(report, outcome=Outcome.SERVING)
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(Verdict(at=0, t=1, report=report))
        assert out.text() == ""
        screen.event(Verdict(at=0, t=2, report=serving))
        assert out.text() == "[    2.0 s] Ctrl-C ends the server and firstlight\n"
        screen.event(Verdict(at=0, t=3, report=msgspec.structs.replace(serving, attached=True)))
        assert out.lines()[-1] == "[    3.0 s] Ctrl-C ends the watching; the server goes on"

    def test_what_ends_or_is_left_running_gets_no_such_advice(self, report: Report, out: Page, results: Page) -> None:
        serving = msgspec.structs.replace(report, outcome=Outcome.SERVING)
        kept = msgspec.structs.replace(serving, next_steps=("The server runs on",))
        screen = PlainScreen(out.outlet, results.outlet)
        screen.event(Verdict(at=0, t=1, report=kept))
        screen.event(Stopping(at=0, t=2, why="serving"))
        screen.event(Verdict(at=0, t=3, report=serving))
        assert "Ctrl-C" not in out.text()

    def test_a_server_full_of_errors_does_not_fill_the_screen(self, out: Page, results: Page) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        for _ in range(1000):
            screen.event(LogSeen(at=0, t=1, stream="stderr", source="", level="ERROR", text="ERROR"))
        assert len(out.lines()) == 30
        assert "they are not shown here" in out.lines()[-1]

    def test_the_log_is_shown_where_asked_for(self, stream: list[Event], out: Page, results: Page) -> None:
        screen = PlainScreen(out.outlet, results.outlet, show_log=True)
        for event in stream:
            screen.event(event)
        assert "│ INFO a marker" in out.text()

    def test_a_start_that_breathes_is_not_a_flood(self, out: Page, results: Page) -> None:
        screen = PlainScreen(out.outlet, results.outlet)
        for second in range(60):
            motion = Motion.QUIET if second % 2 else Motion.MOVING
            screen.event(
                MotionChanged(at=0, t=second, motion=motion, phase=Phase.COMPILE, why="", signals=(), quiet_s=0)
            )
        assert len(out.lines()) == 6


class TestJson:
    def test_every_event_is_one_line_and_can_be_read_back(self, stream: list[Event], out: Page) -> None:
        screen = JsonScreen(out.outlet)
        for event in stream:
            screen.event(event)
        lines = out.lines()
        assert [json.loads(line)["type"] for line in lines][-1] == "verdict"
        assert [type(read_event(line.encode())) for line in lines] == [type(event) for event in stream]
        assert "hush" not in out.text()


class TestOutlet:
    """A pipe or terminal may refuse to take text for ever, and the watching goes on."""

    @pytest.fixture
    def pipe(self) -> Iterator[tuple[int, TextIO]]:
        reader, writer = os.pipe()
        file = os.fdopen(writer, "w", encoding="utf-8")
        yield reader, file
        for each in (lambda: os.close(reader), file.close):
            with contextlib.suppress(OSError):
                each()

    @pytest.mark.parametrize("kind", ["plain", "json"])
    def test_a_reader_that_sleeps_holds_up_nobody_and_gets_all_when_it_wakes(
        self, pipe: tuple[int, TextIO], kind: str
    ) -> None:
        reader, file = pipe
        outlet = Outlet(file)
        screen = JsonScreen(outlet) if kind == "json" else PlainScreen(outlet, outlet, show_log=True)
        for number in range(20_000):
            screen.event(LogSeen(at=0, t=number, stream="stderr", source="", level="ERROR", text=f"line {number}"))
        assert outlet.behind
        assert not outlet.drain(0.01)
        os.set_blocking(reader, False)
        read = b""
        while not outlet.drain(0.01) or select.select([reader], [], [], 0)[0]:
            with contextlib.suppress(BlockingIOError):
                read += os.read(reader, 1 << 20)
        assert len(read.splitlines()) == 20_000
        assert b"line 19999" in read.splitlines()[-1]

    def test_a_reader_that_never_wakes_costs_bounded_memory(
        self, pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outlets, "WAITING_CHARS_MAX", 1000)
        outlet = Outlet(pipe[1])
        for _ in range(1000):
            outlet.write("x" * 1000)
        assert outlet._waiting_chars <= 1000

    def test_a_reader_that_leaves_is_no_error(
        self, pipe: tuple[int, TextIO], stream: list[Event], view: LiveView
    ) -> None:
        reader, file = pipe
        os.close(reader)
        screen = PlainScreen(Outlet(file), Outlet(file))
        for event in stream:
            screen.event(event)
            screen.tick(view)
        screen.close()


class Terminal:
    """A pseudo-terminal, and what somebody before it would see: just enough of ECMA-48 for what is written to it."""

    def __init__(self, columns: int, lines: int) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (lines, columns))
        os.set_blocking(self._master, False)
        self.file = os.fdopen(slave, "w", encoding="utf-8")
        self.outlet = Outlet(self.file)
        self.raw = ""

    def shown(self) -> list[str]:
        """The lines on the screen, without those that were erased."""
        self.read()
        lines, row = [""], 0
        for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.raw):
            if token == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif token == "\x1b[1A":
                row -= 1
            elif token == "\x1b[2K":
                lines[row] = ""
            elif not token.startswith(("\x1b", "\r")):
                lines[row] += token
        return [line for line in lines if line]

    def read(self) -> None:
        """Take what was written, and let more be."""
        while not self.outlet.drain(0.01) or select.select([self._master], [], [], 0)[0]:
            with contextlib.suppress(BlockingIOError):
                self.raw += os.read(self._master, 65536).decode()

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self._master >= 0:
            self.hang_up()
        self.file.close()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    made = Terminal(100, 40)
    yield made
    made.close()


class TestLive:
    def test_the_view_is_drawn_in_place_and_wiped_at_the_end(
        self, terminal: Terminal, view: LiveView, results: Page
    ) -> None:
        clock = HandClock()
        screen = LiveScreen(clock, terminal.outlet, results.outlet)
        for _ in range(3):
            screen.tick(view)
            terminal.read()
            clock.advance(1)
        shown = terminal.shown()
        assert shown[0] == "firstlight  vllm 0.32.0  http://127.0.0.1:8000  20 s"
        assert sum("Worker_TP5" in line for line in shown) == 1
        screen.close()
        screen.close()
        assert terminal.shown() == []
        assert terminal.raw.rstrip("\r").rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")

    def test_what_stays_true_stands_above_it(
        self, terminal: Terminal, view: LiveView, stream: list[Event], results: Page
    ) -> None:
        clock = HandClock()
        screen = LiveScreen(clock, terminal.outlet, results.outlet)
        for event in stream:
            screen.event(event)
            screen.tick(view)
            terminal.read()
            clock.advance(1)
        screen.close()
        shown = terminal.shown()
        assert any("stalled in weights: rank 1 is gone" in line for line in shown)
        assert any("ERROR �[2J it broke" in line for line in shown)
        assert not any("quiet in weights" in line for line in shown)
        assert results.text().startswith("STALLED  ")

    def test_while_the_server_is_being_ended_it_says_so_and_how_to_hurry(
        self, terminal: Terminal, view: LiveView, results: Page
    ) -> None:
        screen = LiveScreen(HandClock(), terminal.outlet, results.outlet)
        screen.tick(view)
        screen.event(Stopping(at=0, t=1, why="interrupted"))
        shown = terminal.shown()
        assert any("interrupted; ending the server" in line for line in shown)
        assert any(ENDING_NOW in line for line in shown)
        screen.event(Stopped(at=0, t=2, asked=1, killed=0, left=()))
        assert not any(ENDING_NOW in line for line in terminal.shown())
        screen.close()

    def test_the_grace_it_speaks_of_is_the_grace_there_is(self) -> None:
        assert f"up to {Options().grace_s:g} s" in ENDING_NOW

    def test_faster_ticks_are_not_drawn(self, terminal: Terminal, view: LiveView, results: Page) -> None:
        clock = HandClock()
        screen = LiveScreen(clock, terminal.outlet, results.outlet)
        for _ in range(100):
            screen.tick(view)
            terminal.read()
            clock.advance(0.01)
        assert terminal.raw.count("firstlight") == 2
        screen.close()

    def test_no_color_is_honoured(
        self, terminal: Terminal, view: LiveView, monkeypatch: pytest.MonkeyPatch, results: Page
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        screen = LiveScreen(HandClock(), terminal.outlet, results.outlet)
        screen.tick(view)
        screen.close()
        terminal.read()
        assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.raw)

    def test_a_terminal_that_goes_away_does_not_end_the_watching(
        self, terminal: Terminal, view: LiveView, results: Page
    ) -> None:
        clock = HandClock()
        screen = LiveScreen(clock, terminal.outlet, results.outlet)
        screen.tick(view)
        terminal.hang_up()
        for _ in range(3):
            clock.advance(1)
            screen.tick(view)
        screen.close()


class TestDrawing:
    @pytest.mark.parametrize("width", [20, 40, 80, 200])
    @pytest.mark.parametrize("height", [1, 10, 24, 60])
    def test_it_never_leaves_the_screen(self, view: LiveView, width: int, height: int) -> None:
        wide = msgspec.structs.replace(view, last_log="長い行" * 100, why="思" * 100)
        lines = draw(wide, width, height)
        assert len(lines) <= height
        assert all(sum(cell_len(piece.text) for piece in line) <= width for line in lines)

    def test_what_does_not_fit_is_counted(self, view: LiveView) -> None:
        many = msgspec.structs.replace(view, rows=view.rows * 8)
        text = "\n".join("".join(piece.text for piece in line) for line in draw(many, 100, 30))
        shown = text.count("Worker_TP") + text.count("python")
        assert f"and {72 - shown} more processes" in text

    def test_the_quiet_timer_counts_towards_the_threshold(self, view: LiveView) -> None:
        quiet = msgspec.structs.replace(view, motion=Motion.QUIET, quiet_s=9.0, looking=True)
        assert "  quiet in weights, looking closer  reads 96 MB/s" in drawn(quiet)

    def test_a_stall_says_how_long_it_has_lasted(self, view: LiveView) -> None:
        stalled = msgspec.structs.replace(view, motion=Motion.STALLED, quiet_s=21.0, why="nothing moves")
        assert "  stalled for 21 s in weights  nothing moves" in drawn(stalled)

    @pytest.mark.parametrize("width", range(80, 130, 7))
    def test_no_word_is_cut(self, view: LiveView, width: int) -> None:
        why = "Worker_TP0 and 7 more computed for a long while, and nothing that anybody could see came of it " * 3
        long = msgspec.structs.replace(view, why=why, last_log="Loading safetensors checkpoint shards " * 9)
        lines = drawn(long, width)
        words = {*why.split(), *long.last_log.split(), "log"}
        cut = [line for line in lines if line.endswith("…")]
        assert len(cut) == 2
        assert all(word in words for line in cut for word in line.removesuffix("…").split())

    @pytest.mark.parametrize("width", [30, 40, 50, 60, 69])
    def test_a_narrow_table_has_fewer_columns_and_none_that_is_cut(self, view: LiveView, width: int) -> None:
        lines = drawn(view, width)
        heading = next(line for line in lines if line.startswith("process"))
        rows = [line for line in lines if line.startswith("Worker_TP")]
        assert heading.split()[0] == "process"
        assert {"state", "CPU"} <= set(heading.split())
        assert len(rows) == 8
        assert all(len(line) <= width and "…" not in line and "97 %" in line for line in rows)

    @pytest.mark.parametrize("height", range(1, 12))
    def test_the_smallest_screen_says_where_it_is_and_whether_it_moves(self, view: LiveView, height: int) -> None:
        lines = drawn(view, 40, height)
        assert len(lines) <= height
        assert any("moving in weights" in line for line in lines)

    def test_while_it_is_being_ended_the_view_says_so(self, view: LiveView) -> None:
        for height in (1, 5, 30):
            assert any("ending it" in line for line in drawn(view, 100, height, ending="ending it"))

    @pytest.mark.parametrize("width", [20, 50, 100])
    def test_the_way_out_while_it_is_being_ended_is_never_cut(self, view: LiveView, width: int) -> None:
        lines = drawn(view, width, 30, ending=ENDING_NOW)
        assert ENDING_NOW in " ".join(" ".join(lines).split())
        assert all(len(line) <= width for line in lines)

    def test_a_gpu_column_only_where_there_is_one(self, view: LiveView) -> None:
        def heading(rows: tuple[object, ...]) -> str:
            lines = draw(msgspec.structs.replace(view, rows=rows), 120, 40)
            return next(line[0].text for line in lines if line and "pid" in line[0].text)

        assert "GPU" not in heading(view.rows)
        assert "GPU" in heading((*view.rows[:-1], msgspec.structs.replace(view.rows[-1], gpu_percent=55.0)))

    def test_hostile_names_stay_names(self, view: LiveView) -> None:
        rows = (msgspec.structs.replace(view.rows[0], name="\x1b[2J\nevil\u202e", label=""),)
        lines = draw(msgspec.structs.replace(view, rows=rows, last_log="\x1b]0;x\x07"), 100, 30)
        assert all(piece.text.isprintable() for line in lines for piece in line)


class TestChoice:
    @pytest.fixture(autouse=True)
    def _no_terminal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with (tmp_path / "stdout").open("w") as out, (tmp_path / "stderr").open("w") as err:
            monkeypatch.setattr("sys.stdout", out)
            monkeypatch.setattr("sys.stderr", err)
            yield

    def test_json_where_asked_for(self) -> None:
        assert isinstance(make_screen(HandClock(), json=True), JsonScreen)

    def test_plain_lines_where_there_is_no_terminal(self) -> None:
        assert isinstance(make_screen(HandClock()), PlainScreen)

    def test_a_live_view_on_a_terminal(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stderr", terminal.file)
        assert isinstance(make_screen(HandClock()), LiveScreen)

    def test_a_dumb_terminal_gets_plain_lines(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stderr", terminal.file)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(make_screen(HandClock()), PlainScreen)


def test_the_recorded_start_has_every_kind_of_event(stream: list[Event]) -> None:
    assert {type(event) for event in stream} == set(typing.get_args(Event))
    assert isinstance(stream[-1], Verdict)


class TestSentences:
    def test_every_reason_to_end_a_server_is_words(self) -> None:
        said = {sentence(Stopping(at=0, t=0, why=str(outcome))) for outcome in Outcome}
        assert len(said) == len(Outcome)
        assert not any("_" in line or line.startswith("ending the server:") for line in said)

    def test_what_a_shell_starts_is_not_told_of_where_nobody_saw_its_end(self) -> None:
        def told(name: str, code: int | Gap, **more: Any) -> str:
            gone = Exit(id=ProcessId(pid=9, started=1), name=name, at=0, code=code, **more)
            return sentence(ProcessGone(at=0, t=0, exit=gone))

        unseen = Gap(what="exit status", reason=GapReason.NOT_SUPPORTED)
        assert told("bash", unseen) == told("nvcc", unseen, role=Role.COMPILER) == ""
        assert "code 1" in told("bash", 1)
        assert "is gone" in told("python", unseen)
        assert "is gone" in told("bash", unseen, rank=0)

    def test_one_process_is_not_several(self) -> None:
        line = sentence(Stopped(at=0, t=0, asked=1, killed=0, left=()))
        assert line == "the server has ended; 1 process was asked, no process, port or shared memory of it is left"

    def test_a_rank_is_told_once(self) -> None:
        gone = Exit(id=ProcessId(pid=9, started=1), name="p", label="worker rank=0", at=0, code=1, rank=0)
        line = sentence(ProcessGone(at=0, t=0, exit=gone))
        assert line == "worker rank=0 (pid 9) exited with code 1"
        other = msgspec.structs.replace(gone, label="worker rank=10")
        assert "(rank 0, pid 9)" in sentence(ProcessGone(at=0, t=0, exit=other))

    @pytest.mark.parametrize(
        ("motion", "why", "words"),
        [
            (Motion.QUIET, "idle, no request is in flight", "serving, idle, no request is in flight"),
            (Motion.MOVING, "front computes (30 % of a core)", "serving: front computes (30 % of a core)"),
            (Motion.STALLED, "nothing moves", "stalled in serving: nothing moves"),
        ],
    )
    def test_a_server_that_serves_is_not_called_quiet(self, motion: Motion, why: str, words: str) -> None:
        event = MotionChanged(at=0, t=0, motion=motion, phase=Phase.SERVING, why=why, signals=(), quiet_s=0)
        assert sentence(event) == words


def test_phases_of_several_processes_say_whose_they_are() -> None:
    news = PhaseNews()

    def begins(t: float, phase: Phase, source: str) -> str:
        return news.see(PhaseBegan(at=t, t=t, phase=phase, source=source, rank=-1, text=""))

    def ends(t: float, phase: Phase, source: str) -> str:
        return news.see(PhaseEnded(at=t, t=t, phase=phase, source=source, rank=-1, seconds=3.0))

    assert begins(0, Phase.CONFIG, "APIServer") == "config began"
    assert begins(1, Phase.WEIGHTS, "EngineCore") == "weights began in EngineCore"
    assert ends(4, Phase.WEIGHTS, "EngineCore") == "weights took 3.0 s in EngineCore"
    assert ends(5, Phase.CONFIG, "APIServer") == "config took 3.0 s in APIServer"
