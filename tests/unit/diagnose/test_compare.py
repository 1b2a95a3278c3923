"""What two looks say of a process: moving, spinning, still, or unknown."""

import msgspec
import pytest
from tests.unit.diagnose.conftest import NOW, REFUSED, frame, look, process, stack, thread

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ProcessLook
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose import Change, ProcessChange, compare
from firstlight.diagnose.compare import Stacks

SECONDS = 5.0
SLEEPS = stack("load /app/load.py:88", "main /app/main.py:3")


def between(before: ProcessLook, after: ProcessLook) -> ProcessChange:
    return compare(look(before, at=NOW), look(after, at=NOW + SECONDS)).processes[0]


def test_no_cpu_no_io_and_the_same_stacks_is_still() -> None:
    one = process(100, thread(100, SLEEPS))
    change = between(one, one)
    assert (change.change, change.stacks, change.cpu) == (Change.STILL, Stacks.UNCHANGED, 0.0)


@pytest.mark.parametrize(
    "moved",
    [{"read": 250_000}, {"written": 250_000}, {"memory": 3 << 20}, {"faults": 50}],
    ids=lambda moved: next(iter(moved)),
)
def test_io_growth_and_page_fetches_are_moving(moved: dict[str, int]) -> None:
    change = between(process(100, thread(100, SLEEPS)), process(100, thread(100, SLEEPS), **moved))  # type: ignore[arg-type]
    assert change.change is Change.MOVING


@pytest.mark.parametrize(
    "heartbeat", [{"read": 2000}, {"written": 2000}, {"memory": (1 << 20) + 4096}, {"faults": 1}, {"cpu_s": 0.05}]
)
def test_what_a_heartbeat_does_is_still(heartbeat: dict[str, int]) -> None:
    change = between(process(100, thread(100, SLEEPS)), process(100, thread(100, SLEEPS), **heartbeat))  # type: ignore[arg-type]
    assert change.change is Change.STILL


def test_bytes_that_trickle_at_50_kb_a_second_are_moving() -> None:
    change = between(process(100, thread(100, SLEEPS)), process(100, thread(100, SLEEPS), read=int(50_000 * SECONDS)))
    assert change.change is Change.MOVING


def running(line: int, cpu_s: float, inner: tuple[str, ...] = (), state: str = "R") -> ProcessLook:
    frames = stack(*inner, f"spin /app/spin.py:{line}", "main /app/main.py:3")
    return process(100, thread(100, frames, call="running", state=state, cpu_s=cpu_s), cpu_s=cpu_s, state=state)


def test_a_full_core_in_one_function_is_spinning_whatever_the_line() -> None:
    assert between(running(4, 0.0), running(5, SECONDS)).change is Change.SPINNING


def test_a_loop_that_calls_helpers_is_still_one_place() -> None:
    assert between(running(4, 0.0), running(4, SECONDS, ("ready /app/spin.py:1",))).change is Change.SPINNING


def test_a_spin_that_gets_little_of_a_crowded_machine_is_still_spinning() -> None:
    assert between(running(4, 0.0), running(4, SECONDS * 0.1)).change is Change.SPINNING


def test_a_loop_that_naps_is_no_spin_though_a_crowd_keeps_it_ready() -> None:
    def napping(cpu_s: float) -> ProcessLook:
        naps = msgspec.structs.replace(frame("wait /app/meeting.py:74"), code="time.sleep(NAP_S)")
        return process(100, thread(100, (naps,), call="running", state="R", cpu_s=cpu_s), cpu_s=cpu_s, state="R")

    assert between(napping(0.0), napping(SECONDS * 0.08)).change is Change.STILL


def test_a_full_core_in_changing_functions_is_moving() -> None:
    before = running(4, 0.0)
    after = process(
        100,
        thread(100, stack("other /app/o.py:1", "main /app/main.py:9"), state="R", cpu_s=5.0),
        cpu_s=5.0,
        state="R",
    )
    assert between(before, after).change is Change.MOVING


def test_a_computing_caller_that_goes_to_its_next_line_is_moving() -> None:
    before = process(100, thread(100, stack("step /app/a.py:1", "main /app/main.py:3"), state="R"), state="R")
    after = process(
        100, thread(100, stack("step /app/a.py:1", "main /app/main.py:4"), state="R", cpu_s=5.0), cpu_s=5.0, state="R"
    )
    assert between(before, after).change is Change.MOVING


def test_the_same_full_core_with_growing_memory_is_moving() -> None:
    after = running(4, SECONDS)
    grown = process(100, *after.threads, cpu_s=SECONDS, memory=64 << 20, state="R")
    assert between(running(4, 0.0), grown).change is Change.MOVING


def test_a_heartbeat_caught_at_work_is_still() -> None:
    heart = stack("beat /app/heart.py:5", "run /app/heart.py:2")
    caught = stack("report /app/heart.py:20", "beat /app/heart.py:6", "run /app/heart.py:2")
    before = process(100, thread(100, SLEEPS), thread(101, heart, name="heart"))
    after = process(100, thread(100, SLEEPS), thread(101, caught, name="heart", cpu_s=0.01), cpu_s=0.01)
    assert between(before, after).change is Change.STILL


def test_a_main_thread_that_went_elsewhere_is_moving_without_any_cpu() -> None:
    after = process(100, thread(100, stack("warm_up /app/warm.py:1", "main /app/main.py:9")))
    change = between(process(100, thread(100, SLEEPS)), after)
    assert (change.change, change.stacks) == (Change.MOVING, Stacks.CHANGED)


def test_threads_that_come_and_wait_are_still() -> None:
    """A server that hangs makes one for every question."""
    waits = stack("answer /app/serve.py:7")
    after = process(100, thread(100, SLEEPS), thread(101, waits), memory=(1 << 20) + 90_000)
    assert between(process(100, thread(100, SLEEPS)), after).change is Change.STILL


def test_a_hundred_questions_make_a_process_larger_and_no_less_still() -> None:
    answers = [thread(101 + at, stack("answer /app/serve.py:7")) for at in range(100)]
    after = process(100, thread(100, SLEEPS), *answers, memory=(1 << 20) + 100 * 90_000)
    assert between(process(100, thread(100, SLEEPS)), after).change is Change.STILL


def test_threads_that_end_are_still() -> None:
    before = process(100, thread(100, SLEEPS), thread(101, stack("answer /app/serve.py:7")))
    assert between(before, process(100, thread(100, SLEEPS))).change is Change.STILL


def test_a_new_thread_that_computes_is_moving() -> None:
    after = process(100, thread(100, SLEEPS), thread(101, SLEEPS, cpu_s=0.04 * SECONDS), cpu_s=0.04 * SECONDS)
    assert between(process(100, thread(100, SLEEPS)), after).change is Change.MOVING


def file(position: int, access: str = "r", target: str = "/models/w.safetensors") -> OpenFile:
    return OpenFile(fd=5, kind="file", target=target, position=position, access=access)


def reading(one: OpenFile) -> ProcessLook:
    return process(100, thread(100, SLEEPS), files=(one,))


def test_a_file_that_is_read_onwards_is_moving_however_slowly() -> None:
    change = between(reading(file(4096)), reading(file(8192)))
    assert change.change is Change.MOVING
    assert "w.safetensors" in change.why


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (file(4096), file(4096)),
        (file(4096), file(0)),
        (file(4096), file(8192, target="/models/other.safetensors")),
        (file(100, "w", "/var/log/server.log"), file(160, "w", "/var/log/server.log")),
        (file(100, target="/proc/meminfo"), file(160, target="/proc/meminfo")),
    ],
    ids=["not read", "begun anew", "another file", "a log", "not storage"],
)
def test_other_files_are_no_movement(before: OpenFile, after: OpenFile) -> None:
    assert between(reading(before), reading(after)).change is Change.STILL


@pytest.mark.parametrize(("share", "change"), [(0.02, Change.STILL), (0.05, Change.MOVING)])
def test_programs_that_come_and_go_are_moving_if_they_do_more_than_ask(share: float, change: Change) -> None:
    one = process(100, thread(100, SLEEPS))
    sample = msgspec.structs.replace(one.sample, children_cpu_s=share * SECONDS)
    assert between(one, msgspec.structs.replace(one, sample=sample)).change is change


def test_native_threads_come_and_go_without_meaning_anything() -> None:
    after = process(100, thread(100, SLEEPS), thread(101, ()))
    assert between(process(100, thread(100, SLEEPS)), after).change is Change.STILL


def test_without_stacks_a_quiet_process_is_unknown() -> None:
    one = process(100, thread(100, REFUSED))
    change = between(one, one)
    assert (change.change, change.stacks) == (Change.UNKNOWN, Stacks.UNKNOWN)


def test_without_stacks_cpu_is_still_moving() -> None:
    assert (
        between(process(100, thread(100, REFUSED)), process(100, thread(100, REFUSED), cpu_s=5.0)).change
        is Change.MOVING
    )


def test_io_that_was_refused_is_a_gap_and_no_zero() -> None:
    one = process(100, thread(100, SLEEPS), read=REFUSED)
    change = between(one, process(100, thread(100, SLEEPS), read=10))
    assert isinstance(change.read_bytes, Gap)


@pytest.mark.parametrize("state", ["T", "t", "Z"])
def test_stopped_and_dead_is_still(state: str) -> None:
    one = process(100, thread(100, REFUSED, state=state), state=state)
    assert between(one, one).change is Change.STILL


def test_processes_that_come_and_go_are_moving_as_a_whole() -> None:
    one, other = process(100, thread(100, SLEEPS)), process(200, thread(200, SLEEPS))
    difference = compare(look(one, at=NOW), look(other, at=NOW + 5))
    assert [identity.pid for identity in difference.appeared] == [200]
    assert [identity.pid for identity in difference.gone] == [100]
    assert difference.change is Change.MOVING


def test_the_whole_is_still_only_if_everybody_was_seen_to_be() -> None:
    seen, unseen = process(100, thread(100, SLEEPS)), process(200, thread(200, REFUSED))
    assert compare(look(seen), look(seen, at=NOW + 5)).change is Change.STILL
    assert compare(look(seen, unseen), look(seen, unseen, at=NOW + 5)).change is Change.UNKNOWN
    assert compare(look(), look(at=NOW + 5)).change is Change.UNKNOWN


def test_a_wall_clock_that_jumps_back_bends_nothing() -> None:
    one = process(100, thread(100, SLEEPS))
    later = look(process(100, thread(100, SLEEPS), cpu_s=0.05), at=NOW + 5)
    jumped = type(later)(at=NOW - 3600, monotonic=NOW + 5, took_s=0.1, processes=later.processes)
    assert compare(look(one), jumped).processes[0].change is Change.STILL


def test_the_place_of_the_busiest_thread_is_named() -> None:
    before = process(100, thread(100, SLEEPS), thread(101, (frame("spin /app/s.py:4"),), state="R"))
    after = process(
        100, thread(100, SLEEPS), thread(101, (frame("spin /app/s.py:4"),), state="R", cpu_s=5.0), cpu_s=5.0
    )
    assert "spin (s.py:4)" in between(before, after).why


def test_a_process_that_one_look_could_not_see_in_time_has_neither_come_nor_gone() -> None:
    one, other = process(100, thread(100, SLEEPS)), process(200, thread(200, SLEEPS))
    late = Gap(what="process", reason=GapReason.TIMED_OUT, pid=200)
    for first, second in ((look(one, other), look(one, gap=late)), (look(one, gap=late), look(one, other))):
        difference = compare(first, msgspec.structs.replace(second, monotonic=NOW + 5))
        assert [identity.pid for identity in difference.missed] == [200]
        assert difference.change is Change.UNKNOWN
    gone = msgspec.structs.replace(late, reason=GapReason.VANISHED)
    assert compare(look(one, other), look(one, gap=gone, at=NOW + 5)).change is Change.MOVING
