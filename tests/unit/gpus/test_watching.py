"""The GPU reader against a recorded driver: one that answers, one that fails, one that hangs for ever."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.gpus.watching import STALE_AFTER_S, GpuReader, GpuSample

DRIVER = """
import os, time
from types import SimpleNamespace

class NVMLError(Exception): pass

def nvmlInit():
    if os.environ["FAKE_DRIVER"] == "absent":
        raise NVMLError("Driver Not Loaded")

def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index):
    if os.environ["FAKE_DRIVER"] == "lost" and index == 0:
        raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetName(card): return b"NVIDIA H200" if card else "NVIDIA H200"
def nvmlDeviceGetUtilizationRates(card): return SimpleNamespace(gpu=100, memory=3 * card)

def nvmlDeviceGetMemoryInfo(card):
    if os.environ["FAKE_DRIVER"] == "unified":
        raise NVMLError("Not Supported")
    return SimpleNamespace(used=141_000_000_000)

def nvmlDeviceGetPowerUsage(card):
    if os.environ["FAKE_DRIVER"] == "hangs":
        time.sleep(600)
    return 74_500

def nvmlDeviceGetEnforcedPowerLimit(card): return 700_000
def nvmlDeviceGetComputeRunningProcesses(card):
    if os.environ["FAKE_DRIVER"] == "old":
        raise RuntimeError("pyNVML version does not match the NVML lib version")
    return [SimpleNamespace(pid=4242)]
def nvmlDeviceGetComputeRunningProcesses_v2(card): return [SimpleNamespace(pid=4343)]
"""

Eventually = Callable[[Callable[[], object], str], None]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[GpuReader]:
    """A reader whose helper finds the recorded driver that the test is parametrised with."""
    (tmp_path / "pynvml.py").write_text(DRIVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FAKE_DRIVER", request.param)
    made = GpuReader(0.0, present=True)
    yield made
    made.close()


def answered(reader: GpuReader, eventually: Eventually) -> tuple[GpuSample, ...] | Gap:
    eventually(lambda: reader.read(1.0) != (), "an answer of the GPU reader")
    return reader.read(1.0)


@pytest.mark.parametrize("reader", ["answers"], indirect=True)
def test_utilisation_comes_with_what_tells_work_from_a_spin(reader: GpuReader, eventually: Eventually) -> None:
    first, second = answered(reader, eventually)  # type: ignore[misc]
    assert first == GpuSample(
        index=0,
        name="NVIDIA H200",
        utilisation=100.0,
        memory_activity=0.0,
        power_w=74.5,
        power_limit_w=700.0,
        memory_bytes=141_000_000_000,
        pids=(4242,),
    )
    assert (second.name, second.memory_activity) == ("NVIDIA H200", 3.0)


@pytest.mark.parametrize("reader", ["unified"], indirect=True)
def test_a_number_that_the_card_does_not_have_is_a_gap(reader: GpuReader, eventually: Eventually) -> None:
    first, _ = answered(reader, eventually)  # type: ignore[misc]
    assert isinstance(first.memory_bytes, Gap)
    assert first.power_w == 74.5


@pytest.mark.parametrize("reader", ["lost"], indirect=True)
def test_a_lost_gpu_does_not_hide_the_others(reader: GpuReader, eventually: Eventually) -> None:
    lost, other = answered(reader, eventually)  # type: ignore[misc]
    assert (lost.index, lost.name, lost.pids) == (0, "", ())
    assert isinstance(lost.power_w, Gap)
    assert other.power_w == 74.5


@pytest.mark.parametrize("reader", ["old"], indirect=True)
def test_a_driver_older_than_the_package_is_asked_the_older_question(
    reader: GpuReader, eventually: Eventually
) -> None:
    first, _ = answered(reader, eventually)  # type: ignore[misc]
    assert first.pids == (4343,)


@pytest.mark.parametrize("reader", ["absent"], indirect=True)
def test_a_driver_that_is_not_loaded_is_a_gap_with_its_own_words(reader: GpuReader, eventually: Eventually) -> None:
    gap = answered(reader, eventually)
    assert isinstance(gap, Gap)
    assert "Driver Not Loaded" in gap.detail


@pytest.mark.parametrize("reader", ["hangs"], indirect=True)
def test_a_driver_that_never_returns_is_a_gap_and_its_helper_is_killed(reader: GpuReader) -> None:
    assert reader.read(1.0) == ()
    gap = reader.read(STALE_AFTER_S + 1.0)
    assert isinstance(gap, Gap)
    assert gap.reason == GapReason.TIMED_OUT
    helper = reader.helper_pid
    reader.close()
    assert not Path(f"/proc/{helper}").exists()


def test_without_the_package_the_gap_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('as if it were not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reader = GpuReader(0.0, present=True)
    gap = answered(reader, eventually)
    reader.close()
    assert isinstance(gap, Gap)
    assert gap.reason == GapReason.NOT_INSTALLED
    assert "nvidia-ml-py" in gap.detail


def test_a_helper_that_ends_is_a_gap(eventually: Eventually, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reader = GpuReader(0.0, present=True)
    gap = answered(reader, eventually)
    reader.close()
    assert isinstance(gap, Gap)
    assert gap.reason == GapReason.FAILED


def test_without_a_gpu_there_is_nothing_to_see_and_no_helper() -> None:
    reader = GpuReader(0.0, present=False)
    assert reader.read(100.0) == ()
    assert reader.helper_pid == 0
    reader.close()
