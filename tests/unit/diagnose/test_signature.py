"""What makes two stalls the same."""

from tests.unit.diagnose.conftest import NOW, bundle, ended, look, process, stack, thread, twice

from firstlight.core.bundle import Bundle
from firstlight.core.graph import Signature
from firstlight.core.look import OpenFile
from firstlight.core.vocabulary import Phase, Role
from firstlight.diagnose import state

BARRIER = "barrier /v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:5356"


def signed(of: Bundle) -> Signature:
    signature = state(of).signature
    assert signature is not None
    return signature


def worker(pid: int, rank: int, *frames: str, call: str = "futex(0x1)", **more: object):  # type: ignore[no-untyped-def]
    return process(pid, thread(pid, stack(*frames), call=call), rank=rank, role=Role.WORKER, **more)  # type: ignore[arg-type]


def stalled(
    first: int = 200, count: int = 4, odd: int = 2, folder: str = "/app", line: int = 26, **more: object
) -> Bundle:
    """Ranks in a barrier, and one elsewhere."""
    meet, lost = (
        (BARRIER, f"load {folder}/load.py:{line}"),
        (f"fetch {folder}/hub.py:7", f"load {folder}/load.py:{line}"),
    )
    return twice(*(worker(first + 7 * n, n, *(lost if n == odd else meet)) for n in range(count)), **more)


def test_pids_folders_lines_counts_and_which_rank_it_was_make_no_difference() -> None:
    same = [
        stalled(),
        stalled(first=900),
        stalled(folder="/tmp/x"),
        stalled(line=27),
        stalled(count=8),
        stalled(odd=0),
    ]
    assert {signed(one).digest for one in same} == {signed(stalled()).digest}
    assert signed(stalled()).waits == (
        "worker futex in barrier (distributed_c10d.py) < load (load.py)",
        "worker futex in fetch (hub.py) < load (load.py)",
    )


def test_another_phase_place_wait_or_end_is_another_stall() -> None:
    read = OpenFile(fd=3, kind="pipe", target="pipe:[1]", peers=(9,))
    here = ("f /app/a.py:1",)
    others = [
        stalled(),
        stalled(phase=Phase.WARMUP),
        stalled(count=2, odd=5),
        stalled(exits=(ended(300, "EngineCore", role=Role.ENGINE, signal=9),)),
        stalled(exits=(ended(300, "EngineCore", role=Role.ENGINE, code=1),)),
        twice(worker(1, 0, *here)),
        twice(worker(1, 0, *here, call="read(0x3)")),
        twice(process(1, thread(1, stack(*here), call="read(0x3)", fds=(3,)), files=(read,), rank=0)),
        twice(process(1, thread(1, stack(*here), call="futex(0x1)"), role=Role.ENGINE)),
        twice(process(1, thread(1, stack(*here), state="T"), state="T", rank=0)),
        bundle(),
    ]
    assert len({signed(one).digest for one in others}) == len(others)


def test_whoever_polls_a_lock_file_is_the_same_asleep_and_awake() -> None:
    baton = "FileBaton.wait /v/torch/utils/file_baton.py:40 time.sleep(self.wait_seconds)"
    asleep = twice(worker(1, 0, baton, call="clock_nanosleep(0x0)"))
    awake = bundle(look(worker(1, 0, baton, call="running"), at=NOW - 5), look(worker(1, 0, baton, call="running")))
    assert signed(asleep) == signed(awake)


def test_helpers_and_compilers_come_and_go() -> None:
    helper = process(500, thread(500, stack("x /app/x.py:1")), role=Role.HELPER)
    compiler = process(501, thread(501), role=Role.COMPILER)
    alone = twice(worker(1, 0, "f /app/a.py:1"))
    assert signed(twice(worker(1, 0, "f /app/a.py:1"), helper, compiler)) == signed(alone)


def test_both_threads_of_an_inversion_are_told_whichever_comes_first() -> None:
    def taking(tid: int, function: str):  # type: ignore[no-untyped-def]
        return thread(tid, stack(f"{function} /app/pool.py:8 with self.cache:"), call=f"futex({tid:#x}, 0x80)")

    one = twice(process(100, taking(101, "allocate"), taking(102, "evict")))
    other = twice(process(300, taking(301, "evict"), taking(302, "allocate")))
    assert signed(one) == signed(other)
    assert len(signed(one).waits) == 2
