"""Whose end matters, which end came first, and what is said of it."""

from signal import Signals

import msgspec
import pytest
from tests.unit.diagnose.conftest import NOW, UNSEEN, bundle, ended, line, look, process, stack, thread, twice

from firstlight.core.bundle import LogTail
from firstlight.core.log import PhaseSpan
from firstlight.core.look import OpenFile, ProcessLook
from firstlight.core.process import Exit, ProcessId
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.diagnose import Statement, first_loss, state

ROOT = ProcessId(pid=100, started=1000)
LAUNCHED = NOW - 600
"""The root started then, so a process that started at tick 1000 + 100 n is n seconds younger."""
SINCE_LAUNCH = (PhaseSpan(phase=Phase.SPAWN, source="", began=LAUNCHED),)


def ends(pid: int, name: str, *, born_s: float, at_s: float, **more: object) -> Exit:
    """An end by the seconds since the launch at which it started and ended."""
    return ended(pid, name, started=int(1000 + 100 * born_s), at=LAUNCHED + at_s, **more)


def root(at_s: float, **how: object) -> Exit:
    return ends(100, "serve", born_s=0, at_s=at_s, role=Role.FRONT, **how)


def worker(rank: int, at_s: float, **how: object) -> Exit:
    return ends(110 + rank, f"Worker_TP{rank}", born_s=10, at_s=at_s, role=Role.WORKER, rank=rank, **how)


def living(**more: object) -> ProcessLook:
    sleeps = thread(100, stack("load /app/load.py:88"))
    return process(100, sleeps, name="serve", started=1000, **more)  # type: ignore[arg-type]


SHORT_LIVED = (
    ends(300, "file", born_s=4, at_s=4.2, code=UNSEEN),
    ends(301, "sleep", born_s=0, at_s=500, code=0),
    ends(302, "nvidia-smi", born_s=5, at_s=5.5, code=1),
    ends(303, "ninja", born_s=5, at_s=90, code=1, role=Role.COMPILER),
    ends(304, "detokenizer", born_s=5, at_s=90, code=UNSEEN, role=Role.HELPER),
    ends(305, "lscpu", born_s=5, at_s=5.1, signal=Signals.SIGPIPE),
    ends(306, "python -c", born_s=5, at_s=90, signal=Signals.SIGTERM),
)


@pytest.mark.parametrize("harmless", SHORT_LIVED, ids=lambda gone: gone.name)
def test_nobody_misses_a_program_that_comes_and_goes(harmless: Exit) -> None:
    looked = look(living())
    for seen in (bundle(timeline=SINCE_LAUNCH, exits=(harmless,)), bundle(looked, looked, exits=(harmless,))):
        for first in (None, ROOT):
            statement = state(seen, root=first)
            assert statement.findings == ()
            assert f"pid {harmless.id.pid}" not in statement.headline
    assert first_loss([harmless], ROOT, LAUNCHED) is None


@pytest.mark.parametrize(
    "missed",
    [
        worker(0, 90, code=0),
        worker(0, 90, code=UNSEEN),
        ends(300, "EngineCore", born_s=5, at_s=90, code=0, role=Role.ENGINE),
        ends(300, "detokenizer", born_s=5, at_s=90, signal=Signals.SIGSEGV, role=Role.HELPER),
        ends(300, "loader", born_s=5, at_s=6, signal=Signals.SIGKILL),
        root(90, code=0),
        root(90, code=UNSEEN),
    ],
    ids=lambda gone: f"{gone.name}-{gone.code if gone.signal is None else gone.signal}",
)
def test_who_is_missed(missed: Exit) -> None:
    statement = state(bundle(exits=(*SHORT_LIVED, missed)), root=ROOT)
    assert [(one.verdict, one.pids[0]) for one in statement.findings] == [("established", missed.id.pid)]
    assert first_loss([*SHORT_LIVED, missed], ROOT) == missed


def test_a_program_that_failed_after_a_while_only_speaks_for_a_loss() -> None:
    failed = ends(300, "loader", born_s=5, at_s=60, code=1)
    statement = state(bundle(look(living()), exits=(failed,), timeline=SINCE_LAUNCH))
    assert [(one.id, one.verdict) for one in statement.findings] == [("program_failed", "supported")]
    assert "loader (pid 300) exited with code 1" in statement.headline
    assert first_loss([failed], ROOT, LAUNCHED) == failed


def test_its_failure_is_not_the_headline_where_a_cause_is_known_or_the_server_moves() -> None:
    failed = ends(300, "loader", born_s=5, at_s=60, code=1)
    stopped = look(living(state="T"))
    statement = state(bundle(stopped, exits=(failed,), timeline=SINCE_LAUNCH))
    assert [one.id for one in statement.findings] == ["stopped_process", "program_failed"]
    assert "is stopped by a signal" in statement.headline
    moves = (look(living(), at=NOW - 5), look(living(read=1 << 20)))
    assert state(bundle(*moves, exits=(failed,), timeline=SINCE_LAUNCH), stalled=False).headline.startswith("still")


def test_without_knowing_when_it_started_no_failure_is_called_late() -> None:
    assert first_loss([ends(300, "loader", born_s=5, at_s=60, code=1)], ROOT) is None


def test_a_child_that_still_has_its_parents_name_is_not_the_parent() -> None:
    def rank(pid: int, started: int) -> ProcessLook:
        reads = thread(pid, stack("load /app/load.py:1"))
        return process(pid, reads, name="Worker_TP0", role=Role.WORKER, rank=0, started=started)

    forked = ended(300, "Worker_TP0", started=7000, code=0, role=Role.WORKER, rank=0)
    assert state(twice(living(), rank(110, 2000), exits=(forked,))).findings == ()
    assert state(twice(living(), rank(301, 8000), exits=(forked,))).findings[0].id == "rank_died"
    front = ends(300, "serve", born_s=5, at_s=6, code=0, role=Role.FRONT)
    assert first_loss([front], ROOT) is None


def test_a_parent_that_waits_for_a_child_that_went_without_a_word_is_named_with_the_child() -> None:
    connection = "/usr/lib/python3.11/multiprocessing/connection.py"
    reads = thread(
        100,
        stack(
            f"Connection._recv {connection}:395", f"_ConnectionBase.recv {connection}:250", "main /app/front.py:12"
        ),
        call="read(0x3, 0x0)",
        fds=(3,),
    )
    own = OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(100,))
    waits = process(100, reads, name="serve", files=(own,), started=1000)
    for how in ({"code": 0}, {"code": UNSEEN}, {"code": 1}):
        statement = state(twice(waits, exits=(*SHORT_LIVED, ends(309, "helper", born_s=5, at_s=580, **how))))
        assert statement.findings[0].id == "dead_pipe_peer"
        assert "helper (pid 309)" in " ".join(statement.findings[0].evidence)
        assert statement.headline.startswith("stalled in weights for 24 s: serve (pid 100) waits to read from a pipe")


def test_who_was_left_waiting_by_a_rank_that_went_is_in_the_headline() -> None:
    reads = thread(100, stack("main /app/front.py:12"), call="read(0x3, 0x0)", fds=(3,))
    own = OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(100,))
    waits = process(100, reads, name="serve", files=(own,), started=1000)
    assert state(twice(waits, exits=(worker(0, 90, code=0),))).headline == (
        "in weights, worker rank 0 (pid 110) exited with code 0; "
        "serve (pid 100) waits for data that nobody is left to send"
    )


def orderly(*exits: Exit, phase: Phase = Phase.SERVING) -> Statement:
    return state(bundle(exits=exits, phase=phase), root=ROOT)


ASKED = "Somebody or something asked it to end: a supervisor, `kill`, a closed terminal."


@pytest.mark.parametrize("signal", [Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP])
@pytest.mark.parametrize("how", [{"code": 0}, {"signal": Signals.SIGTERM}, {"code": 143}], ids=str)
@pytest.mark.parametrize("phase", [Phase.WEIGHTS, Phase.SERVING])
def test_a_server_that_is_asked_to_end_is_not_brought_down_by_its_ranks(
    signal: Signals, how: dict[str, object], phase: Phase
) -> None:
    ranks = [worker(0, 500, signal=signal), worker(1, 500.1, signal=signal), worker(2, 500.2, code=0)]
    statement = orderly(*ranks, root(502, **how), phase=phase)
    finding = statement.findings[0]
    assert (finding.id, finding.pids) == ("process_died", (100,))
    assert "ended with it, worker rank 0 (pid 110) was killed" in " ".join(finding.evidence)
    assert finding.advice == (ASKED,)
    assert statement.headline.startswith(f"the server ended: in {phase}, front (pid 100)")
    assert first_loss([*ranks, root(502, **how)], ROOT) == root(502, **how)


@pytest.mark.parametrize(
    ("ranks", "server"),
    [
        ([worker(0, 500, signal=Signals.SIGKILL)], root(502, code=0)),
        ([worker(0, 500, signal=Signals.SIGTERM)], root(502, code=1)),
        ([worker(0, 400, signal=Signals.SIGTERM)], root(502, code=0)),
        ([worker(0, 500, signal=Signals.SIGSEGV), worker(1, 501, signal=Signals.SIGTERM)], root(502, signal=15)),
    ],
    ids=["killed", "the server failed", "long before", "crashed"],
)
def test_a_rank_that_brought_its_server_down_stays_the_cause(ranks: list[Exit], server: Exit) -> None:
    assert first_loss([*ranks, server], ROOT) == ranks[0]
    assert orderly(*ranks, server).findings[0].pids[0] == 110


def test_a_wrapper_fails_with_the_program_that_it_waits_for() -> None:
    server = ends(101, "python", born_s=0.1, at_s=60, code=1)
    assert first_loss([server, root(60.1, code=1)], ROOT, LAUNCHED) == server
    assert first_loss([server, root(300, code=1)], ROOT, LAUNCHED) == root(300, code=1)
    assert first_loss([server, root(60.1, signal=Signals.SIGTERM)], ROOT, LAUNCHED) == root(60.1, signal=15)


def test_nobody_blames_the_out_of_memory_killer_for_a_signal_that_asks() -> None:
    for signal in (Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP):
        assert orderly(worker(0, 500, signal=signal)).findings[0].advice == (ASKED,)
    assert "out-of-memory killer" in orderly(worker(0, 500, signal=Signals.SIGKILL)).findings[0].advice[0]
    assert "out-of-memory" not in orderly(worker(0, 500, signal=Signals.SIGUSR1)).findings[0].advice[0]


def test_a_rank_that_ended_well_is_asked_why_and_a_server_whether_it_is_one() -> None:
    served_by = look(living())
    rank = state(bundle(served_by, exits=(worker(0, 90, code=0),)), root=ROOT).findings[0]
    assert "while others still need it" in rank.advice[0]
    server = state(bundle(exits=(root(90, code=0),), phase=Phase.SPAWN), root=ROOT).findings[0]
    assert "check that the command starts a server" in server.advice[0]


def test_what_to_read_depends_on_what_was_printed() -> None:
    gone = root(90, code=1)
    error = line("ValueError: no")
    silent = state(bundle(exits=(gone,)), root=ROOT)
    assert silent.findings[0].advice == ("It printed nothing; run its command by itself to see.",)
    spoke = state(bundle(exits=(gone,), logs=(LogTail(source="stderr", lines=(line("hello"),)),)), root=ROOT)
    assert "No line of the log names an error" in spoke.findings[0].advice[0]
    failed = (LogTail(source="stderr", lines=(error,), first_error=error),)
    assert "Read the first error" in state(bundle(exits=(gone,), logs=failed), root=ROOT).findings[0].advice[0]


def test_the_last_words_of_whoever_ended_are_quoted() -> None:
    own = line("loading shard 3", source="Worker_TP0", pid=110)
    tails = (LogTail(source="Worker_TP0", lines=(own,)),)
    finding = state(bundle(exits=(worker(0, 90, signal=9),), logs=tails), root=ROOT).findings[0]
    assert "its last words: loading shard 3" in finding.evidence


def test_who_waits_for_somebody_gone_reads_well() -> None:
    waits = process(100, thread(100, stack("main /app/a.py:1"), call="wait4(0x6e, 0x0)"), name="serve", started=1000)
    statement = state(twice(waits, exits=(worker(0, 90, code=0),)))
    assert statement.processes[0].doing.startswith("waits for worker rank 0 (pid 110, which is gone) to end")


def test_no_look_and_a_server_that_lives_is_no_server_that_ended() -> None:
    assert state(bundle(exits=(worker(0, 90, code=0),)), root=ROOT).headline == (
        "in weights, worker rank 0 (pid 110) exited with code 0"
    )


def test_a_rank_that_failed_is_to_blame_though_others_were_ended_before_it_was_gone() -> None:
    asked = ends(103, "helper", born_s=0.1, at_s=60, signal=Signals.SIGTERM, role=Role.WORKER)
    broke = ends(104, "worker", born_s=0.1, at_s=61, code=1, role=Role.WORKER)
    assert first_loss([asked, broke, root(62, code=1)], ROOT, LAUNCHED) == broke


@pytest.mark.parametrize(
    ("phase", "motion", "role", "word"),
    [
        (Phase.WEIGHTS, Motion.MOVING, Role.OTHER, "supported"),
        (Phase.SERVING, Motion.QUIET, Role.OTHER, "supported"),
        (Phase.WEIGHTS, Motion.QUIET, Role.OTHER, "established"),
        (Phase.WEIGHTS, Motion.MOVING, Role.WORKER, "established"),
    ],
)
def test_a_server_that_goes_on_has_got_over_a_zombie_without_a_part_in_it(
    phase: Phase, motion: Motion, role: Role, word: str
) -> None:
    """Whoever kills a helper and does not wait for it leaves one; a look finds it, and not since when it is there."""
    gone = ended(200, at=NOW - 5, started=2, signal=9, role=role)
    seen = msgspec.structs.replace(twice(process(100), phase=phase, exits=(gone,)), run="", motion=motion)
    found = {one.id: one.verdict for one in state(seen, stalled=False).findings}
    assert found == {"program_failed" if word == "supported" else _cause(role): word}


def _cause(role: Role) -> str:
    return "rank_died" if role is Role.WORKER else "process_died"


def test_who_ended_before_its_title_was_read_is_the_rank_as_which_it_wrote() -> None:
    killed = ends(111, "serve", born_s=5, at_s=20, signal=Signals.SIGKILL, role=Role.FRONT)
    wrote = msgspec.structs.replace(line("phase=weights begin"), pid=111, rank=1, source="worker rank 1")
    told = LogTail(source="stderr", lines=(wrote,))
    seen = msgspec.structs.replace(twice(living(), exits=(killed,)), logs=(told,), timeline=SINCE_LAUNCH)
    finding = state(seen, root=ROOT).findings[0]
    assert (finding.id, finding.verdict) == ("rank_died", "established")
    assert finding.title.startswith("worker rank 1 (pid 111)")
    other = msgspec.structs.replace(told, lines=(msgspec.structs.replace(wrote, pid=112),))
    assert state(msgspec.structs.replace(seen, logs=(other,)), root=ROOT).findings[0].id == "process_died"
