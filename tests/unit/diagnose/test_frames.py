"""Which frame says where a program is."""

import pytest
from tests.unit.diagnose.conftest import frame, stack

from firstlight.core.look import Frame
from firstlight.diagnose import frames

RECV = (
    "Connection._recv /usr/lib/python3.11/multiprocessing/connection.py:395",
    "Connection._recv_bytes /usr/lib/python3.11/multiprocessing/connection.py:430",
    "_ConnectionBase.recv /usr/lib/python3.11/multiprocessing/connection.py:250",
)
BOOTSTRAP = (
    "Thread.run /usr/lib/python3.12/threading.py:982",
    "Thread._bootstrap_inner /usr/lib/python3.12/threading.py:1045",
    "Thread._bootstrap /usr/lib/python3.12/threading.py:1002",
)


@pytest.mark.parametrize(
    ("file", "plumbing"),
    [
        ("/usr/lib/python3.11/threading.py", True),
        ("/opt/conda/lib/python3.13t/queue.py", True),
        ("<frozen runpy>", True),
        ("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", True),
        ("/v/lib/python3.11/site-packages/zmq/sugar/socket.py", True),
        ("/v/lib/python3.11/site-packages/vllm/v1/engine/core.py", False),
        ("/usr/lib/python3/dist-packages/sglang/launch_server.py", False),
        ("/home/me/serve.py", False),
        ("<string>", False),
        ("/home/me/torch/serve.py", False),
    ],
)
def test_plumbing_is_what_a_program_waits_with(file: str, plumbing: bool) -> None:
    assert frames.is_plumbing(Frame(function="f", file=file, line=1)) is plumbing


def test_the_operation_is_what_the_program_called() -> None:
    here = frames.place(stack(*RECV, "wait_ready /app/boot.py:12", "main /app/boot.py:99"))
    assert here is not None
    assert here.leaf.function == "Connection._recv"
    assert here.operation is not None
    assert here.operation.function == "_ConnectionBase.recv"
    assert here.caller is not None
    assert here.caller.function == "wait_ready"
    assert [one.function for one in here.outer] == ["main"]


def test_wrappers_are_no_operation() -> None:
    site = "/v/lib/python3.11/site-packages/torch/distributed"
    here = frames.place(
        stack(f"barrier {site}/distributed_c10d.py:4", f"wrapper {site}/c10d_logger.py:81", "go /a.py:1")
    )
    assert here is not None
    assert here.operation is not None
    assert here.operation.function == "barrier"


def test_a_thread_of_plumbing_alone_has_no_caller() -> None:
    here = frames.place(stack("worker /usr/lib/python3.12/concurrent/futures/thread.py:81", *BOOTSTRAP))
    assert here is not None
    assert here.caller is None
    assert here.operation is not None
    assert here.operation.function == "worker"


def test_no_stack_is_no_place() -> None:
    assert frames.place(()) is None


def test_each_frame_is_shown_once() -> None:
    one = frame("spin /app/a.py:3")
    here = frames.place((one,))
    assert here is not None
    assert here.frames == (one,)


def test_ranks_gather_by_their_callers_lines_not_by_a_loops() -> None:
    def rank(loop: int, caller: int) -> tuple[Frame, ...]:
        return stack(RECV[0], f"wait /app/ready.py:{loop}", f"load /app/load.py:{caller}")

    assert frames.gathering(rank(1, 50)) == frames.gathering(rank(2, 50))
    assert frames.gathering(rank(1, 50)) != frames.gathering(rank(1, 51))


def test_ranks_gather_whatever_the_library_does_below_the_same_call() -> None:
    site = "/v/lib/python3.11/site-packages/torch/distributed"
    call = (f"init_process_group {site}/distributed_c10d.py:1892", "join /app/join.py:7")
    retrying = stack(f"_create_c10d_store {site}/rendezvous.py:199", *call)
    assert frames.gathering(retrying) == frames.gathering(stack(*call))


def test_where_every_thread_begins_is_not_told() -> None:
    shown = frames.telling(stack("f /a.py:1", *BOOTSTRAP))
    assert [one.function for one in shown] == ["f"]
