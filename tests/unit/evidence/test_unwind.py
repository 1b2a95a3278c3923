"""Native stacks without a pause: real programs that wait, and files that are not what they seem."""

import ctypes
import os
import platform
import random
import re
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.look import NativeFrame
from firstlight.core.process import Process
from firstlight.evidence.elf import Elf
from firstlight.evidence.stacks.unwind import Binaries, waiting_stacks
from firstlight.evidence.stacks.unwind.binaries import NONSENSE
from firstlight.evidence.stacks.unwind.cfi import Row, Unsupported, row_at
from firstlight.evidence.stacks.unwind.image import Image
from firstlight.evidence.stacks.unwind.symbols import names, packed_names, readable

CLOCK = SystemClock()
X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 is unwound without a pause")

WEDGED = """
    import ctypes, threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    library = ctypes.PyDLL(None)
    never_posted = ctypes.create_string_buffer(32)
    library.sem_init(never_posted, 0, 0)
    print("ready", flush=True)
    library.sem_wait(never_posted)
"""


def seen(pid: int) -> dict[int, tuple[NativeFrame, ...]]:
    return waiting_stacks(pid, Binaries(), CLOCK, Deadline(CLOCK, 20, "native stacks"))


def functions(stack: tuple[NativeFrame, ...]) -> list[str]:
    return [frame.function for frame in stack]


def switches(process: Process) -> int:
    return int(procfs.status(process.id.pid)["voluntary_ctxt_switches"])


@X86_64
def test_every_thread_that_waits_is_followed_to_its_beginning_and_none_is_stopped(
    programs: Programs, eyes: Eyes
) -> None:
    process = programs.python(WEDGED)
    eyes.until_in("futex", process)
    before = switches(process)
    stacks = seen(process.id.pid)
    assert switches(process) == before, "it was woken"
    assert set(stacks) == set(procfs.tids(process.id.pid))
    main = stacks[process.id.pid]
    assert re.match(r"libc[.-]", main[0].library)
    assert any(frame.library.startswith("_ctypes") for frame in main)
    assert {"Py_BytesMain", "Py_RunMain"} & set(functions(main))
    assert main[-1].library, "the stack was cut short"
    assert main[-1].function in {"_start", ""}


@X86_64
def test_a_process_that_is_no_python_is_read_as_well(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    ends = CLOCK.monotonic() + 20
    while not any("nanosleep" in name for stack in seen(process.id.pid).values() for name in functions(stack)):
        assert CLOCK.monotonic() < ends, seen(process.id.pid)
        CLOCK.sleep(0.05)
    assert seen(process.id.pid)[process.id.pid][-1].library == "sleep"


@X86_64
def test_a_thread_that_runs_is_left_out(programs: Programs) -> None:
    process = programs.python("""
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("ready", flush=True)
        while True: pass
    """)
    waiting = max(procfs.tids(process.id.pid))
    ends = CLOCK.monotonic() + 20
    while set(seen(process.id.pid)) != {waiting}:
        assert CLOCK.monotonic() < ends
        CLOCK.sleep(0.05)


@X86_64
def test_a_stopped_process_is_read(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    os.kill(process.id.pid, 19)
    os.waitid(os.P_PID, process.id.pid, os.WSTOPPED | os.WNOWAIT)
    assert seen(process.id.pid)[process.id.pid]


def test_a_process_that_is_gone_is_an_error(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    programs.kill(process)
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        seen(process.id.pid)


def test_no_time_is_no_stack(programs: Programs) -> None:
    process = programs.command(["sleep", "600"], ready=False)
    assert waiting_stacks(process.id.pid, Binaries(), CLOCK, Deadline(CLOCK, 0, "native stacks")) == {}


def elf_of(data: bytes) -> Elf:
    return Elf(lambda offset, length: data[offset : offset + length])


LIBC = next(one for one in procfs.code_mappings(os.getpid()) if re.match(r"libc[.-]", Path(one.path).name))


@X86_64
def test_functions_are_found_by_any_address_in_them() -> None:
    elf = elf_of(Path(LIBC.path).read_bytes())
    address = ctypes.cast(ctypes.CDLL(None).sem_wait, ctypes.c_void_p).value or 0
    place = Image(elf).address_of_code(LIBC.offset) + address - LIBC.begin
    assert names(elf, [place + 1, 1]) == {place + 1: "sem_wait"}
    assert row_at(Image(elf), place) == Row(cfa=7, offset=8, saved={16: -8}, undefined=frozenset(), return_address=16)


def row_at_each(elf: Elf, addresses: list[int]) -> None:
    for address in addresses:
        row_at(Image(elf), address)


@pytest.mark.parametrize("seed", range(5))
def test_files_that_are_damaged_tell_nothing_and_do_no_harm(seed: int) -> None:
    chance = random.Random(seed)
    whole = Path(LIBC.path).read_bytes()
    for _ in range(10):
        data = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(40):
            at = chance.randrange(min(len(data), 4096 if chance.random() < 0.5 else len(data)) or 1)
            data[at : at + 1] = bytes([chance.randrange(256)])
        for question in (names, packed_names, row_at_each):
            with suppress(*NONSENSE):
                question(elf_of(bytes(data)), [0x90000])


class Table:
    """A file with nothing in it but call frame information: one CIE and one FDE for addresses 0x5000 to 0x5100."""

    eh_frame_header = 0x1000

    def __init__(self, program: bytes, augmentation: bytes = b"zR\0", encoding: int = 0x1B) -> None:
        cie = struct.pack("<IB", 0, 1) + augmentation + b"\x01\x78\x10\x01" + bytes([encoding])
        cie += b"\x0c\x07\x08\x90\x01"  # the frame is at register 7 plus 8, the return address 8 below it
        fde = struct.pack("<IiI", len(cie) + 8, 0x5000 - (0x2000 + 4 + len(cie) + 8), 0x100) + b"\0" + program
        frames = struct.pack("<I", len(cie)) + cie + struct.pack("<I", len(fde)) + fde
        header = b"\x01\x1b\x03\x3b" + struct.pack("<iIii", 0, 1, 0x5000 - 0x1000, 0x2000 + 4 + len(cie) - 0x1000)
        self._memory = header.ljust(0x1000, b"\0") + frames

    def at(self, address: int, length: int) -> bytes:
        return self._memory[address - 0x1000 : address - 0x1000 + length]


def test_a_program_is_carried_out_up_to_the_address() -> None:
    pushes = Table(b"\x41\x0e\x10\x86\x02\x43\x0d\x06\x4f\x0c\x07\x08\xc6")
    assert row_at(pushes, 0x5000)[:3] == (7, 8, {16: -8})
    assert row_at(pushes, 0x5001)[:3] == (7, 16, {16: -8, 6: -16})
    assert row_at(pushes, 0x5004)[:3] == (6, 16, {16: -8, 6: -16})
    assert row_at(pushes, 0x50FF)[:3] == (7, 8, {16: -8})


def test_the_outermost_function_has_no_caller() -> None:
    assert row_at(Table(b"\x07\x10"), 0x5000).undefined == {16}


def test_a_state_is_kept_and_comes_back() -> None:
    early_return = Table(b"\x0a\x41\x0e\x10\x41\x0b")
    assert [row_at(early_return, 0x5000 + n).offset for n in range(3)] == [8, 16, 8]


@pytest.mark.parametrize(
    ("table", "address"),
    [
        (Table(b""), 0x4FFF),
        (Table(b""), 0x5100),
        (Table(b"\x0b"), 0x5000),
        (Table(b"\x0a" * 1000), 0x5000),
        (Table(b"\x3f"), 0x5000),
        (Table(b"\x0e" + b"\xff" * 40), 0x5000),
        (Table(b"", encoding=0x55), 0x5000),
        (Table(b"", augmentation=b"eh\0"), 0x5000),
    ],
)
def test_what_is_not_told_or_not_understood_is_said(table: Table, address: int) -> None:
    with pytest.raises((Unsupported, struct.error)):
        row_at(table, address)


@pytest.mark.parametrize("seed", range(5))
def test_random_programs_end(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        with suppress(*NONSENSE):
            row_at(Table(chance.randbytes(chance.randrange(400))), 0x5080)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("ncclCommInitRank", "ncclCommInitRank"),
        ("_ZN4c10d16ProcessGroupNCCL8WorkNCCL4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE", None),
        ("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "std::condition_variable::wait"),
        ("_ZN2at6TensorD1Ev", "at::Tensor::~Tensor"),
        ("_ZNK5torch3jit3runERKi", "torch::jit::run"),
        ("_Z3foov", "foo"),
        ("_Z", "_Z"),
        ("_ZN9999", "_ZN9999"),
    ],
)
def test_names_of_cpp_are_readable(symbol: str, name: str | None) -> None:
    assert readable(symbol) == (name or "c10d::ProcessGroupNCCL::WorkNCCL::wait")
