"""What reports say, before it is laid out."""

import msgspec
import pytest

from firstlight.core.gap import Gap
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.process import Exit, ProcessId
from firstlight.core.report import Finding, Report, ReportedProcess
from firstlight.core.timeline import merged
from firstlight.core.vocabulary import GapReason, Outcome, Phase, Role
from firstlight.report.processes import ENDED_MAX, ended, groups, process_facts
from firstlight.report.sections import (
    ALIKE_MAX,
    environment,
    facts,
    finding_words,
    log_tail,
    outcome,
    shown_findings,
)
from firstlight.report.timeline import bars


def span(phase: Phase, source: str, began: float, ended: float | None) -> PhaseSpan:
    return PhaseSpan(phase=phase, source=source, began=began, ended=ended)


class TestTimeline:
    def test_ranks_side_by_side_are_one_phase(self) -> None:
        spans = [span(Phase.WEIGHTS, "a", 1, 5), span(Phase.WEIGHTS, "b", 2, 7), span(Phase.KV_CACHE, "a", 5, 6)]
        assert merged(spans) == (span(Phase.WEIGHTS, "", 1, 7), span(Phase.KV_CACHE, "a", 5, 6))

    def test_one_rank_that_is_not_done_keeps_the_phase_open(self) -> None:
        assert merged([span(Phase.WEIGHTS, "a", 1, 5), span(Phase.WEIGHTS, "b", 2, None)])[0].ended is None

    def test_a_phase_that_comes_back_later_is_another(self) -> None:
        spans = [span(Phase.WEIGHTS, "a", 1, 5), span(Phase.DRAFT_INIT, "a", 5, 6), span(Phase.WEIGHTS, "a", 6, 8)]
        assert [each.phase for each in merged(spans)] == [Phase.WEIGHTS, Phase.DRAFT_INIT, Phase.WEIGHTS]


def test_bars_lie_within_the_run(stalled: Report, serving: Report, exited: Report) -> None:
    for report in (stalled, serving, exited):
        assert all(
            0 <= bar.offset <= 1 and bar.share >= 0 and bar.offset + bar.share <= 1.0001 for bar in bars(report)
        )


def test_only_a_phase_that_should_have_ended_is_stuck(stalled: Report, serving: Report) -> None:
    assert [bar.phase for bar in bars(stalled) if bar.stuck] == ["weights"]
    assert not any(bar.stuck for bar in bars(serving))


def test_one_phase_alone_needs_no_bar(stalled: Report, rich: Report) -> None:
    alone = msgspec.structs.replace(stalled, timeline=(span(Phase.WEIGHTS, "", stalled.started, None),))
    assert bars(alone) == []
    parted = tuple(one for one in rich.timeline if one.phase == rich.timeline[-1].phase)
    assert [bar.note for bar in bars(msgspec.structs.replace(rich, timeline=parted))] == ["did not end on rank 7"]


def test_a_list_of_folders_is_cut_to_one_line(stalled: Report) -> None:
    long = ":".join(f"/opt/tools/{number}/bin" for number in range(30))
    variables = (("PATH", long), ("LD_LIBRARY_PATH", "/usr/lib:/lib"), ("VLLM_ARGS", long))
    shown = dict(environment(msgspec.structs.replace(stalled, environment=variables)))
    assert shown["PATH"] == "/opt/tools/0/bin:/opt/tools/1/bin:/opt/tools/2/bin:/opt/tools/3/bin: … of 30 folders"
    assert shown["LD_LIBRARY_PATH"] == "/usr/lib:/lib"
    assert len(shown["VLLM_ARGS"]) == 400


def test_a_cause_that_was_found_for_hundreds_of_processes_is_told_at_a_length_that_is_read() -> None:
    one = Finding(id="x", title="t", verdict="supported", advice=("Do it.",), traps=("Mind it.",))
    found = [msgspec.structs.replace(one, pids=(pid,), advice=(*one.advice, f"kill {pid}")) for pid in range(1000)]
    other = msgspec.structs.replace(one, id="y")
    shown, left_out = shown_findings([*found, other])
    assert [finding.id for finding in shown] == ["x"] * ALIKE_MAX + ["y"]
    assert shown[0] == found[0]
    assert (shown[1].advice, shown[1].traps) == (("kill 1",), ())
    assert shown[-1] == other
    assert left_out == f"… and {1000 - ALIKE_MAX} more findings"
    assert shown_findings([other]) == ([other], "")


def test_what_a_shell_starts_is_told_of_only_where_it_matters(stalled: Report) -> None:
    def shown(**changes: object) -> str:
        return " ".join(ended(msgspec.structs.replace(stalled, exits=(gone,), **changes)))

    unseen = Gap(what="exit status", reason=GapReason.NOT_SUPPORTED)
    gone = Exit(id=ProcessId(pid=909, started=1), name="bash", at=stalled.started, code=unseen)
    assert shown() == ""
    assert "bash (pid 909) is gone" in shown(findings=(Finding(id="x", title="t", verdict="supported", pids=(909,)),))
    assert "bash (pid 909) is gone" in shown(server=909)
    gone = msgspec.structs.replace(gone, name="python")
    assert "python (pid 909) is gone" in shown()


def test_ranks_that_do_the_same_at_the_same_place_are_one_group(stalled: Report) -> None:
    assert [[process.rank for process in group.processes] for group in groups(stalled)] == [[1], [0, 2, 3]]


def test_every_outcome_has_words_of_its_own(stalled: Report) -> None:
    words = {outcome(msgspec.structs.replace(stalled, outcome=each)) for each in Outcome}
    assert len(words) == len(Outcome)
    assert not any("_" in word for word in words)


def test_a_server_that_was_not_started_was_in_no_phase(stalled: Report) -> None:
    refused = msgspec.structs.replace(stalled, outcome=Outcome.NOT_STARTED)
    assert "phase" in dict(facts(stalled))
    assert "phase" not in dict(facts(refused))


def test_a_finding_is_not_followed_by_pids_that_its_title_does_not_name(stalled: Report) -> None:
    assert finding_words(stalled.findings[0]) == ("established", "a worker is stopped")


def test_nothing_is_claimed_of_what_a_process_does_that_has_ended(stalled: Report) -> None:
    process = stalled.processes[0]
    gone = Exit(id=ProcessId(pid=process.pid, started=1), name="x", at=1.0, code=1)
    assert process_facts(stalled, process) == "worker, weights, stopped by a signal, CPU 0 %, 3.2 GB"
    assert process_facts(msgspec.structs.replace(stalled, exits=(gone,)), process) == "worker, weights, ended"
    assert process_facts(stalled, msgspec.structs.replace(process, state="Z")) == "worker, weights, ended"


class TestEnded:
    @staticmethod
    def gone(pid: int, **how: object) -> Exit:
        helper = Exit(id=ProcessId(pid=pid, started=1), name=f"p{pid}", at=float(pid), code=0)
        return msgspec.structs.replace(helper, **how)

    def test_those_that_matter_stand_first_and_the_rest_is_counted(self, exited: Report) -> None:
        helpers = tuple(self.gone(pid) for pid in range(100, 130))
        telling = (
            self.gone(200),
            self.gone(201, role=Role.WORKER, rank=1),
            self.gone(202, code=3),
            self.gone(203, code=None, signal=9),
        )
        report = msgspec.structs.replace(exited, server=200, exits=(*helpers, *telling))
        lines = ended(report)
        assert [line.split()[1] for line in lines[:4]] == ["p202", "p203", "p200", "p201"]
        assert len(lines) == ENDED_MAX + 1
        assert lines[-1] == "and 24 more that ended as short-lived helpers do"

    def test_a_rest_that_was_killed_is_not_called_usual(self, exited: Report) -> None:
        killed = tuple(self.gone(pid, code=None, signal=9) for pid in range(100, 115))
        assert ended(msgspec.structs.replace(exited, exits=killed))[-1] == "and 5 more"


class TestLogTail:
    @staticmethod
    def tail(report: Report, *texts: str) -> list[str]:
        lines = tuple(LogLine(stream="stdout", at=1.0, text=text, message=text) for text in texts)
        return log_tail(msgspec.structs.replace(report, log_tail=lines))

    @pytest.mark.parametrize(
        "access",
        [
            'INFO:     127.0.0.1:51234 - "GET /health HTTP/1.1" 200 OK',
            '127.0.0.1 - - [11/Nov/2023 22:13:20] "POST /v1/completions HTTP/1.1" 200 -',
            '127.0.0.1:5 - "GET /health HTTP/1.1" 503 Service Unavailable',
            '127.0.0.1:5 - "HEAD /v1/models HTTP/1.0"  404',
        ],
    )
    def test_answers_to_our_own_questions_are_left_out(self, stalled: Report, access: str) -> None:
        assert self.tail(stalled, "one", access, "two") == ["one", "two"]

    def test_a_request_that_the_server_failed_stays(self, stalled: Report) -> None:
        failed = 'INFO: 127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error'
        assert self.tail(stalled, failed) == [failed]

    def test_a_line_that_comes_again_and_again_is_shown_once_at_its_last_place(self, stalled: Report) -> None:
        assert self.tail(stalled, "waiting", "a", "waiting", "b", "waiting") == ["a", "b", "waiting"]

    def test_what_works_has_no_last_words(self, serving: Report) -> None:
        assert self.tail(serving, "one") == []


def test_whoever_serves_is_in_no_earlier_phase(serving: Report) -> None:
    front = ReportedProcess(
        pid=1,
        name="front",
        role=Role.FRONT,
        rank=-1,
        label="",
        state="S",
        cpu_percent=0.0,
        memory_bytes=0,
        doing="",
        phase=Phase.HTTP_BIND,
    )
    assert "serving" in process_facts(serving, front)
    assert "http_bind" not in process_facts(serving, front)
    starting = msgspec.structs.replace(serving, phase=Phase.VERIFY)
    assert "http_bind" in process_facts(starting, front)
