"""Who waits for whom, as a graph: every kind of edge, cycles, sinks, and how much of it is shown."""

import pytest
from tests.unit.diagnose.conftest import NOW, bundle, ended, look, process, stack, thread, twice

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.graph import WaitGraph
from firstlight.core.look import Futex, Lock, NativeFrame, OpenFile, Semaphore, Socket
from firstlight.core.vocabulary import Role
from firstlight.diagnose import state
from firstlight.diagnose.graph import NODES_MAX, wait_graph
from firstlight.diagnose.scene import scene_of

LOADS = stack("load /app/load.py:88 time.sleep(1)", "main /app/main.py:3")
BARRIER = stack("barrier /v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:5356", "load /a.py:1")
LOCKED = "futex({:#x}, 0x80, 0x2, 0x0)"
TAKES_GIL = tuple(NativeFrame(function=name) for name in ("futex_wait", "take_gil", "PyEval_RestoreThread"))


def graph_of(of: Bundle) -> WaitGraph:
    return wait_graph(scene_of(of))


def edges(graph: WaitGraph) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.target, edge.kind) for edge in graph.edges}


def wants(tid: int, owner: int, address: int = 0xA0, **more: object):  # type: ignore[no-untyped-def]
    futex = Futex(address=address, owner=owner)
    return thread(tid, LOADS, call=LOCKED.format(address), futex=futex, name=f"t{tid}", **more)


def pipe_to(*pids: int, fd: int = 3, kind: str = "pipe", target: str = "pipe:[9]", **more: object) -> OpenFile:
    return OpenFile(fd=fd, kind=kind, target=target, peers=pids, **more)  # type: ignore[arg-type]


def reads(pid: int, *others: int, **more: object):  # type: ignore[no-untyped-def]
    return process(pid, thread(pid, LOADS, call="read(0x3, 0x0)", fds=(3,)), files=(pipe_to(*others),), **more)  # type: ignore[arg-type]


def inverted(cpu_s: float = 0.0):  # type: ignore[no-untyped-def]
    return process(100, wants(100, 101), wants(101, 100, 0xB0, cpu_s=cpu_s))


def test_two_threads_that_own_what_the_other_wants_are_a_deadlock() -> None:
    statement = state(twice(inverted()))
    assert [(one.id, one.verdict) for one in statement.findings] == [("deadlock", "established")]
    assert statement.findings[0].title == "2 threads of server (pid 100) wait for each other's locks"
    assert edges(statement.graph) == {("p100", "p100t101", "mutex"), ("p100t101", "p100", "mutex")}
    assert sorted(statement.graph.cycles[0]) == ["p100", "p100t101"]
    assert {node.id for node in statement.graph.nodes if node.blamed} == {"p100", "p100t101"}
    assert statement.cause == statement.findings[0]


@pytest.mark.parametrize(
    "seen",
    [bundle(look(inverted())), bundle(look(inverted(), at=NOW - 5), look(inverted(cpu_s=1.0)))],
    ids=["one look", "a thread that computed"],
)
def test_a_circle_that_may_have_been_passing_is_only_supported(seen: Bundle) -> None:
    assert [(one.id, one.verdict) for one in state(seen).findings] == [("deadlock", "supported")]


def test_threads_that_queue_for_a_lock_are_no_deadlock() -> None:
    graph = graph_of(twice(process(100, wants(100, 102), wants(101, 102), thread(102, LOADS))))
    assert graph.cycles == ()
    assert graph.sinks == ("p100t102",)


def test_an_owner_that_is_no_thread_of_the_process_is_not_believed() -> None:
    assert graph_of(twice(process(100, wants(100, 999)), process(999, thread(999, LOADS)))).edges == ()


def test_a_mutex_and_the_interpreter_lock_are_a_deadlock_too() -> None:
    holder = wants(100, 101, owns_gil=True)
    other = thread(101, LOADS, call=LOCKED.format(0xC0), native=TAKES_GIL)
    statement = state(twice(process(100, holder, other)))
    assert statement.findings[0].id == "deadlock"
    assert statement.findings[0].verdict == "established"
    assert ("p100t101", "p100", "gil") in edges(statement.graph)


def test_without_native_frames_nobody_is_said_to_want_the_interpreter_lock() -> None:
    holder = thread(100, LOADS, call="read(0x3)", owns_gil=True)
    assert graph_of(twice(process(100, holder, thread(101, LOADS, call=LOCKED.format(0xC0))))).edges == ()


def test_a_file_lock_points_at_its_holder_who_is_blamed() -> None:
    waits = process(100, thread(100, LOADS, call="flock(0x3, 0x2)", fds=(3,)))
    lock = Lock(kind="flock", path="/hub/x.lock", holder=77, waiters=(100,), holder_name="python")
    statement = state(bundle(look(waits, at=NOW - 5), look(waits, locks=(lock,))))
    assert edges(statement.graph) == {("p100", "p77", "file_lock")}
    assert [(node.label, node.blamed) for node in statement.graph.nodes if node.id == "p77"] == [
        ("python (pid 77)", True)
    ]


def test_a_bare_lock_file_is_a_node_of_its_own_with_or_without_builders() -> None:
    baton = stack(
        "FileBaton.wait /v/lib/python3.11/site-packages/torch/utils/file_baton.py:40 time.sleep(1)", "build /a.py:4"
    )
    waits = process(100, thread(100, baton))
    left = Lock(kind="file", path="/c/op/lock", holder=0)
    built = Lock(kind="file", path="/c/op/lock", holder=0, builders=(55,))
    alone = graph_of(bundle(look(waits, locks=(left,))))
    assert (alone.sinks, edges(alone)) == (("lock:/c/op/lock",), {("p100", "lock:/c/op/lock", "lock_file")})
    assert graph_of(bundle(look(waits, locks=(built,)))).sinks == ("p55",)


def test_waiting_is_followed_over_pipes_to_its_sink() -> None:
    graph = graph_of(twice(reads(50, 100), reads(100, 123), process(123, thread(123, LOADS))))
    assert edges(graph) == {("p50", "p100", "pipe"), ("p100", "p123", "pipe")}
    assert graph.sinks == ("p123",)


def test_two_that_read_from_each_other_wait_in_a_circle() -> None:
    statement = state(twice(reads(50, 100), reads(100, 50)))
    assert statement.graph.cycles
    assert [(one.id, one.verdict) for one in statement.findings] == [("deadlock", "supported")]


def test_a_poll_of_several_is_no_link_in_a_circle() -> None:
    polls = thread(50, LOADS, call="poll(0x1)", fds=(3, 4))
    front = process(50, polls, files=(pipe_to(100), pipe_to(101, fd=4)))
    graph = graph_of(twice(front, reads(100, 50), reads(101, 50)))
    assert ("p50", "p100", "pipe") in edges(graph)
    assert graph.cycles == ()


def test_a_connection_to_another_machine_ends_at_a_peer() -> None:
    far = Socket(family="inet", state="ESTABLISHED", host="10.0.0.1", port=1, peer_host="10.0.0.2", peer_port=29500)
    receives = thread(100, LOADS, call="recvfrom(0x3)", fds=(3,))
    graph = graph_of(twice(process(100, receives, files=(pipe_to(kind="socket", target="socket:[7]", socket=far),))))
    assert graph.sinks == ("peer:10.0.0.2 port 29500",)


def test_an_empty_pipe_and_a_fifo_end_at_themselves() -> None:
    opens = thread(100, LOADS, call="openat(0x1)", path="/m/w")
    fifo = OpenFile(fd=-1, kind="fifo", target="/m/w")
    statement = state(twice(process(100, opens, files=(fifo,))))
    assert statement.graph.sinks == ("file:/m/w",)
    assert {node.id for node in statement.graph.nodes if node.blamed} == {"file:/m/w"}


def test_a_parent_waits_for_the_child_that_it_names_and_a_child_that_is_not_there_is_still_shown() -> None:
    parent = process(100, thread(100, LOADS, call="wait4(0xc8, 0x0)"))
    assert edges(graph_of(twice(parent))) == {("p100", "p200", "child")}


def test_a_joining_thread_waits_for_the_only_other_one() -> None:
    join = stack("Thread.join /usr/lib/python3.11/threading.py:1119", "main /app/main.py:3")
    two = process(100, thread(100, join, call="futex(0x1)"), thread(101, LOADS, call="read(0x5)"))
    assert edges(graph_of(twice(two))) == {("p100t100", "p100", "thread")}
    three = process(100, *two.threads, thread(102, LOADS, call="read(0x6)"))
    assert graph_of(twice(three)).edges == ()


def test_a_semaphore_that_nobody_posts() -> None:
    waits = process(100, thread(100, LOADS, call="futex(0x1)"))
    closed = Semaphore(path="/dev/shm/sem.x", value=0, waiting=(100,), mapped_by=(100, 101))
    seen = look(waits, process(101, thread(101, LOADS)))
    graph = graph_of(bundle(type(seen)(**{**fields(seen), "semaphores": (closed,)})))
    assert edges(graph) == {
        ("p100", "lock:/dev/shm/sem.x", "semaphore"),
        ("lock:/dev/shm/sem.x", "p101", "semaphore"),
    }


def fields(of: object) -> dict[str, object]:
    return {name: getattr(of, name) for name in of.__struct_fields__}  # type: ignore[attr-defined]


def ranks(*stacks: object, **more: object):  # type: ignore[no-untyped-def]
    return [
        process(200 + n, thread(200 + n, one), role=Role.WORKER, rank=n, **more)  # type: ignore[arg-type]
        for n, one in enumerate(stacks)
    ]


def test_ranks_in_a_barrier_wait_for_the_one_that_is_not_there() -> None:
    statement = state(twice(*ranks(BARRIER, BARRIER, LOADS, BARRIER)))
    assert statement.graph.sinks == ("p202",)
    assert {node.id for node in statement.graph.nodes if node.blamed} == {"p202"}
    assert statement.suspects[0] == 202
    assert statement.cause is None
    assert "cause unknown" in statement.headline


def test_ranks_in_a_barrier_wait_for_a_dead_one() -> None:
    died = ended(203, "Worker_TP3", role=Role.WORKER, rank=3, signal=9)
    graph = graph_of(twice(*ranks(BARRIER, BARRIER), exits=(died,)))
    assert graph.sinks == ("p203",)
    assert [node.gone for node in graph.nodes if node.id == "p203"] == [True]


def test_flight_records_and_nccl_say_who_is_behind() -> None:
    seen = fields(look(*ranks(LOADS, LOADS, LOADS)))
    calls = tuple(
        CollectiveCall(rank=rank, group="tp", sequence=sequence, operation="nccl:all_reduce", state="started")
        for rank, sequence in ((0, 7), (1, 6), (2, 7))
    )
    told = Communicator(id="0x1", ranks=3, missing=(2,), counts=((0, 5), (1, 5)))
    kind = type(look())
    assert graph_of(bundle(kind(**{**seen, "collectives": calls}))).sinks == ("p201",)
    assert graph_of(bundle(kind(**{**seen, "communicators": (told,)}))).sinks == ("p202",)


def test_what_sits_in_the_kernel_waits_for_a_device() -> None:
    stuck = thread(100, LOADS, call="ioctl(0x3)", state="D")
    graph = graph_of(twice(process(100, stuck, state="D")))
    assert [edge.kind for edge in graph.edges] == ["device"]
    assert graph.nodes[-1].kind == "device"


def test_a_traced_process_waits_for_its_debugger_and_a_stopped_one_for_nobody() -> None:
    traced = process(100, thread(100, LOADS, state="t"), state="t", tracer=77)
    assert edges(graph_of(twice(traced))) == {("p100", "p77", "stopped")}
    stopped = process(100, thread(100, LOADS, call="read(0x3)", fds=(3,), state="T"), state="T", files=(pipe_to(9),))
    assert graph_of(twice(stopped)).edges == ()


def test_helpers_that_nobody_waits_for_are_not_shown_and_a_graph_is_bounded() -> None:
    helper = process(90, thread(90, LOADS), role=Role.HELPER)
    many = [process(1000 + n, thread(1000 + n, LOADS)) for n in range(2 * NODES_MAX)]
    graph = graph_of(twice(helper, *many, reads(5000, 5001), process(5001, thread(5001, LOADS))))
    shown = {node.id for node in graph.nodes}
    assert len(shown) == NODES_MAX
    assert {"p5000", "p5001"} <= shown
    assert "p90" not in shown


def test_a_name_may_be_anything() -> None:
    pipe = pipe_to(target="\x1b[31m" + "x" * 5000, kind="fifo")
    evil = process(100, thread(100, LOADS, call="read(0x3)", fds=(3,), name="\n{who}"), files=(pipe,))
    graph = graph_of(twice(evil))
    assert all(node.id.isprintable() and node.label.isprintable() and len(node.id) < 300 for node in graph.nodes)
    assert {edge.target for edge in graph.edges} <= {node.id for node in graph.nodes}


def test_threads_behind_the_main_one_are_told_by_the_headline() -> None:
    event = stack("Event.wait /usr/lib/python3.11/threading.py:629", "main /app/main.py:3")
    threads = (thread(100, event, call="futex(0x1)"), wants(101, 102), wants(102, 101, 0xB0))
    headline = state(twice(process(100, *threads))).headline
    assert "2 threads of server (pid 100) wait for each other's locks" in headline
    assert "waits for a mutex that thread 102 (t102) holds" in headline


def test_a_thread_that_takes_its_own_lock_again() -> None:
    statement = state(twice(process(100, wants(100, 100))))
    assert statement.findings[0].title == "a thread of server (pid 100) waits for a lock that it holds itself"
    assert "waits for a mutex that the thread itself holds" in statement.headline


def test_one_that_has_another_thread_at_work_is_no_link_in_a_circle() -> None:
    works = thread(101, stack("compute /app/model.py:7"), call="futex(0x9)")
    child = reads(100, 50)
    busy = process(100, *child.threads, works, files=child.files)
    statement = state(twice(reads(50, 100), busy))
    assert statement.graph.cycles == ()
    assert "deadlock" not in {one.id for one in statement.findings}


def test_a_parent_that_joins_a_child_whose_queue_it_does_not_empty() -> None:
    joins = process(50, thread(50, LOADS, call="wait4(0x64, 0x0)"))
    writes = process(100, thread(100, LOADS, call="write(0x3, 0x0)", fds=(3,)), files=(pipe_to(50),), ppid=50)
    statement = state(twice(joins, writes))
    assert {one.id for one in statement.findings} == {"deadlock", "queue_full"}
    assert sorted(statement.graph.cycles[0]) == ["p100", "p50"]


def test_a_circle_of_pipes_is_told_to_read_and_not_about_locks() -> None:
    output = OpenFile(fd=1, kind="pipe", target="pipe:[9]", access="w", peers=(100,))
    child = process(200, thread(200, LOADS, call="write(0x1)", fds=(1,)), files=(output,), ppid=100)
    parent = process(100, thread(100, LOADS, call="wait4(0xc8, 0x0)"))
    statement = state(twice(parent, child))
    assert {one.id for one in statement.findings} == {"deadlock", "queue_full"}
    assert all(one.advice[0].startswith("Read the pipe") for one in statement.findings if one.advice)
    assert not any("locks" in step for step in statement.next_steps)
    locks = state(twice(process(100, wants(100, 101), wants(101, 100))))
    assert "same order" in locks.findings[0].advice[0]
