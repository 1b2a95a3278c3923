"""The journal and the state: what they survive, what they tell, and what they keep to themselves."""

import os
import re
import resource
import typing
from pathlib import Path

import pytest

from firstlight.core import events
from firstlight.core.events import Event, GapNoted, LogSeen, Started
from firstlight.core.gap import Gap
from firstlight.core.record import to_json
from firstlight.core.state import RunState
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.supervise.runs import journal
from firstlight.supervise.runs.folders import RunFolder
from firstlight.supervise.runs.journal import Journal, StateFile, read_journal, to_line

DOCUMENT = Path(__file__).parents[3] / "docs" / "journal.md"


def log(text: str, t: float = 1.0) -> LogSeen:
    return LogSeen(at=1_700_000_000.0, t=t, stream="stderr", source="", level="INFO", text=text)


def state(progress: str = "") -> RunState:
    return RunState(
        run="r",
        supervisor=1,
        server=2,
        url="",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        why="",
        since=0,
        quiet_s=0,
        progress=progress,
        serving=False,
        outcome=None,
        at=0,
        boottime=0,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder("r", tmp_path)


class TestWriting:
    def test_what_was_written_is_read(self, folder: RunFolder) -> None:
        book = Journal(folder)
        book.write(log("one"))
        book.write(log("two"))
        assert list(read_journal(folder.journal)) == [log("one"), log("two")]
        assert folder.journal.stat().st_mode & 0o777 == 0o600
        assert book.take_gaps() == ()

    def test_a_journal_that_is_opened_again_is_continued(self, folder: RunFolder) -> None:
        Journal(folder).write(log("one"))
        Journal(folder).write(log("two"))
        assert list(read_journal(folder.journal)) == [log("one"), log("two")]

    def test_the_gaps_of_the_folder_are_told_once(self, tmp_path: Path) -> None:
        gap = Gap(what="a place for the run", reason=GapReason.FAILED)
        book = Journal(RunFolder("r", tmp_path, (gap,)))
        assert book.take_gaps() == (gap,)
        assert book.take_gaps() == ()


class TestFaults:
    def test_a_missing_folder_is_one_gap_and_nothing_is_lost_when_it_comes_back(self, tmp_path: Path) -> None:
        folder = RunFolder("r", tmp_path / "gone")
        book = Journal(folder)
        book.write(log("one"))
        book.write(log("two"))
        (gap,) = book.take_gaps()
        assert "tried again" in gap.detail
        folder.path.mkdir()
        book.write(log("three"))
        assert list(read_journal(folder.journal)) == [log("one"), log("two"), log("three")]
        assert book.take_gaps() == ()

    def test_a_full_disk_is_one_gap(self, folder: RunFolder) -> None:
        book = Journal(folder)
        book._fd = os.open("/dev/full", os.O_WRONLY)
        for _ in range(3):
            book.write(log("x"))
        (gap,) = book.take_gaps()
        assert "No space left" in gap.detail

    def test_a_line_that_the_disk_cut_in_two_is_written_again_whole(self, folder: RunFolder) -> None:
        """The limit on file size cuts a write short just as a disk that fills up does."""
        book = Journal(folder)
        book.write(log("one"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (folder.journal.stat().st_size + 20, hard))
        try:
            book.write(log("two"))
            book.write(log("three"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(book.take_gaps()) == 1
        book.write(log("four"))
        read = list(read_journal(folder.journal))
        assert [entry for entry in read if not isinstance(entry, Gap)] == [
            log("one"),
            log("two"),
            log("three"),
            log("four"),
        ]
        assert len([entry for entry in read if isinstance(entry, Gap)]) == 1

    def test_what_is_lost_for_good_is_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = RunFolder("r", tmp_path / "gone")
        book = Journal(folder)
        for number in range(journal.WAITING_LINES_MAX + 5):
            book.write(log(str(number)))
        folder.path.mkdir()
        book.write(log("last"))
        read = list(read_journal(folder.journal))
        assert read[-2] == log("last")
        assert isinstance(read[-1], GapNoted)
        assert read[-1].gap.detail == "6 events could not be written"
        assert len(read) == journal.WAITING_LINES_MAX + 1


class TestReading:
    def test_a_torn_last_line_is_a_gap(self, folder: RunFolder) -> None:
        folder.journal.write_bytes(to_line(log("one")) + to_line(log("two"))[:-20])
        one, torn = read_journal(folder.journal)
        assert one == log("one")
        assert isinstance(torn, Gap)
        assert torn.what == "line 2 of the journal"

    @pytest.mark.parametrize(
        "rubbish",
        [b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"{}\n", b'{"type":"of the future","at":1,"t":1}\n', b"\0" * 4096],
        ids=["not text", "deep", "no type", "unknown type", "a hole"],
    )
    def test_rubbish_in_the_middle_is_a_gap(self, folder: RunFolder, rubbish: bytes) -> None:
        folder.journal.write_bytes(to_line(log("one")) + rubbish.rstrip(b"\n") + b"\n" + to_line(log("two")))
        first, gap, last = read_journal(folder.journal)
        assert (first, last) == (log("one"), log("two"))
        assert isinstance(gap, Gap)


class TestSecrets:
    def test_a_command_is_redacted_as_a_whole(self) -> None:
        event = Started(
            at=0, t=0, run="r", engine="vllm", command=("vllm", "--api-key", "open sesame"), pid=1, url="", folder=""
        )
        assert b"sesame" not in to_line(event)
        assert b'"vllm","--api-key","***"' in to_line(event)

    def test_text_is_redacted_wherever_it_stands(self) -> None:
        secret = "hf_" + "a1B2" * 8
        assert secret.encode() not in to_line(log(f"using token {secret}"))
        gap = GapNoted(
            at=0, t=0, gap=Gap(what="x", reason=GapReason.FAILED, detail=f"Authorization: Bearer {secret}")
        )
        assert secret.encode() not in to_line(gap)

    def test_what_no_file_can_hold_is_replaced_and_raises_nothing(self, folder: RunFolder) -> None:
        event = Started(
            at=0,
            t=0,
            run="r",
            engine="\ud800",
            command=("caf\udce9", "--api-key", "\udce9"),
            pid=1,
            url="",
            folder="\udcff",
        )
        book = Journal(folder)
        book.write(event)
        book.write(log("\udc80"))
        started, line = read_journal(folder.journal)
        assert isinstance(started, Started)
        assert (started.engine, started.command, started.folder) == ("�", ("caf�", "--api-key", "***"), "�")
        assert line == log("�")


class TestState:
    def test_what_was_written_is_read(self, folder: RunFolder) -> None:
        assert StateFile(folder).write(state("12/64 shards"))
        assert StateFile(folder).read() == state("12/64 shards")
        assert folder.state.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in folder.path.iterdir()] == ["state.json"]

    def test_it_holds_no_secret_and_is_written_whatever_it_holds(self, folder: RunFolder) -> None:
        assert StateFile(folder).write(state("hf_" + "a1B2" * 8 + " \ud800"))
        assert StateFile(folder).read() == state("*** �")

    def test_where_no_new_file_can_be_made_the_old_one_is_written_over(self, folder: RunFolder) -> None:
        file = StateFile(folder)
        file.write(state("12/64 shards and a long line of words"))
        (folder.path / "state.json.new").mkdir()  # as on a full disk, no file of this name can be opened
        assert file.write(state("13/64"))
        assert file.read() == state("13/64")

    def test_where_nothing_can_be_written_it_says_so_and_goes_on(self, tmp_path: Path) -> None:
        file = StateFile(RunFolder("r", tmp_path / "gone"))
        assert not file.write(state())
        assert isinstance(file.read(), Gap)

    @pytest.mark.parametrize("torn", [b"", b"{", to_json(state())[:-10], b"\0" * 500, b"[" * 60_000])
    def test_a_torn_state_is_a_gap(self, folder: RunFolder, torn: bytes) -> None:
        folder.state.write_bytes(torn)
        read = StateFile(folder).read()
        assert isinstance(read, Gap)
        assert read.reason == GapReason.FAILED


def test_the_document_lists_every_event_with_all_its_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+` ?)+)\|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}
    declared = {
        event.__struct_config__.tag: [field for field in event.__struct_fields__ if field not in {"at", "t"}]
        for event in typing.get_args(events.Event)
    }
    assert documented == declared


def test_every_event_is_part_of_the_union() -> None:
    tagged = {
        thing
        for thing in vars(events).values()
        if isinstance(thing, type) and thing.__module__ == events.__name__ and hasattr(thing, "__struct_config__")
    }
    assert tagged == set(typing.get_args(Event))
