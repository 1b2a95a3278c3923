"""Numbers become names, and arguments that point into memory are followed."""

import struct

import pytest

from firstlight.evidence.syscalls import OUTSIDE, RUNNING, Memory, decode


def no_memory(address: int, length: int) -> bytes:
    raise PermissionError(1, "not allowed")


def holding(data: bytes, at: int = 0x1000) -> Memory:
    """Memory with `data` at one address."""
    return lambda address, length: data[address - at : address - at + length]


@pytest.mark.parametrize(
    ("machine", "number", "text"),
    [
        ("x86_64", 202, "futex(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)"),
        ("aarch64", 98, "futex(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)"),
        ("x86_64", 61, "wait4(0x1, 0x2, 0x3, 0x4)"),
        ("aarch64", 260, "wait4(0x1, 0x2, 0x3, 0x4)"),
        ("x86_64", 24, "sched_yield()"),
        ("x86_64", 9999, "syscall_9999(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)"),
        ("riscv64", 63, "syscall_63(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)"),
    ],
)
def test_a_call_is_named_with_the_arguments_that_it_has(machine: str, number: int, text: str) -> None:
    assert decode((number, (1, 2, 3, 4, 5, 6)), no_memory, machine).text == text


def test_running_and_outside_of_any_call_are_said_so() -> None:
    assert decode(None, no_memory) == RUNNING
    assert decode((-1, (0, 0)), no_memory) == OUTSIDE


@pytest.mark.parametrize(("number", "fds"), [(0, (7,)), (45, (7,)), (73, (7,)), (1, (7,)), (202, ())])
def test_the_descriptor_of_a_call_is_its_first_argument(number: int, fds: tuple[int, ...]) -> None:
    assert decode((number, (7, 0, 0, 0, 0, 0)), no_memory, "x86_64").fds == fds


def test_the_descriptors_of_poll_are_read_from_its_array() -> None:
    array = struct.pack("=ihhihhihh", 5, 1, 0, -1, 1, 0, 9, 1, 0)
    call = decode((7, (0x1000, 3, 0xFFFFFFFF, 0, 0, 0)), holding(array), "x86_64")
    assert call.fds == (5, 9)


def test_the_descriptors_of_select_are_read_from_its_bits() -> None:
    bits = (1 << 3 | 1 << 65).to_bytes(16, "little")
    call = decode((23, (66, 0x1000, 0, 0, 0, 0)), holding(bits), "x86_64")
    assert call.fds == (3, 65)


def test_an_absurd_count_reads_no_more_than_it_may() -> None:
    asked: list[int] = []

    def memory(address: int, length: int) -> bytes:
        asked.append(length)
        return b""

    decode((7, (0x1000, 1 << 60, 0, 0, 0, 0)), memory, "x86_64")
    decode((23, (1 << 60, 0x1000, 0, 0, 0, 0)), memory, "x86_64")
    assert max(asked) <= 4096


def test_the_path_of_an_open_is_read_to_its_end() -> None:
    call = decode((257, (0xFFFFFF9C, 0x1000, 0, 0, 0, 0)), holding(b"/models/w\xff.bin\0garbage"), "x86_64")
    assert call.path == "/models/w�.bin"


def test_the_set_of_an_epoll_is_told() -> None:
    assert decode((232, (4, 0x1000, 64, 0xFFFFFFFF, 0, 0)), no_memory, "x86_64").epoll == 4


def test_without_the_right_to_read_memory_the_call_is_still_named() -> None:
    assert decode((257, (0xFFFFFF9C, 0x1000, 0, 0, 0, 0)), no_memory, "x86_64").text.startswith("openat(")
