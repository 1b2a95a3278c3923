"""The machine, and who may be read on it."""

import os
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.host import NOT_ASKED, Host
from firstlight.core.record import to_json
from firstlight.evidence import host
from firstlight.evidence.host import ptrace_rights, system


def test_the_machine_is_this_one() -> None:
    here = host(SystemClock())
    assert here.kernel == os.uname().release
    assert here.name == os.uname().nodename
    assert 1 <= here.cpus <= (os.cpu_count() or 1)
    assert here.memory_bytes > 1 << 28
    assert not isinstance(here.shm_bytes, Gap)
    assert not isinstance(here.shm_used_bytes, Gap)
    assert 0 <= here.shm_used_bytes <= here.shm_bytes
    assert here.may_ptrace


@pytest.mark.parametrize(
    ("capable", "scope", "begins"),
    [
        (True, 0, "any process"),
        (True, 2, "any process"),
        (True, 3, "none"),
        (False, 0, "processes of the same user"),
        (False, 1, "own descendants only"),
        (False, 2, "none"),
    ],
)
def test_the_right_to_ptrace_in_words(capable: bool, scope: int, begins: str) -> None:
    assert ptrace_rights(capable, scope).startswith(begins)


def test_every_field_of_the_machine_is_a_fact_or_a_gap_that_was_asked_for() -> None:
    here = host(SystemClock(), environ={"HOME": "/nowhere"}, model="/nowhere/model", names=("localhost",))
    for name in here.__struct_fields__:
        assert getattr(here, name) is not NOT_ASKED, name
    assert {one.name for one in here.resolved} == {socket.gethostname(), "localhost"}
    assert here.page_bytes == os.sysconf("SC_PAGE_SIZE")
    assert here.place("home") is not None
    weights = here.place("weights")
    assert weights is not None
    assert weights.path == "/nowhere/model"
    assert here.cpu_arch == os.uname().machine
    assert isinstance(here.memory_free_bytes, int)
    assert isinstance(here.limits, tuple)


def test_a_machine_is_written_and_read_back() -> None:
    here = host(SystemClock())
    assert msgspec.json.decode(to_json(here), type=Host) == here


def test_words_of_the_boot_that_matter() -> None:
    words = (
        "quiet iommu=pt intel_iommu=on pci=noacs root=/dev/sda secret=x nvidia-drm.modeset=1 numa_balancing=disable"
    )
    assert system.telling_words(words.split()) == (
        "iommu=pt", "intel_iommu=on", "pci=noacs", "nvidia-drm.modeset=1", "numa_balancing=disable",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar  5 22:42:15 UTC 2024", "535.161.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build", "570.86.15"),
    ],
)
def test_the_driver_says_its_version(monkeypatch: pytest.MonkeyPatch, line: str, version: str) -> None:
    monkeypatch.setattr(procfs, "nvidia_version", lambda: line)
    assert system.driver() == version


def test_a_driver_without_that_file_and_none_at_all(tmp_path: Path) -> None:
    assert isinstance(system.driver(tmp_path), Gap)
    (tmp_path / "module/amdgpu").mkdir(parents=True)
    (tmp_path / "module/amdgpu/version").write_text("6.10.5\n")
    assert system.driver(tmp_path) == "amdgpu 6.10.5"


def test_the_newest_cuda_of_a_driver() -> None:
    assert system.newest_cuda("570.86.15") == "12.8"
    assert isinstance(system.newest_cuda("999.1"), Gap)
    assert isinstance(system.newest_cuda("amdgpu 6.10.5"), Gap)


def test_memory_layout_from_a_recorded_tree(tmp_path: Path) -> None:
    for node in ("node0", "node1", "nodeless"):
        (tmp_path / "devices/system/node" / node).mkdir(parents=True)
    for size, count in (("hugepages-2048kB", "16"), ("hugepages-1048576kB", "2")):
        (tmp_path / "kernel/mm/hugepages" / size).mkdir(parents=True)
        (tmp_path / "kernel/mm/hugepages" / size / "nr_hugepages").write_text(count)
    assert system.numa_nodes(tmp_path) == 2
    assert system.hugepages_bytes(tmp_path) == 16 * 2 * 2**20 + 2 * 2**30
    assert isinstance(system.numa_nodes(tmp_path / "absent"), Gap)
    assert isinstance(system.hugepages_bytes(tmp_path / "absent"), Gap)


def test_the_kernel_says_whether_its_clock_is_kept_right_or_refuses() -> None:
    assert isinstance(system.clock_synchronised(), bool | Gap)


def test_devices_that_matter(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidiactl", "null", "kfd"):
        (tmp_path / name).touch()
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    assert system.devices(tmp_path) == ("/dev/nvidia0", "/dev/nvidia10", "/dev/nvidiactl", "/dev/kfd", "/dev/dri")
    assert isinstance(system.devices(tmp_path / "absent"), Gap)


def test_the_kind_of_container(tmp_path: Path) -> None:
    assert system.container({}, "0::/\n", tmp_path) == ""
    assert system.container({}, "4:memory:/docker/abc\n", tmp_path) == "docker"
    assert system.container({}, "0::/kubepods.slice/x\n", tmp_path) == "kubernetes"
    assert system.container({"container": "lxc"}, "", tmp_path) == "lxc"
    (tmp_path / ".dockerenv").touch()
    assert system.container({}, "", tmp_path) == "docker"
    assert system.container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "", tmp_path) == "kubernetes"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert system.container({}, "", tmp_path) == "podman"


def test_what_is_put_into_every_program(tmp_path: Path) -> None:
    assert system.preload(tmp_path) == ()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.preload").write_text("/usr/local/vgpu/libvgpu.so\n")
    assert system.preload(tmp_path) == ("/usr/local/vgpu/libvgpu.so",)


def test_file_systems_and_name_servers_that_do_not_answer_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait())
    monkeypatch.setattr(os, "statvfs", lambda _: never.wait())
    here = host(SystemClock())
    never.set()
    assert isinstance(here.shm_bytes, Gap)
    assert here.places
    assert all(isinstance(one.free_bytes, Gap) for one in here.places)
    assert [type(one.addresses) for one in here.resolved] == [Gap]
