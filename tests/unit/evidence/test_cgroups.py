"""Control groups, version 1 and 2, as folders of files like the kernel's; and the group of this very process."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from firstlight import cgroupfs
from firstlight.cgroupfs import Mount
from firstlight.core.facts import UNLIMITED
from firstlight.core.gap import Gap
from firstlight.evidence.cgroups import cgroup, cgroup_of


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(text)


def v2(root: Path) -> list[Mount]:
    return [Mount("/", str(root), frozenset({"rw"}), unified=True)]


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A container's group without limits of its own in a pod that has them."""
    write(
        tmp_path / "pod",
        memory__current="900\n",
        memory__max="1000\n",
        memory__events="low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
        pids__current="90\n",
        pids__max="100\n",
        pids__events="max 7\n",
        cpu__max="150000 100000\n",
        cpu__stat="usage_usec 5\nnr_throttled 4\nthrottled_usec 2500000\n",
    )
    write(
        tmp_path / "pod" / "box",
        memory__current="300\n",
        memory__max="max\n",
        memory__events="oom_kill 0\n",
        pids__current="30\n",
        pids__max="max\n",
        pids__events="max 0\n",
        cpu__max="max 100000\n",
        cpu__stat="throttled_usec 0\n",
    )
    return tmp_path


def test_the_tightest_limit_counts_with_its_own_use_and_events(pod: Path) -> None:
    found = cgroup("0::/pod/box\n", v2(pod))
    assert found.path == "/pod/box"
    assert (found.memory_bytes, found.memory_max_bytes, found.oom_kills) == (900, 1000, 2)
    assert (found.pids, found.pids_max, found.pids_refused) == (90, 100, 7)
    assert (found.cpu_cores, found.throttled_s) == (1.5, 2.5)


def test_an_inner_limit_that_is_tighter_wins(pod: Path) -> None:
    write(pod / "pod" / "box", memory__max="500\n")
    found = cgroup("0::/pod/box\n", v2(pod))
    assert (found.memory_bytes, found.memory_max_bytes, found.oom_kills) == (300, 500, 0)


def test_without_limits_the_group_itself_is_told(pod: Path) -> None:
    write(pod / "pod", memory__max="max\n", pids__max="max\n", cpu__max="max 100000\n")
    found = cgroup("0::/pod/box\n", v2(pod))
    assert (found.memory_bytes, found.memory_max_bytes) == (300, UNLIMITED)
    assert (found.pids, found.pids_max) == (30, UNLIMITED)
    assert (found.cpu_cores, found.throttled_s) == (UNLIMITED, 0.0)


def test_a_container_that_is_named_as_the_host_names_it(pod: Path) -> None:
    mounts = [Mount("/kubepods/pod1", str(pod / "pod"), frozenset(), unified=True)]
    assert cgroup("0::/kubepods/pod1\n", mounts).memory_max_bytes == 1000


@pytest.mark.parametrize("text", ["0::/../other\n", "0::/..\n", "0::/kubepods/pod2\n", "0::/kubepods/pod12\n"])
def test_the_group_of_another_container_is_not_taken_for_ours(pod: Path, text: str) -> None:
    mounts = [Mount("/kubepods/pod1", str(pod / "pod"), frozenset(), unified=True)]
    assert isinstance(cgroup(text, mounts).memory_max_bytes, Gap)


def test_version_1(tmp_path: Path) -> None:
    write(
        tmp_path / "memory" / "job",
        memory__usage_in_bytes="5000\n",
        memory__limit_in_bytes="6000\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    )
    write(tmp_path / "memory", memory__usage_in_bytes="9000\n", memory__limit_in_bytes="9223372036854771712\n")
    write(tmp_path / "pids" / "job", pids__current="5\n", pids__max="max\n", pids__events="max 0\n")
    write(
        tmp_path / "cpu" / "job",
        cpu__cfs_quota_us="50000\n",
        cpu__cfs_period_us="100000\n",
        cpu__stat="nr_periods 9\nnr_throttled 1\nthrottled_time 1500000000\n",
    )
    mounts = [
        Mount("/", str(tmp_path / name), frozenset({name}), unified=False) for name in ("memory", "pids", "cpu")
    ]
    found = cgroup("3:memory:/job\n2:cpu,cpuacct:/job\n1:pids:/job\n", mounts)
    assert (found.memory_bytes, found.memory_max_bytes, found.oom_kills) == (5000, 6000, 1)
    assert (found.pids, found.pids_max, found.pids_refused) == (5, UNLIMITED, 0)
    assert (found.cpu_cores, found.throttled_s) == (0.5, 1.5)
    assert found.path == "/job"


def test_a_controller_that_is_not_there_is_a_gap(tmp_path: Path) -> None:
    write(tmp_path / "job", memory__current="5\n", memory__max="9\n")
    found = cgroup("0::/job\n", v2(tmp_path))
    assert found.memory_max_bytes == 9
    for seen in (found.oom_kills, found.pids, found.pids_max, found.pids_refused, found.cpu_cores, found.throttled_s):
        assert isinstance(seen, Gap)


@pytest.mark.parametrize("text", ["", "garbage", "0::", "::::\n", "4:memory:/../../..\n"])
def test_nonsense_is_a_gap(text: str, tmp_path: Path) -> None:
    assert isinstance(cgroup(text, v2(tmp_path)).memory_bytes, Gap)


def test_nonsense_in_the_files_is_a_gap(tmp_path: Path) -> None:
    write(tmp_path, memory__current="many\n", memory__max="-\n", cpu__max="1 0\n", memory__events="oom_kill x\n")
    found = cgroup("0::/\n", v2(tmp_path))
    assert isinstance(found.memory_bytes, Gap)
    assert isinstance(found.cpu_cores, Gap)
    assert found.oom_kills == 0


def test_the_group_of_this_process_can_be_read_or_is_a_gap() -> None:
    found = cgroup_of(os.getpid())
    assert isinstance(found.memory_bytes, Gap) or found.memory_bytes > 0
    gone = cgroup_of(2**22 + 1)
    assert isinstance(gone.memory_bytes, Gap)
    assert gone.memory_bytes.pid == 2**22 + 1


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A group of the kernel's own with a limit of memory, where one may be made."""
    folder = next(filter(None, map(limited, cgroupfs.mounts())), None)
    if folder is None:
        pytest.skip("needs the right to make a control group of the memory controller")
    yield folder
    folder.rmdir()


def limited(mount: Mount) -> Path | None:
    """A new group with a limit of 64 MiB in this hierarchy, if it may be made there."""
    folder = Path(mount.point) / f"firstlight-test-{os.getpid()}"
    with suppress(OSError):
        if mount.unified or "memory" in mount.controllers:
            folder.mkdir()
            limit = folder / ("memory.max" if mount.unified else "memory.limit_in_bytes")
            if limit.exists():
                limit.write_text(str(64 << 20))
                return folder
            folder.rmdir()
    return None


def test_a_real_group_with_a_real_limit(real_group: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        (real_group / "cgroup.procs").write_text(str(child.pid))
        found = cgroup_of(child.pid)
        assert found.path.endswith(real_group.name)
        assert found.memory_max_bytes == 64 << 20
        assert isinstance(found.memory_bytes, int)
        assert found.oom_kills == 0
    finally:
        child.kill()
        child.wait()
