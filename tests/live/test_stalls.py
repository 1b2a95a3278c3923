"""Every stall, live: a real program that really hangs, and what `firstlight up` says of it."""

import re

import pytest

from firstlight.core.bundle import read_bundle
from firstlight.core.events import MotionChanged, Started, Stopped
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Outcome
from firstlight.core.words import exit_words
from firstlight.testing.running import Ended
from firstlight.testing.scenarios import STALLS

pytestmark = pytest.mark.timeout(900)

SCENARIOS = {scenario.name: scenario for scenario in STALLS}
every_stall = pytest.mark.parametrize("scenario", STALLS, ids=lambda scenario: scenario.name)


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", [pytest.param(SCENARIOS[name], id=name)])


def verdicts(ended: Ended) -> dict[str, str]:
    return {finding.id: finding.verdict for finding in ended.report.findings}


def accused(ended: Ended) -> set[int]:
    """The processes that the findings name."""
    return {pid for finding in ended.report.findings for pid in finding.pids}


def told(ended: Ended) -> str:
    """Everything that the report says in words, in lower case."""
    report = ended.report
    parts = [report.headline, *(process.doing for process in report.processes), *map(exit_words, report.exits)]
    for finding in report.findings:
        parts += [finding.title, *finding.evidence, *finding.advice]
    return "\n".join(parts).lower()


def is_shared_memory(name: str) -> bool:
    """A segment that may as well be another program's: firstlight names what it could not tell, and leaves it."""
    return name.startswith("/dev/shm/")


def how_it_died(ended: Ended, pid: int) -> Exit:
    return next(died for died in ended.report.exits if died.id.pid == pid)


@every_stall
def test_it_is_reported_as_a_stall(ended: Ended) -> None:
    assert ended.code == 1, ended.stderr[-4000:]
    assert ended.report.outcome is Outcome.STALLED
    assert ended.report.headline
    assert ended.report.quiet_since is not None


@every_stall
def test_the_server_is_ended_and_nothing_of_it_is_left(ended: Ended) -> None:
    assert ended.left == ()
    stopped = ended.all(Stopped)
    assert stopped
    assert [name for name in stopped[-1].left if not is_shared_memory(name)] == []


@every_stall
def test_the_run_keeps_journal_logs_bundle_and_report(ended: Ended) -> None:
    names = {path.name for path in ended.folder.iterdir()}
    assert {"journal.jsonl", "state.json", "stdout.log", "stderr.log", "report.json"} <= names
    bundle = read_bundle((ended.folder / ended.report.bundle).read_bytes())
    assert bundle.run == ended.report.run
    assert len(bundle.looks) >= 2, "slow or stuck is a difference: one look is not enough"


@every_stall
def test_every_process_of_the_report_was_the_servers(ended: Ended) -> None:
    appeared = {event.pid for event in ended.all(Started)} | set(ended.pids())
    assert {process.pid for process in ended.report.processes} <= appeared


@of("sigstop_worker")
def test_a_stopped_worker_is_named(ended: Ended) -> None:
    worker = ended.pid_of("worker_TP0")
    assert verdicts(ended)["stopped_process"] == "established"
    assert worker in accused(ended)
    assert str(worker) in ended.report.headline
    assert f"kill -cont {worker}" in told(ended)


@of("rendezvous_missing_rank")
def test_the_rank_that_never_joins_is_told_from_those_that_wait(ended: Ended) -> None:
    waiting = {ended.pid_of("worker_TP0"), ended.pid_of("worker_TP1")}
    where = stacks(ended)
    assert all("init_process_group" in where[pid] or "_rendezvous" in where[pid] for pid in waiting), where
    assert "fetch_tokenizer" in where[ended.pid_of("worker_TP2")]
    assert str(ended.pid_of("worker_TP2")) in told(ended)


@of("skipped_barrier")
def test_the_rank_that_skipped_the_barrier_is_told_from_those_in_it(ended: Ended) -> None:
    where = stacks(ended)
    assert "barrier" in where[ended.pid_of("worker_TP0")]
    assert "barrier" in where[ended.pid_of("worker_TP2")]
    assert "event_loop" in where[ended.pid_of("worker_TP1")]
    assert str(ended.pid_of("worker_TP1")) in told(ended)


def stacks(ended: Ended) -> dict[int, str]:
    """The functions of each process in the last look, all threads, as one string."""
    looks = read_bundle((ended.folder / ended.report.bundle).read_bytes()).looks
    return {
        look.process.id.pid: " ".join(
            frame.function for thread in look.threads if isinstance(thread.stack, tuple) for frame in thread.stack
        )
        for look in looks[-1].processes
    }


@of("lock_inversion")
def test_two_threads_that_hold_each_others_lock_are_found(ended: Ended) -> None:
    assert "deadlock" in verdicts(ended)
    where = " ".join(stacks(ended).values())
    assert "allocate" in where
    assert "evict" in where


@of("queue_never_drained")
def test_both_ends_of_the_full_queue_are_shown(ended: Ended) -> None:
    worker = ended.pid_of("worker_TP0")
    named = {process.pid for process in ended.report.processes}
    assert worker in named
    assert "_feed" in stacks(ended)[worker]


@of("pipe_child_died")
def test_the_child_that_died_without_a_word_is_named(ended: Ended) -> None:
    child = ended.pid_of("worker_TP0")
    assert how_it_died(ended, child).code == 1
    assert {"rank_died", "dead_pipe_peer"} & set(verdicts(ended))
    assert str(child) in told(ended)


@of("fifo_weights_folder")
def test_a_weights_file_that_is_a_fifo_is_named(ended: Ended) -> None:
    assert verdicts(ended)["fifo_without_writer"] == "established"
    assert ended.pid_of("worker_TP0") in accused(ended)
    assert "model.safetensors" in told(ended)


@of("polls_for_file")
def test_who_sleeps_a_second_between_two_looks_at_a_file_is_no_sleeper(ended: Ended) -> None:
    whys = [event.why for event in ended.all(MotionChanged)]
    assert not [why for why in whys if "asleep" in why], "a poll was taken for a sleep that is waited for"
    assert "wait_for_file" in " ".join(stacks(ended).values())


@of("stale_extension_lock_folder")
def test_a_stale_lock_file_is_named_with_its_path(ended: Ended) -> None:
    assert "stale_jit_lock" in verdicts(ended)
    assert ended.pid_of("worker_TP0") in accused(ended)
    assert re.search(r"fused_rotary/lock", told(ended))


@of("spinning_rank")
def test_a_rank_that_spins_for_a_dead_peer_is_no_progress(ended: Ended) -> None:
    assert how_it_died(ended, ended.pid_of("worker_TP1")).signal == 9
    assert "rank_died" in verdicts(ended)
    assert ended.pid_of("worker_TP0") in {process.pid for process in ended.report.processes}


@of("never_generates")
def test_an_open_port_without_a_token_is_not_serving(ended: Ended) -> None:
    assert ended.report.first_token is None
    assert re.search(r"token|completion|generat", ended.report.headline.lower())


@of("waiting_heartbeat")
def test_a_line_that_only_repeats_is_no_progress(ended: Ended) -> None:
    assert "waiting for 1 core engine proc" in " ".join(line.text for line in ended.report.log_tail).lower()


@of("big_log_stall")
def test_two_hundred_megabytes_of_log_are_all_kept(ended: Ended) -> None:
    log = ended.folder / "stdout.log"
    assert log.stat().st_size >= 200 << 20
    with log.open("rb") as file:
        file.seek(-4096, 2)
        assert b"the log is written" in file.read()
    assert "the log is written" in " ".join(line.text for line in ended.report.log_tail)


@of("rank_dies_how_traceback")
def test_a_rank_that_failed_is_shown_with_its_first_error(ended: Ended) -> None:
    assert how_it_died(ended, ended.pid_of("worker_TP1")).code == 1
    assert "rank_died" in verdicts(ended)
    assert ended.report.first_error is not None
    assert "CUDA out of memory" in ended.report.first_error.text
    assert {ended.pid_of("worker_TP0"), ended.pid_of("worker_TP2")} <= {p.pid for p in ended.report.processes}


@of("rank_dies_how_killed")
def test_a_rank_that_was_killed_is_shown_with_its_signal(ended: Ended) -> None:
    died = how_it_died(ended, ended.pid_of("worker_TP1"))
    assert died.signal == 9
    assert "SIGKILL" in exit_words(died)
    assert str(died.id.pid) in told(ended)


@of("rank_dies_how_exit")
def test_a_rank_that_ended_well_is_missed_all_the_same(ended: Ended) -> None:
    assert how_it_died(ended, ended.pid_of("worker_TP1")).code == 0
    assert "rank_died" in verdicts(ended)


@of("rank_dies_serving")
def test_a_rank_lost_while_health_says_200_is_a_stall(ended: Ended) -> None:
    assert ended.report.first_token is not None
    assert "rank_died" in verdicts(ended)
    assert str(ended.pid_of("worker_TP0")) in told(ended)


@of("stuck_in_flight")
def test_a_request_that_never_comes_back_is_a_stall(ended: Ended) -> None:
    assert ended.report.first_token is not None
    assert "request" in told(ended)


@of("port_taken_hang")
def test_the_answers_of_another_process_are_not_taken_for_the_servers(ended: Ended) -> None:
    assert ended.report.first_token is None
    assert "port_in_use" in verdicts(ended)
