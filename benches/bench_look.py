"""How long a look at nine Python processes takes, and how long it stops any of them. The aim: 3 s, and 30 ms.

Three of the nine compute and six wait; they have 10 or 60 threads, and measure by themselves how long they are
stopped (ticking.py). "look" is what `firstlight look` does by default, native stacks of waiting threads included.
"nothing" shows the error of measurement. The peers look at one process with 60 threads that computes, and at one that
waits, in the same run.
"""

import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.process import Process
from firstlight.evidence import look
from firstlight.evidence.stacks.native import native_stacks
from pairs import machine
from processes import machine_time

TICKING = Path(__file__).with_name("ticking.py")
KINDS = [("compute", 10), ("compute", 60), ("compute", 10), *[("wait", 10), ("wait", 60)] * 3]
LOOKS = 15
PEER_LOOKS = 10
REST_S = 0.3
CLOCK = SystemClock()


class Target:
    """One ticking program."""

    def __init__(self, mode: str, threads: int, folder: Path) -> None:
        self._file = folder / f"{mode}{threads}-{len(list(folder.iterdir()))}"
        self._file.write_bytes(bytes(8))
        argv = [sys.executable, TICKING, str(threads), mode, self._file]
        self._child = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        self._child.stdout.readline()
        stat = procfs.stat(self._child.pid)
        self.process = Process(id=stat.id, ppid=stat.ppid, name=stat.comm, cmdline=())
        self.pid = stat.pid

    def begin(self) -> None:
        """Forget what was before. The file is not made anew, since the target has it mapped."""
        with self._file.open("r+b") as file:
            file.write(bytes(8))

    def stopped_ms(self) -> float:
        return 1000 * float(struct.unpack("d", self._file.read_bytes())[0])

    def end(self) -> None:
        self._child.kill()
        self._child.wait()


def measure(targets: list[Target], action: Callable[[], object], times: int) -> tuple[list[float], list[float]]:
    """Wall times and the longest stops of any target, in milliseconds, one of each a time."""
    walls, stops = [], []
    for _ in range(times):
        time.sleep(REST_S)
        for target in targets:
            target.begin()
        began = time.perf_counter()
        action()
        walls.append(1000 * (time.perf_counter() - began))
        time.sleep(0.02)
        stops.append(max(target.stopped_ms() for target in targets))
    return walls, stops


def show(name: str, walls: list[float], stops: list[float]) -> None:
    print(f"  {name:44} {spread(walls):>26} {spread(stops):>24}", flush=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def natives(targets: list[Target]) -> None:
    native_stacks([target.process.id for target in targets], CLOCK, Deadline(CLOCK, 5, "native stacks"))


def whole_look(targets: list[Target]) -> None:
    look([target.process for target in targets], clock=CLOCK, deep=True)


def peers(pid: int) -> dict[str, list[str]]:
    beside = Path(sys.executable).parent
    known = {
        "py-spy dump": [str(beside / "py-spy"), "dump", "--json", "--pid", str(pid)],
        "py-spy dump --native": [str(beside / "py-spy"), "dump", "--json", "--native", "--pid", str(pid)],
        "eu-stack": ["eu-stack", "-m", "-p", str(pid)],
        "pystack remote --native-all": [str(beside / "pystack"), "remote", "--native-all", str(pid)],
        "gdb -batch": ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all bt"],
    }
    return {name: argv for name, argv in known.items() if shutil.which(argv[0])}


def quietly(argv: list[str]) -> None:
    subprocess.run(argv, capture_output=True, check=False, timeout=120)


def compare_with_peers(target: Target, kind: str) -> None:
    show(f"look at one, {kind}", *measure([target], lambda: whole_look([target]), LOOKS))
    for name, argv in peers(target.pid).items():
        show(f"{name}, {kind}", *measure([target], partial(quietly, argv), PEER_LOOKS))


print(__doc__)
print(machine())
before, began = machine_time(), time.monotonic()
with tempfile.TemporaryDirectory() as folder:
    targets = [Target(mode, threads, Path(folder)) for mode, threads in KINDS]
    try:
        print(f"  {'':44} {'wall ms':>26} {'longest stop ms':>24}")
        show("nothing", *measure(targets, lambda: time.sleep(0.5), LOOKS))
        show("look at nine", *measure(targets, lambda: whole_look(targets), LOOKS))
        show("of which native stacks", *measure(targets, lambda: natives(targets), LOOKS))
        for number in (1, 4):
            compare_with_peers(targets[number], "{1} threads, {0}".format(*KINDS[number]))
    finally:
        for target in targets:
            target.end()
stolen = (machine_time().stolen - before.stolen) / (time.monotonic() - began)
print(f"  stolen by the hypervisor: {stolen:.1%} of a core\n")
