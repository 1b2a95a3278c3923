"""Who is stuck where, from bundles made by hand."""

import re

import msgspec
import pytest
from tests.unit.diagnose.conftest import NOW, REFUSED, bundle, ended, line, look, process, stack, thread, twice

from firstlight.core.bundle import LogTail
from firstlight.core.gap import Gap
from firstlight.core.log import PhaseSpan
from firstlight.core.look import Listener, Lock, OpenFile, ProcessLook, TimeLimit
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.diagnose import Statement, check, state

CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
RECV = stack(f"Connection._recv {CONNECTION}:395", f"_ConnectionBase.recv {CONNECTION}:250", "wait /app/front.py:12")
LOADS = stack("load /app/load.py:88 time.sleep(1)", "main /app/main.py:3")
BARRIER_LINE = f"barrier {C10D}:5356"
BARRIER = stack(BARRIER_LINE, "load /app/load.py:26")


def held_by(*pids: int, fd: int = 3, kind: str = "pipe", **more: object) -> OpenFile:
    return OpenFile(fd=fd, kind=kind, target=f"{kind}:[9]", peers=pids, **more)  # type: ignore[arg-type]


def reader(pid: int, *peers: int, **more: object):  # type: ignore[no-untyped-def]
    reads = thread(pid, RECV, call="read(0x3, 0x0)", fds=(3,))
    return process(pid, reads, files=(held_by(*peers),), **more)  # type: ignore[arg-type]


def ids(statement: Statement) -> dict[str, str]:
    return {finding.id: finding.verdict for finding in statement.findings}


def doing(statement: Statement, pid: int) -> str:
    return next(one.doing for one in statement.processes if one.pid == pid)


def test_a_stopped_worker_and_who_waits_for_it_in_one_sentence() -> None:
    worker = process(123, thread(123, LOADS, state="T"), state="T", role=Role.WORKER, rank=1)
    engine = reader(100, 123, role=Role.ENGINE)
    statement = state(twice(engine, worker))
    assert statement.headline == (
        "stalled in weights for 24 s: worker rank 1 (pid 123) is stopped by a signal (state T); "
        "kill -CONT 123 (SIGCONT) lets it go on; engine core (pid 100) waits for it"
    )
    assert ids(statement) == {"stopped_process": "established"}
    assert statement.suspects[0] == 123


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (TimeLimit(seconds=40.4, exact=True), "sleeps for another 40 s, in load (load.py:88)"),
        (TimeLimit(seconds=600.0, exact=False), "sleeps for up to 10 min 00 s, in load (load.py:88)"),
        (TimeLimit(seconds=4.0, exact=True), "sleeps in load (load.py:88)"),
    ],
)
@pytest.mark.parametrize("call", ["clock_nanosleep(0x1)", "pselect6(0x0)"])
def test_who_sleeps_long_is_said_to_wake(limit: TimeLimit, words: str, call: str) -> None:
    assert doing(state(twice(process(100, thread(100, LOADS, call=call, limit=limit)))), 100) == words


def test_waiting_is_followed_to_its_end() -> None:
    front = reader(50, 100, role=Role.FRONT)
    engine = reader(100, 123, role=Role.ENGINE)
    worker = process(123, thread(123, LOADS), role=Role.WORKER, rank=0)
    statement = state(twice(front, engine, worker))
    assert statement.suspects[0] == 123
    assert "worker rank 0 (pid 123) sleeps in load (load.py:88)" in statement.headline
    assert "front (pid 50) and engine core (pid 100) wait for it" in statement.headline


def test_what_is_not_explained_is_unknown_and_says_what_to_collect() -> None:
    futex = thread(100, stack("forward /app/model.py:5 y = layer(x)"), call="futex(0x1, 0x80)")
    statement = state(bundle(look(process(100, futex))))
    assert "cause unknown" in statement.headline
    assert statement.findings == ()
    assert any("second time" in step for step in statement.next_steps)
    assert any("py-spy dump --native --pid 100" in step for step in statement.next_steps)


def test_a_traced_process_names_its_debugger() -> None:
    statement = state(twice(process(100, thread(100, LOADS, state="t"), state="t", tracer=77)))
    assert ids(statement) == {"traced_process": "established"}
    assert "pid 77" in doing(statement, 100)


def test_the_rank_that_is_elsewhere_is_the_suspect() -> None:
    ranks = [
        process(200 + rank, thread(200 + rank, BARRIER if rank != 2 else LOADS), role=Role.WORKER, rank=rank)
        for rank in range(4)
    ]
    statement = state(twice(*ranks))
    finding = statement.findings[0]
    assert (finding.id, finding.verdict, finding.pids) == ("rank_elsewhere", "supported", (202,))
    assert finding.title == "3 of 4 ranks wait for worker rank 2 (pid 202), which never came"
    assert finding.evidence[0].startswith("ranks 0, 1 and 3: barrier (distributed_c10d.py:5356)")
    assert (
        "worker rank 0 (pid 200), worker rank 1 (pid 201) and worker rank 3 (pid 203) wait for it"
        in statement.headline
    )


def test_of_two_ranks_the_one_that_is_not_in_the_barrier_is_the_suspect() -> None:
    ranks = [
        process(200, thread(200, LOADS), role=Role.WORKER, rank=0),
        process(201, thread(201, BARRIER), role=Role.WORKER, rank=1),
    ]
    assert state(twice(*ranks)).findings[0].pids == (200,)


def test_ranks_that_all_wait_in_the_same_barrier_accuse_nobody() -> None:
    ranks = [process(200 + n, thread(200 + n, BARRIER), role=Role.WORKER, rank=n) for n in range(4)]
    statement = state(twice(*ranks))
    assert statement.findings == ()
    assert "cause unknown" in statement.headline


def test_most_ranks_elsewhere_accuse_nobody() -> None:
    ranks = [
        process(200 + n, thread(200 + n, BARRIER if n == 0 else LOADS), role=Role.WORKER, rank=n) for n in range(4)
    ]
    assert "rank_elsewhere" not in ids(state(twice(*ranks)))


def test_a_dead_rank_its_end_its_first_error_and_who_waits() -> None:
    alive = [process(200 + n, thread(200 + n, BARRIER), role=Role.WORKER, rank=n) for n in (0, 2)]
    died = ended(201, "Worker_TP1", role=Role.WORKER, rank=1, signal=9, oom=True)
    tails = (
        LogTail(source="TP0", lines=(), first_error=line("ERROR connection reset", at=NOW - 10)),
        LogTail(source="TP1", lines=(), first_error=line("ERROR out of memory", at=NOW - 20)),
    )
    statement = state(twice(*alive, exits=(died,), logs=tails))
    finding = statement.findings[0]
    assert (finding.id, finding.verdict, finding.pids) == ("rank_died", "established", (201, 200, 202))
    assert "first error in the log: ERROR out of memory" in finding.evidence
    assert statement.first_error is not None
    assert statement.first_error.message == "ERROR out of memory"
    assert statement.headline.startswith(
        "in weights, worker rank 1 (pid 201) was killed by signal 9 (SIGKILL), by the kernel"
    )
    assert statement.headline.endswith("worker rank 0 (pid 200) and worker rank 2 (pid 202) wait for it")


def test_the_first_of_several_deaths_is_told_first() -> None:
    exits = (
        ended(300, "EngineCore", role=Role.ENGINE, code=1, at=NOW - 5),
        ended(201, "Worker", role=Role.WORKER, rank=1, signal=11, at=NOW - 9),
    )
    statement = state(bundle(exits=exits))
    assert statement.headline.startswith(
        "the server ended: in weights, worker rank 1 (pid 201) was killed by signal 11"
    )
    assert any("later, engine core (pid 300) exited with code 1" in one for one in statement.findings[0].evidence)


@pytest.mark.parametrize(
    "harmless",
    [
        ended(300, "nvidia-smi", code=1),
        ended(300, "sh", code=0),
        ended(300, "cc1plus", role=Role.COMPILER, signal=9),
        ended(300, "python3.11", code=0),
        ended(300, "lscpu", signal=13),
    ],
    ids=lambda one: one.name,
)
def test_small_programs_that_come_and_go_are_no_death(harmless) -> None:  # type: ignore[no-untyped-def]
    statement = state(twice(process(100, thread(100, LOADS), name="python3.11"), exits=(harmless,)))
    assert statement.findings == ()
    assert "sleeps" in statement.headline


def test_what_a_rank_forked_for_a_moment_is_no_dead_rank() -> None:
    """It ends before it has taken a name of its own, and may be known by another than the rank's title."""
    alive = process(200, thread(200, LOADS), name="worker rank=2", label="worker rank=2", role=Role.WORKER, rank=2)
    forked = ended(201, "fl-worker-2", code=0, started=999, label="worker rank=2", role=Role.WORKER, rank=2)
    assert state(twice(alive, exits=(forked,))).findings == ()


def test_a_numbered_worker_that_ended_while_its_likes_live_is_a_dead_rank() -> None:
    alive = process(200, thread(200, LOADS), name="worker_TP0")
    statement = state(twice(alive, exits=(ended(201, "worker_TP1", code=1),)))
    assert ids(statement) == {"rank_died": "established"}


def test_a_server_that_ended_well_before_serving_is_said_so() -> None:
    gone = ended(100, "server", code=0)
    statement = state(bundle(exits=(gone,), phase=Phase.SPAWN), root=gone.id)
    assert statement.headline == "the server ended: in spawn, server (pid 100) exited with code 0"
    assert "check that the command starts a server" in statement.next_steps[0]


def test_a_zombie_worker_is_dead_even_if_nobody_noted_it() -> None:
    dead = process(201, state="Z", role=Role.WORKER, rank=1)
    statement = state(twice(process(200, thread(200, BARRIER), role=Role.WORKER, rank=0), dead))
    assert ids(statement) == {"rank_died": "established"}


def test_a_fifo_that_nobody_writes() -> None:
    opens = thread(100, LOADS, call="openat(0xffffff9c, 0x1)", path="/m/model.safetensors")
    fifo = OpenFile(fd=-1, kind="fifo", target="/m/model.safetensors")
    statement = state(twice(process(100, opens, files=(fifo,))))
    assert ids(statement) == {"fifo_without_writer": "established"}
    assert "waits in open() of FIFO /m/model.safetensors, whose other end nobody opens, in load" in statement.headline


def test_a_file_that_is_slow_to_open_is_no_fifo() -> None:
    opens = thread(100, LOADS, call="openat(0xffffff9c, 0x1)", path="/nfs/model.safetensors", state="D")
    file = OpenFile(fd=-1, kind="file", target="/nfs/model.safetensors")
    statement = state(twice(process(100, opens, files=(file,))))
    assert statement.findings == ()
    assert "waits in open() of /nfs/model.safetensors" in statement.headline


BATON = stack(
    "sleep_a_bit /usr/lib/python3.11/x.py:1",
    "FileBaton.wait /v/lib/python3.11/site-packages/torch/utils/file_baton.py:40 time.sleep(self.wait_seconds)",
    "build /app/ops.py:4",
)
STALE = Lock(kind="file", path="/c/torch_extensions/op/lock", holder=0, age_s=86400)


def test_a_lock_file_that_was_left_behind() -> None:
    waits = process(100, thread(100, BATON))
    statement = state(bundle(look(waits, at=NOW - 5), look(waits, locks=(STALE,))))
    assert ids(statement) == {"stale_jit_lock": "established"}
    assert any(step.endswith("rm /c/torch_extensions/op/lock") for step in statement.next_steps)


def test_one_that_polls_a_lock_file_may_be_caught_on_a_cpu() -> None:
    baton = BATON[1:]
    asleep, awake = process(100, thread(100, baton)), process(100, thread(100, baton, call="running"))
    statement = state(bundle(look(asleep, at=NOW - 5), look(awake, locks=(STALE,))))
    assert ids(statement) == {"stale_jit_lock": "established"}


def test_a_lock_file_with_a_builder_beside_it_is_not_stale() -> None:
    building = Lock(kind="file", path="/c/op/lock", holder=77, age_s=90, holder_name="ninja")
    waits = process(100, thread(100, BATON))
    statement = state(bundle(look(waits, at=NOW - 5), look(waits, locks=(building,))))
    assert statement.findings == ()
    assert "ninja (pid 77) works in its folder" in doing(statement, 100)


def test_a_lock_file_that_nobody_polls_accuses_nobody() -> None:
    sleeps = process(100, thread(100, LOADS))
    assert state(bundle(look(sleeps, at=NOW - 5), look(sleeps, locks=(STALE,)))).findings == ()


def test_sleeping_in_a_block_manager_polls_no_lock() -> None:
    blocks = process(100, thread(100, stack("BlockPool.wait /app/block_pool.py:4 clock.sleep(1)")))
    assert state(bundle(look(blocks, at=NOW - 5), look(blocks, locks=(STALE,)))).findings == ()


def test_a_file_lock_names_its_holder() -> None:
    waits = process(100, thread(100, LOADS, call="flock(0x3, 0x2)", fds=(3,)))
    lock = Lock(kind="flock", path="/hub/x.lock", holder=77, waiters=(100,), holder_name="python")
    statement = state(bundle(look(waits, at=NOW - 5), look(waits, locks=(lock,))))
    assert ids(statement) == {"file_lock_held": "established"}
    assert "waits for the flock lock on /hub/x.lock, held by python (pid 77)" in doing(statement, 100)


def test_a_reader_that_alone_holds_the_writing_end() -> None:
    statement = state(twice(reader(100, 100), exits=(ended(101, "loader", code=1),)))
    assert ids(statement) == {"dead_pipe_peer": "established"}
    assert "ended before: loader (pid 101) exited with code 1" in statement.findings[0].evidence


def test_a_reader_is_not_alone_for_certain_where_somebody_could_not_be_searched() -> None:
    reads = thread(100, RECV, call="read(0x3, 0x0)", fds=(3,))
    statement = state(twice(process(100, reads, files=(held_by(100, unseen=2),))))
    assert ids(statement) == {"dead_pipe_peer": "supported"}
    assert "2 could not be searched" in " ".join(statement.findings[0].evidence)


def test_an_event_loop_that_can_only_wake_itself_is_no_dead_peer() -> None:
    loop = stack(
        "EpollSelector.select /usr/lib/python3.11/selectors.py:468",
        "BaseEventLoop.run_forever /usr/lib/python3.11/asyncio/base_events.py:608",
        "serve /app/front.py:9",
    )
    idle = thread(100, loop, call="epoll_wait(0x4, 0x0)", fds=(3,))
    assert state(twice(process(100, idle, files=(held_by(100, kind="socket"),)))).findings == ()


def test_a_reader_whose_writer_lives_is_no_dead_peer() -> None:
    assert state(twice(reader(100, 200), process(200, thread(200, LOADS)))).findings == ()


LOCKED = "futex({}, 0x189, 0x0, 0x0, 0x0, 0xffffffff)"


def two_lockers(code: str, other: str = "0xb", function: str = "one") -> Statement:
    frames = [stack(f"{function} /app/pool.py:{n} {code}") for n in (8, 13)]
    threads = [
        thread(101, frames[0], call=LOCKED.format("0xa"), name="allocate"),
        thread(102, frames[1], call=LOCKED.format(other), name="evict"),
    ]
    join = stack("Thread.join /usr/lib/python3.11/threading.py:1119", "main /app/main.py:3")
    return state(twice(process(100, thread(100, join, call=LOCKED.format("0xc")), *threads)))


def test_two_threads_that_each_take_another_lock() -> None:
    statement = two_lockers("with self.cache:")
    assert ids(statement) == {"deadlock": "supported"}
    assert "allocate" in statement.findings[0].evidence[0]
    assert "waits for a lock" in statement.headline


def test_two_threads_that_wait_for_the_same_lock_accuse_a_third() -> None:
    assert "deadlock" not in ids(two_lockers("with self.cache:", other="0xa"))


def test_threads_that_compute_or_wait_for_conditions_take_no_locks() -> None:
    assert two_lockers("y = layer(x)").findings == ()
    assert two_lockers("self.lock.wait()", function="Condition.wait").findings == ()


def test_without_source_text_no_inversion_is_claimed() -> None:
    assert two_lockers("").findings == ()


def test_a_writer_that_nobody_reads_names_who_should() -> None:
    writes = thread(100, LOADS, call="write(0x3, 0x0, 0x9)", fds=(3,))
    statement = state(twice(process(100, writes, files=(held_by(200),)), process(200, thread(200, LOADS))))
    assert ids(statement) == {"queue_full": "supported"}
    assert "server (pid 200) should read it" in statement.findings[0].title


def test_a_bounded_queue_that_nobody_empties() -> None:
    put = stack(
        "Condition.wait /usr/lib/python3.11/threading.py:327",
        "Queue.put /usr/lib/python3.11/queue.py:140",
        "feed /app/feed.py:6",
    )
    statement = state(twice(process(100, thread(100, put, call=LOCKED.format("0xa")))))
    assert ids(statement) == {"queue_full": "supported"}


def test_the_interpreter_lock_held_by_a_thread_that_blocks() -> None:
    holds = thread(100, LOADS, call="read(0x3)", owns_gil=True)
    statement = state(twice(process(100, holds)))
    assert ids(statement) == {"gil_held": "supported"}
    assert "holds the interpreter lock (GIL) and" in doing(statement, 100)
    assert "load (load.py:88)" in statement.findings[0].advice[0]


def gil_holder(*frames: str, **more: object):  # type: ignore[no-untyped-def]
    return thread(100, stack(*frames), call="read(0x3)", owns_gil=True, **more)


def test_the_advice_on_the_interpreter_lock_names_whose_code_it_is_and_comes_last() -> None:
    native = "poll /v/lib/python3.11/site-packages/slowlib/io.py:7"
    put = thread(101, LOADS, call="write(0x4, 0x0)", fds=(4,))
    writes = process(101, put, files=(held_by(100, fd=4),), role=Role.WORKER)
    statement = state(twice(process(100, gil_holder(native)), writes))
    assert list(ids(statement)) == ["queue_full", "gil_held"]
    assert statement.next_steps[-1].endswith("report it to the authors of slowlib.")


def test_where_a_cause_is_established_there_is_no_advice_on_the_interpreter_lock() -> None:
    stopped = process(100, gil_holder("load /app/load.py:88"), state="T")
    statement = state(twice(stopped))
    assert ids(statement) == {"stopped_process": "established", "gil_held": "supported"}
    assert not any("GIL" in step for step in statement.next_steps)


def test_without_a_stack_the_advice_on_the_interpreter_lock_is_to_look_deeper() -> None:
    advice = state(twice(process(100, gil_holder()))).findings[0].advice[0]
    assert advice.endswith("py-spy dump --native --pid 100")


def test_lines_of_evidence_are_short() -> None:
    code = "return self.engine_core.collective_rpc(method, timeout=timeout, args=args, kwargs=kwargs)"
    deep = [f"a_function_with_a_long_name_{n} /app/some/folder/a_module_{n}.py:{n} {code}" for n in range(9)]
    holds = process(100, thread(100, stack(*deep), call="read(0x3)", owns_gil=True), state="T")
    ranks = [process(200 + n, thread(200 + n, stack(BARRIER_LINE, *deep)), role=Role.WORKER, rank=n) for n in (0, 1)]
    lost = process(202, thread(202, stack(*deep)), role=Role.WORKER, rank=2)
    tails = (LogTail(source="x", lines=(), first_error=line("ValueError: " + "x" * 3000)),)
    died = ended(203, "Worker_TP3", role=Role.WORKER, rank=3, code=1)
    findings = state(twice(holds, *ranks, lost, exits=(died,), logs=tails)).findings
    assert {"rank_died", "stopped_process", "gil_held", "rank_elsewhere"} <= {one.id for one in findings}
    assert all(len(said) <= 160 for one in findings for said in one.evidence)
    told = " ".join(said for one in findings for said in one.evidence)
    assert "a_function_with_a_long_name_0 (a_module_0.py:0)" in told
    assert "return self.engine_core" in told


def spinner(code: str) -> Statement:
    def at(cpu_s: float):  # type: ignore[no-untyped-def]
        spins = thread(100, stack(f"step /app/s.py:4 {code}"), call="running", state="R", cpu_s=cpu_s)
        return process(100, spins, state="R", cpu_s=cpu_s)

    return state(bundle(look(at(0.0), at=NOW - 5), look(at(5.0))))


def test_a_spin_in_code_that_waits_is_supported() -> None:
    statement = spinner("while not done():")
    assert ids(statement) == {"cpu_spin": "supported"}
    assert statement.processes[0].cpu_percent == 100.0


def test_one_long_computation_is_not_called_a_spin() -> None:
    assert spinner("y = x @ w").findings == ()


def test_a_port_that_belongs_to_somebody_else() -> None:
    own = process(100, thread(100, LOADS))
    taken = Listener(host="127.0.0.1", port=8000, pid=77)
    statement = state(bundle(look(own, at=NOW - 5), look(own, listeners=(taken,))))
    assert ids(statement) == {"port_in_use": "established"}
    assert statement.findings[0].pids == (77,)


def test_a_port_that_the_server_itself_listens_on_is_not_taken() -> None:
    own = process(100, thread(100, LOADS))
    both = (Listener(host="0.0.0.0", port=8000, pid=100), Listener(host="::", port=8000, pid=0))
    assert state(bundle(look(own, at=NOW - 5), look(own, listeners=both))).findings == ()


def test_a_server_that_moves_is_not_called_stalled() -> None:
    before, after = process(100, thread(100, LOADS)), process(100, thread(100, LOADS), read=1 << 20)
    statement = state(bundle(look(before, at=NOW - 5), look(after)), stalled=False)
    assert statement.headline == "still moving in weights: server (pid 100) read 1.0 MB in 5.0 s"
    assert statement.next_steps == ()


def test_what_is_called_stalled_is_not_called_moving() -> None:
    waits = thread(100, LOADS, call="futex(0x1, 0x80)")
    statement = state(bundle(look(process(100, waits), at=NOW - 5), look(process(100, waits, read=1 << 20))))
    assert statement.headline.startswith("stalled in weights for 24 s")
    assert statement.next_steps != ()


def a_moving_bystander(rank: ProcessLook, *, role: Role) -> Statement:
    """A rank, and somebody beside it who reads."""
    beside = [process(50, thread(50, LOADS), role=role, read=read) for read in (0, 1 << 20)]
    return state(bundle(look(beside[0], rank, at=NOW - 5), look(beside[1], rank)), stalled=False)


def stopped_rank() -> ProcessLook:
    return process(123, thread(123, LOADS, state="T"), state="T", role=Role.WORKER, rank=1)


def blocked_rank() -> ProcessLook:
    writes = thread(123, LOADS, call="write(0x3, 0x0, 0x9)", fds=(3,))
    return process(123, writes, files=(held_by(50),), role=Role.WORKER, rank=1)


@pytest.mark.parametrize("role", [Role.FRONT, Role.HELPER])
@pytest.mark.parametrize("rank", [stopped_rank(), blocked_rank()], ids=["stopped", "blocked"])
def test_a_rank_that_is_found_stuck_wins_over_whoever_only_answers(rank: ProcessLook, role: Role) -> None:
    statement = a_moving_bystander(rank, role=role)
    assert statement.headline.startswith("stalled in weights for 24 s: worker rank 1 (pid 123)")


def test_what_is_only_supported_does_not_stall_a_server_whose_other_ranks_work() -> None:
    assert a_moving_bystander(blocked_rank(), role=Role.WORKER).headline.startswith("still moving")
    assert a_moving_bystander(stopped_rank(), role=Role.WORKER).headline.startswith("stalled")


def test_of_several_that_nobody_waits_for_the_one_that_moves_is_no_suspect() -> None:
    still = process(100, thread(100, LOADS), role=Role.OTHER)
    works = [process(90, thread(90, LOADS), role=Role.WORKER, read=read) for read in (0, 1 << 20)]
    statement = state(bundle(look(works[0], still, at=NOW - 5), look(works[1], still)))
    assert statement.suspects == (100, 90)


def test_a_resource_tracker_waits_for_everybody_and_is_not_told() -> None:
    tracker = reader(90, 123, role=Role.HELPER)
    worker = process(123, thread(123, LOADS, state="T"), state="T", role=Role.WORKER, rank=1)
    headline = state(twice(tracker, worker)).headline
    assert "waits for it" not in headline
    assert "helper" not in headline


def test_a_resource_tracker_that_is_left_over_is_no_server_that_lives() -> None:
    root = ended(80, "front", role=Role.FRONT, code=1)
    statement = state(twice(reader(90, 123, role=Role.HELPER, started=2), exits=(root,)))
    assert statement.headline == "the server ended: in weights, front (pid 80) exited with code 1"


def test_a_restarted_wait_is_told_by_its_kernel_function() -> None:
    polls = thread(100, LOADS, call="restart_syscall()")
    polls = type(polls)(tid=100, name="m", state="S", cpu_s=0, wchan="poll_schedule_timeout", syscall=polls.syscall)
    assert doing(state(bundle(look(process(100, polls)))), 100).startswith("waits for events")


def test_gaps_are_told_with_the_way_to_close_them() -> None:
    statement = state(twice(process(100, thread(100, REFUSED), gaps=(REFUSED,))))
    assert statement.gaps == (REFUSED,)
    assert "To see the Python stacks: give it SYS_PTRACE." in statement.next_steps


def test_where_nothing_may_be_seen_nothing_is_claimed() -> None:
    refused = Gap(what="system call", reason=GapReason.NO_PERMISSION, detail="no")
    statement = state(twice(process(100, thread(100, REFUSED, call=refused))))
    assert statement.findings == ()
    assert "waits, where in the kernel may not be seen" in statement.headline


def test_no_look_at_all_still_says_something() -> None:
    assert state(bundle()).headline == "stalled in weights for 24 s: none of its processes could be seen"


def test_phase_and_last_words_are_the_processes_own() -> None:
    worker = process(123, thread(123, LOADS), role=Role.WORKER, rank=1, label="TP1")
    spans = (
        PhaseSpan(phase=Phase.SPAWN, source="", began=1.0),
        PhaseSpan(phase=Phase.WEIGHTS, source="TP1", rank=1, began=2.0),
        PhaseSpan(phase=Phase.KV_CACHE, source="TP0", rank=0, began=3.0),
    )
    tails = (LogTail(source="TP1", lines=(line("first", source="TP1"), line("loading", source="TP1"))),)
    reported = state(twice(worker, timeline=spans, logs=tails)).processes[0]
    assert (reported.phase, reported.last_words) == (Phase.WEIGHTS, "loading")


def test_the_telling_thread_of_a_pool_is_not_an_idle_one() -> None:
    pool = stack(
        "_worker /usr/lib/python3.11/concurrent/futures/thread.py:81",
        "Thread.run /usr/lib/python3.11/threading.py:982",
    )
    join = stack("Thread.join /usr/lib/python3.11/threading.py:1119", "main /app/main.py:3")
    threads = (
        thread(100, join, call="futex(0x1)"),
        thread(101, pool, call="futex(0x2)"),
        thread(102, stack("fetch /app/hub.py:7"), call="recvfrom(0x3)", fds=(3,)),
        thread(103, (), call="futex(0x4)"),
    )
    statement = state(twice(process(100, *threads)))
    assert "in fetch (hub.py:7)" in doing(statement, 100)


@pytest.mark.parametrize(
    ("call", "clause"),
    [
        ("accept4(0x3)", "waits for a connection"),
        ("connect(0x3)", "connects"),
        ("wait4(0xc8, 0x0)", "waits for child (pid 200) to end"),
        ("wait4(0xffffffff, 0x0)", "waits for a child to end"),
        ("waitid(0x1, 0xc8)", "waits for child (pid 200) to end"),
        ("fsync(0x3)", "waits for storage or a device in the kernel (fsync)"),
        ("ioctl(0x3)", "waits in ioctl"),
        ("msgrcv(0x3)", "waits to read from a descriptor that could not be seen (msgrcv)"),
        ("epoll_wait(0x3)", "waits for events (epoll_wait)"),
        ("running", "computes"),
    ],
)
def test_every_kind_of_wait_has_its_clause(call: str, clause: str) -> None:
    child = process(200, thread(200, LOADS), name="child", ppid=100)
    statement = state(bundle(look(process(100, thread(100, LOADS, call=call)), child)))
    assert doing(statement, 100).startswith(clause)


@pytest.mark.parametrize(
    ("wchan", "clause"),
    [
        ("futex_wait_queue", "waits for a futex"),
        ("hrtimer_nanosleep", "sleeps"),
        ("wait_for_partner", "waits in open()"),
        ("pipe_read", "waits to read"),
        ("do_wait", "waits for a child"),
        ("folio_wait_bit_common", "waits for storage"),
        ("some_new_function", "waits in some_new_function"),
    ],
)
def test_without_the_system_call_the_kernel_function_tells(wchan: str, clause: str) -> None:
    refused = Gap(what="system call", reason=GapReason.NO_PERMISSION, detail="no")
    seen = thread(100, LOADS, call=refused)
    seen = type(seen)(tid=100, name="m", state="S", cpu_s=0, wchan=wchan, syscall=refused, stack=LOADS)
    assert doing(state(bundle(look(process(100, seen)))), 100).startswith(clause)


def test_a_cause_that_no_process_shows_is_told_before_who_stands_where() -> None:
    own = process(100, thread(100, LOADS))
    taken = Listener(host="127.0.0.1", port=8000, pid=77)
    headline = state(bundle(look(own, at=NOW - 5), look(own, listeners=(taken,)))).headline
    assert headline.startswith(
        "stalled in weights for 24 s: port 8000 is already taken by pid 77; server (pid 100) sleeps"
    )


def test_ranks_that_all_wait_where_they_meet_are_told_together() -> None:
    ranks = [process(200 + n, thread(200 + n, BARRIER), role=Role.WORKER, rank=n) for n in range(4)]
    headline = state(twice(*ranks)).headline
    assert "cause unknown; all 4 ranks wait where they meet; worker rank 0 (pid 200) sleeps in barrier" in headline
    assert "wait for it" not in headline


def test_where_the_cause_is_unknown_the_next_steps_say_what_hid_most_causes() -> None:
    statement = state(twice(process(100, thread(100, REFUSED, call="futex(0x1)"))))
    assert statement.cause is None
    assert any("more causes nothing can be said without this: Python stacks" in step for step in statement.next_steps)


def test_a_symptom_is_shown_and_the_cause_stays_unknown() -> None:
    statement = state(twice(process(100, thread(100, LOADS, call="read(0x3)", owns_gil=True))))
    assert ids(statement) == {"gil_held": "supported"}
    assert statement.cause is None
    assert "cause unknown" in statement.headline


def test_what_was_weighed_and_found_wanting_is_told_with_its_word() -> None:
    weighed = dict(state(twice(process(100, thread(100, LOADS)))).weighed)
    assert weighed["stopped_process"] == "not seen"
    assert dict(state(bundle()).weighed)["fifo_without_writer"] == "not examined"


def test_what_is_asked_before_a_start_is_asked_of_the_machine_alone() -> None:
    taken = Listener(host="127.0.0.1", port=8000, pid=77)
    found = {one.id: one.verdict for one in check(bundle(look(listeners=(taken,))))}
    assert found["port_in_use"] == "established"
    assert "stopped_process" not in {one.id for one in check(twice(stopped_rank()))}


def test_ranks_that_wait_in_different_meetings_accuse_none_of_them() -> None:
    reduce = stack("all_reduce " + BARRIER_LINE.split(" ", 1)[1], "load /app/load.py:30")
    ranks = [process(200 + n, thread(200 + n, reduce if n else BARRIER), role=Role.WORKER, rank=n) for n in range(2)]
    assert "all 2 ranks wait where they meet, in 2 different places; worker rank" in state(twice(*ranks)).headline


def test_a_main_thread_that_joins_its_only_other_one_stands_for_nothing() -> None:
    join = stack("Thread.join /usr/lib/python3.11/threading.py:1119", "main /app/main.py:3")
    receives = thread(101, stack("receive /app/kv.py:7"), call="futex(0x2)", name="kv-receiver")
    statement = state(twice(process(100, thread(100, join, call="futex(0x1)"), receives)))
    assert "in receive (kv.py:7)" in doing(statement, 100)


@pytest.mark.parametrize(
    ("file", "clause"),
    [
        (OpenFile(fd=0, kind="device", target="/dev/pts/3"), "read from its standard input (a terminal)"),
        (OpenFile(fd=0, kind="device", target="/dev/null"), "read from its standard input (/dev/null)"),
        (OpenFile(fd=0, kind="pipe", target="pipe:[9]", peers=(100,)), "read from its standard input (a pipe whose"),
        (OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(100,)), "read from a pipe whose other end only it"),
        (None, "read from its standard input in load"),
    ],
)
def test_the_streams_of_a_process_are_called_by_their_part(file: OpenFile | None, clause: str) -> None:
    fd = file.fd if file else 0
    reads = thread(100, LOADS, call=f"read({fd:#x}, 0x0)", fds=(fd,))
    statement = state(twice(process(100, reads, files=(file,) if file else ())))
    assert clause in doing(statement, 100).replace(",", "")


def test_a_pipe_that_nobody_reads_is_called_the_output_that_it_is() -> None:
    full = OpenFile(fd=1, kind="pipe", target="pipe:[9]", access="w", peers=(100,))
    writes = thread(100, LOADS, call="write(0x1, 0x0)", fds=(1,))
    clause = doing(state(twice(process(100, writes, files=(full,)))), 100)
    assert clause.startswith("waits to write to its standard output (a pipe whose other end")


def test_who_waits_for_somebody_that_was_not_looked_at_is_to_look_there_first() -> None:
    reads = OpenFile(fd=3, kind="pipe", target="pipe:[9]", peers=(7783,))
    own = process(100, thread(100, LOADS, call="read(0x3, 0x0)", fds=(3,)), files=(reads,))
    steps = state(twice(own)).next_steps
    assert steps[0].startswith("Look at pid 7783")
    assert "server (pid 100) waits for: firstlight look 7783" in steps[0]


def test_where_there_is_no_gpu_no_step_is_about_one() -> None:
    meets = [process(200 + n, thread(200 + n, BARRIER), role=Role.WORKER, rank=n) for n in range(2)]
    driver = Gap(what="GPU driver", reason=GapReason.NOT_INSTALLED, detail="install nvidia-smi")
    kernel = Gap(what="kernel log", reason=GapReason.NO_PERMISSION, detail="be root")
    seen = [msgspec.structs.replace(look(*meets, at=at), gpus=(), gaps=(driver, kernel)) for at in (NOW - 5, NOW)]
    steps = state(bundle(*seen)).next_steps
    assert 0 < len(steps) <= 5
    assert steps[-1] == "To see the kernel log: be root."
    assert not re.search("GPU|NCCL|CUDA", " ".join(steps))


def test_what_hid_one_cause_or_concerns_nobody_who_waits_is_no_step() -> None:
    helper = Gap(what="Python stacks", reason=GapReason.NO_PERMISSION, detail="give it SYS_PTRACE", pid=101)
    own = process(100, thread(100, LOADS, call="futex(0x1)"))
    steps = state(twice(own, process(101, thread(101, helper), role=Role.HELPER, gaps=(helper,)))).next_steps
    assert not any("SYS_PTRACE" in step or "1 more cause" in step for step in steps)
