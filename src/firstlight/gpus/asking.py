"""One full look at all GPUs, by a helper process that can be killed, within a deadline whatever the driver does.

NVML may block for ever inside a sick driver, in a state that no signal ends (D). So the helper is killed when time is
up and never waited for longer; the GPUs that it had told by then are kept, and the call that did not come back is
named. Error events (Xid) are not among what NVML answers: it only hands them to those who listened before they came.
They are taken from the kernel log, see `firstlight.gpus.events`.

The machine that this was written on has no GPU: it is tested against recorded drivers (`firstlight.testing.drivers`)
and not yet measured on a real one.
"""

import selectors
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap, Seen
from firstlight.core.gpu import Gpu
from firstlight.core.vocabulary import GapReason
from firstlight.gpus import helper
from firstlight.gpus.answers import Line, Refused, decoder, gpu_of, unseen
from firstlight.gpus.present import AMD, NVIDIA, vendor

ENDING_S = 0.2
"""Kept of the deadline for ending the helper."""
OUTPUT_BYTES_MAX = 8 << 20
GPUS_MAX = 256

_PROGRAMS = {NVIDIA: "nvidia_helper", AMD: "amd_helper"}
_TO_INSTALL = {
    "nvidia-ml-py": "pip install nvidia-ml-py",
    "amdsmi": "install the one of your ROCm, pip install /opt/rocm/share/amd_smi",
}


class Told(NamedTuple):
    """All that the driver told. `driver` is its version, `cuda` the newest CUDA that it supports ("12.8")."""

    gpus: tuple[Gpu, ...] | Gap
    driver: Seen[str]
    cuda: Seen[str]


def look(deadline: Deadline, clock: Clock) -> tuple[Gpu, ...] | Gap:
    """Every GPU of the machine, or why none was seen; empty where there is none."""
    return ask(deadline, clock).gpus


def ask(deadline: Deadline, clock: Clock, whose: str | None = None) -> Told:
    """As `look`, with the driver's version. `whose` GPUs are asked for; by default the device files tell."""
    whose = vendor() if whose is None else whose
    if not whose:
        none = _gap(GapReason.NOT_SUPPORTED, "no GPU driver is loaded here", "GPU driver")
        return Told((), none, none)
    listening = Deadline(clock, max(0.0, deadline.left - ENDING_S), "the GPU driver's answer")
    try:
        program = helper.start(_PROGRAMS[whose])
    except OSError as error:
        broken = _gap(GapReason.FAILED, f"the GPU helper could not be started: {error}")
        return Told(broken, broken, broken)
    hearing = _Hearing(whose)
    try:
        hearing.listen(program, listening)
    finally:
        helper.end(program, deadline.left)
    return hearing.told()


class _Hearing:
    """What was said so far, and how it ended."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._count = -1
        self._gpus: dict[int, Gpu] = {}
        self._asking = "its start"
        self._asked = -1
        self._ended: Gap | None = None
        self._driver: str | Refused = Refused("not told by this driver", 3)
        self._cuda: int | Refused = Refused("not told by this driver", 3)

    def listen(self, program: "subprocess.Popen[bytes]", deadline: Deadline) -> None:
        """Until the helper has said all, or falls silent, or time is up."""
        try:
            for line in _lines(program, deadline):
                if self._understood(decoder.decode(line)):
                    return
            self._ended = _gap(GapReason.FAILED, f"the GPU helper ended while it waited for {self._asking}")
        except TimeoutError:
            detail = f"the driver has not come back from {self._asking} within {deadline.seconds:.1f} s"
            self._ended = _gap(GapReason.TIMED_OUT, detail)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as error:
            self._ended = _gap(GapReason.FAILED, f"the GPU helper said something that is no answer: {error}"[:300])

    def _understood(self, line: Line) -> bool:
        """Keep what a line tells; true if it is the last one."""
        if line.missing:
            way = _TO_INSTALL.get(line.missing, "")
            self._ended = _gap(GapReason.NOT_INSTALLED, f"{line.missing[:50]} is not there or does not load: {way}")
        elif line.failed:
            self._ended = _gap(GapReason.FAILED, f"the driver says: {line.failed[:200]}")
        elif line.asking:
            self._asking = line.asking[:100] + (f" of GPU {line.gpu}" if line.gpu >= 0 else "")
            self._asked = line.gpu
        elif line.card is not None and len(self._gpus) < GPUS_MAX:
            self._gpus[line.card.index] = gpu_of(line.card, self._whose)
        elif line.driver:
            self._driver, self._cuda = line.driver, line.cuda
        elif line.count >= 0:
            self._count = min(line.count, GPUS_MAX)
        return line.end or self._ended is not None

    def told(self) -> Told:
        return Told(self._all(), self._version(), self._cuda_version())

    def _all(self) -> tuple[Gpu, ...] | Gap:
        """Where at least one GPU was told, those that were not stand beside it with gaps; the fault is only the one's
        whose call did not come back."""
        if self._ended is None:
            return tuple(self._gpus[index] for index in sorted(self._gpus))
        if not self._gpus:
            return self._ended
        rest = {index: self._unseen(index, self._ended) for index in range(self._count)}
        return tuple(gpu for _, gpu in sorted({**rest, **self._gpus}.items()))

    def _unseen(self, index: int, why: Gap) -> Gpu:
        return unseen(index, self._whose, why, why.detail if index == self._asked else "")

    def _version(self) -> Seen[str]:
        return self._driver[:100] if isinstance(self._driver, str) else self._not_told(self._driver, "driver version")

    def _cuda_version(self) -> Seen[str]:
        if isinstance(self._cuda, Refused):
            return self._not_told(self._cuda, "CUDA of the driver")
        return f"{self._cuda // 1000}.{self._cuda % 1000 // 10}"

    def _not_told(self, refused: Refused, what: str) -> Gap:
        return self._ended or _gap(GapReason.NOT_SUPPORTED, refused.refused[:200], what)


def _lines(program: "subprocess.Popen[bytes]", deadline: Deadline) -> Iterator[bytes]:
    """Whole lines as they come, until the helper closes its end.

    Raises:
        TimeoutError: the deadline passed, or it has said more than anybody can want.
    """
    assert program.stdout is not None
    pending, heard = b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ)
        while selector.select(deadline.left) and not deadline.passed and heard < OUTPUT_BYTES_MAX:
            chunk = program.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not chunk:
                return
            heard += len(chunk)
            *whole, pending = (pending + chunk).split(b"\n")
            yield from whole
    raise TimeoutError


def _gap(reason: GapReason, detail: str, what: str = "GPUs") -> Gap:
    return Gap(what=what, reason=reason, detail=detail)
