"""When a call ends by itself is read from its arguments, whichever way it names the time."""

import struct

import pytest

from firstlight.evidence.futexes import Memory
from firstlight.evidence.syscalls import decode
from firstlight.evidence.timeouts import Timeout

AT = 0x1000
NEVER = 0xFFFFFFFF
FAR_AWAY = (1 << 62) - 1


def holding(*parts: int) -> Memory:
    """Memory with whole seconds and their parts at `AT`."""
    data = struct.pack("=qq", *parts)
    return lambda address, length: data[address - AT : address - AT + length]


FORTY_SECONDS = holding(40, 0)


def timeout(number: int, *arguments: int, memory: Memory = FORTY_SECONDS, machine: str = "x86_64") -> Timeout | None:
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    return decode((number, padded), memory, machine).timeout


@pytest.mark.parametrize(
    ("machine", "number", "arguments"),
    [
        ("x86_64", 35, (AT, 0)),
        ("aarch64", 101, (AT, 0)),
        ("x86_64", 230, (0, 0, AT, 0)),
        ("aarch64", 115, (1, 0, AT, 0)),
        ("x86_64", 23, (0, 0, 0, 0, AT)),
        ("x86_64", 270, (0, 0, 0, 0, AT, 0)),
        ("aarch64", 72, (0, 0, 0, 0, AT, 0)),
        ("x86_64", 271, (0, 0, AT, 0)),
        ("x86_64", 441, (4, 0, 1, AT, 0)),
        ("x86_64", 7, (0, 0, 40_000)),
        ("x86_64", 232, (4, 0, 1, 40_000)),
        ("aarch64", 22, (4, 0, 1, 40_000)),
    ],
)
def test_a_length_is_read_wherever_the_call_has_it(machine: str, number: int, arguments: tuple[int, ...]) -> None:
    assert timeout(number, *arguments, machine=machine) == Timeout(40.0)


def test_a_moment_by_the_clock_that_nobody_sets_is_told_as_such() -> None:
    assert timeout(230, 1, 1, AT, 0, memory=holding(5000, 250_000_000)) == Timeout(5000.25, absolute=True)


@pytest.mark.parametrize("clock", [0, 7, 11])
def test_a_moment_by_another_clock_tells_nothing(clock: int) -> None:
    assert timeout(230, clock, 1, AT, 0) is None


def test_parts_of_a_second_are_counted_as_the_call_counts_them() -> None:
    assert timeout(35, AT, memory=holding(0, 500_000_000)) == Timeout(0.5)
    assert timeout(23, 0, 0, 0, 0, AT, memory=holding(0, 500_000)) == Timeout(0.5)


@pytest.mark.parametrize(
    ("number", "arguments"),
    [(7, (0, 0, NEVER)), (232, (4, 0, 1, NEVER)), (23, ()), (270, ()), (271, ()), (441, (4,))],
)
def test_a_wait_without_end_has_no_time_out(number: int, arguments: tuple[int, ...]) -> None:
    assert timeout(number, *arguments) is None


@pytest.mark.parametrize("parts", [(-1, 0), (1, 1_000_000_000), (1, -1)])
def test_what_is_no_time_is_not_believed(parts: tuple[int, int]) -> None:
    assert timeout(35, AT, memory=holding(*parts)) is None


def test_a_sleep_for_ever_ends_in_ages() -> None:
    assert timeout(35, AT, memory=holding(FAR_AWAY, 0)) == Timeout(float(FAR_AWAY))


@pytest.mark.parametrize("number", [202, 45, 61, 128])
def test_who_waits_for_somebody_with_a_time_out_does_not_sleep(number: int) -> None:
    assert timeout(number, AT, 0x89, 0, AT, 0, 0) is None


def test_where_memory_may_not_be_read_nothing_is_known() -> None:
    def refused(address: int, length: int) -> bytes:
        raise PermissionError(1, "not allowed")

    assert timeout(35, AT, memory=refused) is None
    assert timeout(35, AT, memory=lambda address, length: b"short") is None


def test_select_waits_for_exceptions_too() -> None:
    bits = (1 << 5).to_bytes(8, "little")
    assert decode((23, (6, 0, 0, AT, 0, 0)), lambda address, length: bits[:length], "x86_64").fds == (5,)
