"""What the GPUs do: utilisation with the power and the memory activity that tell work from a spin.

NVML may block for ever inside a sick driver, so it is asked by a helper process (`watch_helper`) which can be killed
and is never waited for. Written from NVML's documentation and tested against recorded answers; the machine it was
written on has no GPU.
"""

import os
import subprocess

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason
from firstlight.gpus import helper
from firstlight.gpus.present import AMD, NVIDIA, vendor

READ_EVERY_S = 2.0
STALE_AFTER_S = 8.0
"""Without a line for so long the helper hangs in the driver. The first one may take as long: NVML starts slowly."""
LINE_BYTES_MAX = 1 << 20


class GpuSample(Record):
    """One GPU. Shares are in percent, power in watts; a field that the card does not have is a gap.

    `utilisation` says that a kernel is resident, not that it works; `memory_activity` is the share of time in which
    its memory was read or written. `pids` are the processes on it, as the driver numbers them: in a container often
    none, or numbers of the host.
    """

    index: int
    name: str
    utilisation: float | Gap
    memory_activity: float | Gap
    power_w: float | Gap
    power_limit_w: float | Gap
    memory_bytes: int | Gap
    pids: tuple[int, ...] = ()


class _Card(msgspec.Struct):
    index: int
    name: str
    utilisation: float | None
    memory_activity: float | None
    power_mw: float | None
    power_limit_mw: float | None
    memory_bytes: int | None
    pids: list[int]


class _Line(msgspec.Struct):
    gpus: list[_Card] = []
    missing: str = ""
    failed: str = ""


_decoder = msgspec.json.Decoder(_Line)


class GpuReader:
    """Starts the helper where there is a GPU, and gives the last it said. Nothing here waits."""

    def __init__(self, now: float, *, present: bool | None = None) -> None:
        """`present` says whether there is an NVIDIA GPU; by default the device files tell."""
        self._helper: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._heard_at = now
        self._last: tuple[GpuSample, ...] | Gap = ()
        if present is None:
            present = vendor() == NVIDIA
        if present:
            self._start()
        elif vendor() == AMD:
            self._last = _gap(GapReason.NOT_SUPPORTED, "AMD GPUs are not watched, only looked at")

    def read(self, now: float) -> tuple[GpuSample, ...] | Gap:
        """What the helper said last, or why it says nothing; empty where there is no GPU, or no answer yet.

        `now` is monotonic.
        """
        if self._helper is None:
            return self._last
        for line in self._new_lines():
            self._heard_at = now
            self._last = _understood(line)
        if now - self._heard_at > STALE_AFTER_S and not isinstance(self._last, Gap):
            self._last = _gap(GapReason.TIMED_OUT, f"the driver has not answered for {STALE_AFTER_S:.0f} s or more")
        return self._last

    @property
    def helper_pid(self) -> int:
        """The helper's pid, 0 if there is none."""
        return self._helper.pid if self._helper else 0

    def close(self) -> None:
        """Kill the helper. One that hangs in the driver is left to the kernel, which ends it with the call."""
        if self._helper is None:
            return
        helper.end(self._helper)
        self._helper = None

    def _start(self) -> None:
        try:
            self._helper = helper.start("watch_helper", str(READ_EVERY_S))
        except OSError as error:
            self._last = _gap(GapReason.FAILED, f"the GPU reader could not be started: {error}")
            return
        assert self._helper.stdout is not None
        os.set_blocking(self._helper.stdout.fileno(), False)

    def _new_lines(self) -> list[bytes]:
        assert self._helper is not None
        assert self._helper.stdout is not None
        try:
            chunk = os.read(self._helper.stdout.fileno(), LINE_BYTES_MAX)
        except BlockingIOError:
            return []
        if not chunk and not isinstance(self._last, Gap):
            self._last = _gap(GapReason.FAILED, "the GPU reader ended")
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        self._pending = self._pending[-LINE_BYTES_MAX:]
        return lines


def _understood(line: bytes) -> tuple[GpuSample, ...] | Gap:
    try:
        said = _decoder.decode(line)
    except msgspec.DecodeError as error:
        return _gap(GapReason.FAILED, f"the GPU reader said something that is no answer: {error}")
    if said.missing:
        return _gap(GapReason.NOT_INSTALLED, "nvidia-ml-py is not there: pip install nvidia-ml-py")
    if said.failed:
        return _gap(GapReason.FAILED, f"NVML: {said.failed}")
    return tuple(_sample(card) for card in said.gpus)


def _sample(card: _Card) -> GpuSample:
    return GpuSample(
        index=card.index,
        name=card.name,
        utilisation=_known(card.utilisation, "GPU utilisation"),
        memory_activity=_known(card.memory_activity, "GPU memory activity"),
        power_w=_known(_watts(card.power_mw), "GPU power"),
        power_limit_w=_known(_watts(card.power_limit_mw), "GPU power limit"),
        memory_bytes=_gap(GapReason.NOT_SUPPORTED, what="GPU memory")
        if card.memory_bytes is None
        else card.memory_bytes,
        pids=tuple(card.pids),
    )


def _watts(milliwatts: float | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _known(value: float | None, what: str) -> float | Gap:
    return _gap(GapReason.NOT_SUPPORTED, "this card does not tell", what) if value is None else value


def _gap(reason: GapReason, detail: str = "", what: str = "GPUs") -> Gap:
    return Gap(what=what, reason=reason, detail=detail)
