"""What counts as a progress signal of a GPU: it works, or its memory grows. Pure."""

from collections import deque
from collections.abc import Sequence

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Signal
from firstlight.gpus.watching import GpuSample
from firstlight.supervise.liveness.amounts import grown
from firstlight.supervise.liveness.floors import Floors


class GpuTrack:
    """The last window of the GPUs that the server uses."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._points: deque[tuple[float, dict[int, GpuSample]]] = deque()
        self._answer: Sequence[GpuSample] = ()
        self._found: dict[Signal, float] = {}

    def see(self, at: float, gpus: Sequence[GpuSample], pids: frozenset[int]) -> dict[Signal, float]:
        """Take in what the driver said last; the strong signals in it, dated by when it was new."""
        if gpus is not self._answer:
            self._answer = gpus
            self._found = self._signals(at, gpus, pids)
        return self._found

    def _signals(self, at: float, gpus: Sequence[GpuSample], pids: frozenset[int]) -> dict[Signal, float]:
        # Where the driver numbers processes as another container does, every GPU may be the server's.
        used = [gpu for gpu in gpus if pids.intersection(gpu.pids)] or list(gpus)
        while self._points and self._points[0][0] < at - self._floors.window_s:
            self._points.popleft()
        self._points.append((at, {gpu.index: gpu for gpu in used}))
        found = {}
        if any(works(gpu, self._floors) for gpu in used):
            found[Signal.GPU] = at
        if any(self._grew(gpu) for gpu in used):
            found[Signal.GPU_MEMORY] = at
        return found

    def _grew(self, gpu: GpuSample) -> bool:
        earliest = next(gpus[gpu.index] for _, gpus in self._points if gpu.index in gpus)
        return grown(earliest.memory_bytes, gpu.memory_bytes) >= self._floors.gpu_growth_bytes


def works(gpu: GpuSample, floors: Floors) -> bool:
    """Whether a GPU works: a kernel is resident and it moves memory or burns power."""
    if isinstance(gpu.utilisation, Gap) or gpu.utilisation < floors.gpu_utilisation:
        return False
    if not isinstance(gpu.memory_activity, Gap) and gpu.memory_activity >= floors.gpu_memory_activity:
        return True
    if isinstance(gpu.power_w, Gap) or isinstance(gpu.power_limit_w, Gap):
        return False
    return gpu.power_w >= floors.gpu_power_share * gpu.power_limit_w
