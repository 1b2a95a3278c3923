"""The full look at GPUs: real helper processes against recorded drivers that answer, refuse, hang and die."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu, GpuProcess
from firstlight.core.vocabulary import GapReason
from firstlight.gpus import Told, ask
from firstlight.testing import drivers
from firstlight.testing.drivers import DIES, HANGS, MISMATCHES, RAMBLES, amd, nvidia, refuses

ENOUGH_S = 30.0
SHORT_S = 3.0

Eventually = Callable[[Callable[[], object], str], None]


class Driver:
    """A recorded driver, and whoever still talks to it."""

    def __init__(self, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._clock = clock
        self._monkeypatch = monkeypatch

    def asked(
        self, gpus: Sequence[Mapping[str, Any]], seconds: float = ENOUGH_S, whose: str = "nvidia", **machine: Any
    ) -> Told:
        self.environment = drivers.recorded(self._folder, gpus, **machine)
        for name, value in self.environment.items():
            self._monkeypatch.setenv(name, value)
        deadline = Deadline(self._clock, seconds, "the GPUs")
        return ask(deadline, self._clock, whose)

    def helpers(self) -> list[int]:
        """Processes that have this recording, and are not this one."""
        return [pid for pid in procfs.pids() if pid != os.getpid() and self._has_it(pid)]

    def _has_it(self, pid: int) -> bool:
        try:
            recording = procfs.environ(pid).get(drivers.VARIABLE)
            return recording == str(self._folder / "gpus.json") and procfs.stat(pid).state not in "ZX"
        except OSError:
            return False


@pytest.fixture
def driver(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(tmp_path, clock, monkeypatch)


def gpus(told: Told) -> tuple[Gpu, ...]:
    assert not isinstance(told.gpus, Gap), told.gpus
    return told.gpus


def gap(value: object) -> Gap:
    assert isinstance(value, Gap), value
    return value


def test_one_gpu_is_told_field_by_field(driver: Driver) -> None:
    told = driver.asked([nvidia()], nvmlSystemGetDriverVersion="580.95.05", nvmlSystemGetCudaDriverVersion=13_000)
    (gpu,) = gpus(told)
    assert gpu == Gpu(
        index=0,
        name="NVIDIA H200",
        architecture="90",
        utilisation=100.0,
        memory_activity=0.0,
        power_w=118.25,
        power_limit_w=700.0,
        sm_clock_mhz=1980.0,
        memory_used_bytes=141_000_000_000,
        memory_total_bytes=150_754_820_096,
        processes=(GpuProcess(pid=4242, memory_bytes=140_000_000_000, here=gpu.processes[0].here),),  # type: ignore[index, union-attr]
        ecc_errors=0,
        peers=(),
        fabric="completed",
        nvlinks=18,
        nvlinks_down=0,
        pci="0000:1b:00.0",
        repair="none",
        bar1_bytes=274_877_906_944,
    )
    assert (told.driver, told.cuda) == ("580.95.05", "13.0")
    assert driver.helpers() == []


def test_eight_gpus_and_what_each_may_reach(driver: Driver) -> None:
    bent = nvidia(3, 8, nvmlDeviceGetP2PStatus={str(other): [0, 4] if other == 1 else 1 for other in range(8)})
    cards = [bent if index == 3 else nvidia(index, 8) for index in range(8)]
    found = gpus(driver.asked(cards))
    assert [gpu.index for gpu in found] == list(range(8))
    assert [gpu.pci for gpu in found[:2]] == ["0000:1b:00.0", "0000:1c:00.0"]
    assert found[0].peers == tuple((other, "ok") for other in range(1, 8))
    assert found[3].peers[:2] == (
        (0, "chipset not supported"),
        (1, "reading ok, writing disabled by the driver's settings"),
    )


def test_a_lost_gpu_has_gaps_and_the_others_are_whole(driver: Driver) -> None:
    cards = [nvidia(index, 4) for index in range(4)]
    cards[1] = nvidia(1, 4, nvmlDeviceGetUtilizationRates=refuses(15))
    cards[2] = {"nvmlDeviceGetHandleByIndex": refuses(15)}
    first, lost, gone, last = gpus(driver.asked(cards))
    assert (lost.fault, gone.fault) == ("GPU is lost", "GPU is lost")
    for gpu in (lost, gone):
        for field in ("utilisation", "power_w", "memory_used_bytes", "processes", "nvlinks", "fabric", "repair"):
            assert "GPU is lost" in gap(getattr(gpu, field)).detail
    assert first.fault == last.fault == ""
    assert first.utilisation == last.utilisation == 100.0
    assert dict(first.peers) == {1: "ok", 3: "ok"}


def test_a_field_that_the_card_does_not_tell_is_a_gap_of_its_own(driver: Driver) -> None:
    card = nvidia(nvmlDeviceGetMemoryInfo=refuses(3), nvmlDeviceGetPowerUsage=refuses(4))
    (gpu,) = gpus(driver.asked([card]))
    assert gap(gpu.memory_total_bytes).reason == GapReason.NOT_SUPPORTED
    assert gap(gpu.power_w).reason == GapReason.NO_PERMISSION
    assert gpu.sm_clock_mhz == 1980.0
    assert gpu.fault == ""


def test_memory_that_waits_for_a_reset(driver: Driver) -> None:
    cards = [
        nvidia(0, 3, nvmlDeviceGetRemappedRows=[0, 1, 1, 0]),
        nvidia(1, 3, nvmlDeviceGetRemappedRows=refuses(3), nvmlDeviceGetRetiredPagesPendingStatus=1),
        nvidia(2, 3, nvmlDeviceGetRemappedRows=[0, 1, 1, 1], nvmlDeviceGetTotalEccErrors=7),
    ]
    found = gpus(driver.asked(cards))
    assert [gpu.repair for gpu in found] == ["pending", "pending", "failed"]
    assert found[2].ecc_errors == 7


def test_fabric_and_links_that_are_not_up(driver: Driver) -> None:
    cards = [
        nvidia(0, 4, nvmlDeviceGetGpuFabricInfoV={"state": 2, "status": 0}),
        nvidia(1, 4, nvmlDeviceGetGpuFabricInfoV={"state": 3, "status": 31}),
        nvidia(2, 4, nvmlDeviceGetNvLinkState=[1, 0, 1, 0]),
        nvidia(3, 4, nvmlDeviceGetNvLinkState=refuses(3), nvmlDeviceGetGpuFabricInfoV=refuses(3)),
    ]
    found = gpus(driver.asked(cards))
    assert [gpu.fabric for gpu in found[:3]] == ["in progress", "completed with error 31", "completed"]
    assert (found[2].nvlinks, found[2].nvlinks_down) == (4, 2)
    assert gap(found[3].nvlinks_down).reason == gap(found[3].fabric).reason == GapReason.NOT_SUPPORTED


def test_everybody_on_the_gpu_is_listed_once(driver: Driver) -> None:
    ours = os.getpid()
    card = nvidia(
        nvmlDeviceGetComputeRunningProcesses=[{"pid": ours, "usedGpuMemory": None}],
        nvmlDeviceGetGraphicsRunningProcesses=[{"pid": ours, "usedGpuMemory": 5}, {"pid": 77, "usedGpuMemory": 6}],
        nvmlDeviceGetMPSComputeRunningProcesses=refuses(3),
    )
    (gpu,) = gpus(driver.asked([card]))
    assert not isinstance(gpu.processes, Gap)
    by_pid = {process.pid: process for process in gpu.processes}
    assert set(by_pid) == {ours, 77}
    assert by_pid[ours].here is False, "a number that only happens to be ours: it has no GPU open"
    assert gap(by_pid[ours].memory_bytes).reason == GapReason.NOT_SUPPORTED
    assert by_pid[77].memory_bytes == 6


def test_a_driver_older_than_the_package_is_asked_the_older_question(driver: Driver) -> None:
    card = nvidia(
        nvmlDeviceGetComputeRunningProcesses=MISMATCHES,
        nvmlDeviceGetComputeRunningProcesses_v2=[{"pid": 77, "usedGpuMemory": 6}],
        nvmlDeviceGetGpuFabricInfoV=refuses(13),
    )
    (gpu,) = gpus(driver.asked([card]))
    assert [process.pid for process in gpu.processes] == [77]  # type: ignore[union-attr]
    assert gap(gpu.fabric).reason == GapReason.NOT_SUPPORTED


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlSystemGetDriverVersion"])
def test_a_driver_that_hangs_before_any_gpu_is_a_gap_in_time(driver: Driver, call: str) -> None:
    told = driver.asked([nvidia()], SHORT_S, **{call: HANGS})
    found = gap(told.gpus)
    assert found.reason == GapReason.TIMED_OUT
    assert call in found.detail
    assert driver.helpers() == []


def test_a_driver_that_hangs_at_one_gpu_leaves_those_already_told(driver: Driver) -> None:
    cards = [nvidia(index, 4) for index in range(4)]
    cards[2] = nvidia(2, 4, nvmlDeviceGetPowerUsage=HANGS)
    first, second, stuck, unasked = gpus(driver.asked(cards, SHORT_S))
    assert first.power_w == second.power_w == 118.25
    assert "nvmlDeviceGetPowerUsage of GPU 2" in stuck.fault
    assert gap(stuck.power_w).reason == gap(unasked.power_w).reason == GapReason.TIMED_OUT
    assert unasked.fault == "", "nobody knows anything against it"
    assert driver.helpers() == []


def test_a_helper_that_dies_is_a_gap_that_says_where(driver: Driver) -> None:
    found = gap(driver.asked([nvidia(nvmlDeviceGetName=DIES)]).gpus)
    assert found.reason == GapReason.FAILED
    assert "nvmlDeviceGetName of GPU 0" in found.detail


def test_garbage_for_an_answer_is_a_gap(driver: Driver) -> None:
    found = gap(driver.asked([nvidia(nvmlDeviceGetName=RAMBLES)]).gpus)
    assert found.reason == GapReason.FAILED
    assert "no answer" in found.detail
    assert driver.helpers() == []


def test_a_driver_that_is_not_loaded_is_a_gap_with_its_own_words(driver: Driver) -> None:
    told = driver.asked([], nvmlInit=refuses(9))
    assert "Driver Not Loaded" in gap(told.gpus).detail
    assert "Driver Not Loaded" in gap(told.driver).detail


@pytest.mark.parametrize(("whose", "module"), [("nvidia", "pynvml"), ("amd", "amdsmi")])
def test_without_the_package_the_gap_says_how_to_get_it(
    whose: str, module: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{module}.py").write_text("print('no library'); raise ImportError('as if it were not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = gap(ask(Deadline(clock, ENOUGH_S, "the GPUs"), clock, whose).gpus)
    assert found.reason == GapReason.NOT_INSTALLED
    assert "pip install" in found.detail


def test_an_amd_gpu_is_told_field_by_field(driver: Driver) -> None:
    first, _ = gpus(driver.asked([amd(0, 2), amd(1, 2)], whose="amd"))
    assert (first.name, first.vendor, first.architecture) == ("AMD Instinct MI300X", "amd", "gfx942")
    assert (first.utilisation, first.memory_activity) == (100.0, 0.0)
    assert (first.power_w, first.power_limit_w, first.sm_clock_mhz) == (142.0, 750.0, 2100.0)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (180_000_000_000, 206_141_652_992)
    assert (first.pci, first.peers, first.ecc_errors) == ("0000:05:00.0", ((1, "ok"),), 0)
    assert [(one.pid, one.memory_bytes) for one in first.processes] == [(4242, 170_000_000_000)]  # type: ignore[union-attr]
    assert gap(first.fabric).reason == GapReason.NOT_SUPPORTED


def test_an_amd_gpu_that_tells_little_has_gaps(driver: Driver) -> None:
    power = {"current_socket_power": "N/A", "average_socket_power": 90, "power_limit": 300_000_000}
    card = amd(
        amdsmi_get_gpu_activity={"gfx_activity": "N/A", "umc_activity": "N/A"},
        amdsmi_get_power_info=power,
        amdsmi_get_clock_info={"clk": 2**32 - 1},
        amdsmi_get_gpu_process_list=refuses(3),
        amdsmi_get_gpu_device_bdf=MISMATCHES,
    )
    (gpu,) = gpus(driver.asked([card], whose="amd"))
    for value in (gpu.utilisation, gpu.processes, gpu.sm_clock_mhz):
        assert gap(value).reason == GapReason.NOT_SUPPORTED
    assert gpu.pci == ""
    assert (gpu.power_w, gpu.power_limit_w) == (90.0, 300.0)


def test_without_a_gpu_there_is_nothing_to_see(clock: Clock) -> None:
    told = ask(Deadline(clock, ENOUGH_S, "the GPUs"), clock, "")
    assert told.gpus == ()
    assert gap(told.driver).reason == GapReason.NOT_SUPPORTED


@pytest.mark.parametrize("program", ["nvidia_helper", "watch_helper"])
def test_a_helper_ends_with_its_parent_even_out_of_a_call_that_hangs(
    driver: Driver, tmp_path: Path, eventually: Eventually, program: str
) -> None:
    environment = drivers.recorded(tmp_path, [nvidia(nvmlDeviceGetPowerUsage=HANGS)])
    source = (
        "import time\n"
        "from firstlight.gpus import helper\n"
        f"child = helper.start({program!r}, '1')\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], env={**os.environ, **environment}, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        eventually(lambda: child in driver.helpers(), "the helper's start")
        eventually(lambda: ignores_sigterm(child), "the call that hangs")
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: child not in driver.helpers(), "the helper's end")


def ignores_sigterm(pid: int) -> bool:
    """The recorded driver does so once it hangs."""
    return bool(int(procfs.status(pid)["SigIgn"], 16) & 1 << signal.SIGTERM - 1)
