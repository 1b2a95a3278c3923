"""Queues in shared memory: whom an engine core and its workers wait for, by stacks and by the segments that are open.

They are those of a real vLLM 0.32: one that the core writes and all workers read, one for the answers of each worker,
and one of the group of ranks.
"""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile
from firstlight.core.vocabulary import GapReason, Role
from firstlight.diagnose import Statement, merge, state
from firstlight.diagnose.scene import scene_of
from firstlight.testing.bundles import (
    ENGINE,
    FIRST_RANK,
    FRONT,
    Made,
    bundle,
    engine,
    file,
    front,
    helper,
    host,
    rank,
)
from firstlight.testing.bundles.processes import process

QUEUE = "vllm/distributed/device_communicators/shm_broadcast.py"
READS = (
    "poll (zmq/sugar/poll.py:106)",
    f"SpinCondition.wait ({QUEUE}:210)",
    f"MessageQueue.acquire_read ({QUEUE}:864)",
    "_GeneratorContextManager.__enter__ (contextlib.py:137)",
    f"MessageQueue.dequeue ({QUEUE}:971)",
)
IDLE = (*READS, "WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)")
READS_ANSWERS = (
    *READS,
    "MultiprocExecutor.collective_rpc.<locals>.get_response (vllm/v1/executor/multiproc_executor.py:440)",
    "EngineCore.step (vllm/v1/engine/core.py:674)",
)
WRITES = (
    f"MessageQueue.acquire_write ({QUEUE}:740)",
    f"MessageQueue.enqueue ({QUEUE}:940)",
    "MultiprocExecutor.collective_rpc (vllm/v1/executor/multiproc_executor.py:427)",
)
AWAY = (
    "replay (torch/cuda/graphs.py:140)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:900)",
    "WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)",
)
AMID = (*READS, "broadcast_object (vllm/distributed/parallel_state.py:865)", *AWAY[1:])
UNSEEN = Gap(what="Python stack", reason=GapReason.NO_PERMISSION, detail="be root")


def segments(*names: str) -> tuple[OpenFile, ...]:
    return tuple(file(f"/dev/shm/psm_{name}", fd=60 + at) for at, name in enumerate(names))


def core(stack: tuple[str, ...] = READS_ANSWERS, *, of: str = "a", ranks: int = 4, **more: object) -> Made:
    opened = segments(f"{of}_work", *(f"{of}_answers_{number}" for number in range(ranks)))
    return engine(stack=stack, **{"files": opened, **more})


def worker(number: int, stack: object = IDLE, *, of: str = "a", **more: object) -> Made:
    opened = segments(f"{of}_work", f"{of}_answers_{number}", f"{of}_group")
    return rank(number, stack=stack, **{"files": opened, **more})


def queued(*processes: Made) -> dict[int, tuple[int, ...]]:
    return scene_of(bundle(front(), helper(), *processes)).queued


def judged(*processes: Made) -> Statement:
    return state(bundle(front(), helper(), *processes))


SECOND = FIRST_RANK + 2


@pytest.mark.parametrize("stack", [READS_ANSWERS, WRITES], ids=["reads answers", "writes work"])
def test_the_engine_core_waits_for_the_rank_that_is_not_back(stack: tuple[str, ...]) -> None:
    statement = judged(core(stack), *(worker(number, AWAY if number == 2 else IDLE) for number in range(4)))
    edges = {(edge.source, edge.target) for edge in statement.graph.edges if edge.kind == "queue"}
    idle = {(f"p{FIRST_RANK + number}", f"p{ENGINE}") for number in (0, 1, 3)}
    assert edges == {(f"p{ENGINE}", f"p{SECOND}"), *idle}
    assert statement.graph.sinks[0] == f"p{SECOND}"
    assert f"worker rank 2 (pid {SECOND})" in statement.headline
    assert f"engine core (pid {ENGINE}), worker rank 0" in statement.headline
    assert statement.suspects[0] == SECOND
    told = next(one.doing for one in statement.processes if one.pid == ENGINE)
    assert told.endswith(f", for worker rank 2 (pid {SECOND})")
    assert [one.present for one in statement.tree.frames if one.function == "replay"] == ["2"]


def test_one_that_is_stopped_at_its_queue_is_awaited() -> None:
    statement = judged(core(), *(worker(number, state="T" if number == 2 else "S") for number in range(4)))
    assert (f"p{ENGINE}", f"p{SECOND}") in {(edge.source, edge.target) for edge in statement.graph.edges}
    assert f"engine core (pid {ENGINE})" in statement.headline
    assert statement.cause is not None
    assert statement.cause.id == "stopped_process"


def test_where_all_are_back_nobody_is_accused() -> None:
    found = queued(core(), *(worker(number) for number in range(4)))
    assert found == {FIRST_RANK + number: (ENGINE,) for number in range(4)}


def test_a_rank_of_which_no_stack_was_seen_is_not_accused() -> None:
    assert ENGINE not in queued(core(), worker(0), worker(1, UNSEEN))


def test_an_engine_core_that_works_waits_for_nobody() -> None:
    found = queued(core(("schedule (vllm/v1/core/sched/scheduler.py:300)",)), worker(0), worker(1, AWAY))
    assert found == {FIRST_RANK: (ENGINE,)}


def test_two_engine_cores_have_their_own_ranks() -> None:
    other = process(
        4900, "VLLM::EngineCore", stack=READS_ANSWERS, role=Role.ENGINE, ppid=FRONT, files=segments("b_work")
    )
    found = queued(core(), other, worker(0), worker(1, AWAY), worker(2, of="b", ppid=4900), worker(3, AWAY, of="b"))
    assert found[ENGINE] == (FIRST_RANK + 1,)
    assert found[4900] == (FIRST_RANK + 3,)
    assert found[FIRST_RANK + 2] == (4900,)


def test_without_segments_whoever_started_the_ranks_is_their_core() -> None:
    found = queued(core(files=()), worker(0, files=()), worker(1, AWAY, files=()))
    assert found == {ENGINE: (FIRST_RANK + 1,), FIRST_RANK: (ENGINE,)}


def test_ranks_in_the_middle_of_their_work_wait_for_the_one_that_does_not_take_part() -> None:
    """A group's own queue, as vLLM and SGLang broadcast objects among ranks."""
    found = queued(core(), worker(0, AMID), worker(1, AWAY), worker(2))
    assert found[FIRST_RANK] == (FIRST_RANK + 1, FIRST_RANK + 2)
    assert found[ENGINE] == (FIRST_RANK + 1,)


def test_semaphores_tie_nobody_together() -> None:
    both = (file("/dev/shm/sem.x"),)
    assert queued(core(files=both, ranks=1), worker(0, AWAY, files=both, ppid=1)) == {}


def test_each_machine_has_its_own_queues() -> None:
    def node(number: int, stack: tuple[str, ...]) -> Bundle:
        return bundle(core(), worker(number, stack), node=number, nodes=2, host=host(name=f"node-{number}"))

    merged = merge([node(0, IDLE), node(1, AWAY)])
    edges = {(edge.source, edge.target) for edge in state(merged).graph.edges if edge.kind == "queue"}
    far = 1 << 22
    assert edges == {(f"p{FIRST_RANK}", f"p{ENGINE}"), (f"p{ENGINE + far}", f"p{FIRST_RANK + 1 + far}")}
