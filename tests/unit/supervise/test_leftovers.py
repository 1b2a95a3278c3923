"""Shared memory of a killed server is removed; what anybody else uses never is. Ports name their owners.

The tests use a folder of their own in the place of /dev/shm; the files are mapped by real processes.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.core.process import Process
from firstlight.supervise.processes.leftovers import ShmWatch, Swept
from firstlight.supervise.processes.ports import PortOwner, owner_of_port

MAPS = """
import mmap, os, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mapper(tmp_path):
    """`mapper(name)`: a process that makes and maps this segment until it is ended."""
    started = []

    def run(name):
        process = subprocess.Popen(
            [sys.executable, "-c", MAPS, str(tmp_path / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "mapped\n"
        return process

    yield run
    for process in started:
        end(process)


def end(process):
    process.stdin.close()
    process.stdout.close()
    process.kill()
    process.wait()


def noted(watch, process, eventually):
    """Have the watch see what the process maps."""
    who = Process(id=procfs.stat(process.pid).id, ppid=0, name="", cmdline=())
    watch.note([who])
    eventually(lambda: watch.note([who]) or watch.owned, "the segment to be seen with its owner")


@pytest.fixture
def watch(clock, tmp_path):
    (tmp_path / "psm_older").touch()
    shm = ShmWatch(clock, tmp_path)
    yield shm
    shm.close()


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_segment_seen_with_the_server_is_removed_whatever_its_name(watch, mapper, eventually, tmp_path):
    server = mapper("any name")
    noted(watch, server, eventually)
    end(server)
    assert watch.remove() == Swept(removed=("any name",))
    assert left_in(tmp_path) == ["psm_older"]


OPENS = """
import sys
with open(sys.argv[1], "w") as file:
    file.write("x")
    file.flush()
    if len(sys.argv) > 2:
        print("open", flush=True)
        sys.stdin.read()
"""


def test_a_plain_file_that_the_server_held_open_is_removed(watch, eventually, tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-c", OPENS, str(tmp_path / "scratch"), "stay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout.readline() == b"open\n"
    noted(watch, server, eventually)
    end(server)
    assert watch.remove() == Swept(removed=("scratch",))


def test_a_file_that_was_closed_before_anybody_could_look_is_named_and_stays(watch, tmp_path):
    subprocess.run([sys.executable, "-c", OPENS, str(tmp_path / "stray_4711")], check=True, timeout=60)
    watch.note([])
    assert watch.remove() == Swept(unsure=("stray_4711",))
    assert "stray_4711" in left_in(tmp_path)


def test_a_segment_that_another_maps_stays(watch, mapper, eventually, tmp_path):
    server = mapper("psm_shared")
    noted(watch, server, eventually)
    end(server)
    mapper("psm_shared")
    assert watch.remove() == Swept(left=("psm_shared",))
    assert "psm_shared" in left_in(tmp_path)


def test_a_segment_never_seen_in_use_is_removed_by_its_kind_alone(watch, tmp_path):
    (tmp_path / "nccl-Ab12").touch()
    (tmp_path / "holiday-photos").touch()
    assert watch.remove() == Swept(removed=("nccl-Ab12",), unsure=("holiday-photos",))
    assert left_in(tmp_path) == ["holiday-photos", "psm_older"]


def test_while_another_makes_segments_too_the_kind_alone_is_not_enough(watch, mapper, tmp_path):
    mapper("psm_anothers")
    (tmp_path / "psm_whose").touch()
    assert watch.remove() == Swept(unsure=("psm_whose",))
    assert left_in(tmp_path) == ["psm_anothers", "psm_older", "psm_whose"]


def test_a_segment_replaced_by_one_of_the_same_name_stays(watch, mapper, eventually, tmp_path):
    server = mapper("any name")
    noted(watch, server, eventually)
    end(server)
    (tmp_path / "keeps the inode busy").hardlink_to(tmp_path / "any name")
    (tmp_path / "any name").unlink()
    (tmp_path / "any name").touch()
    assert watch.remove() == Swept(unsure=("any name", "keeps the inode busy"))
    assert "any name" in left_in(tmp_path)


def test_nothing_new_is_nothing_to_do(watch, tmp_path):
    assert watch.remove() == Swept()
    assert left_in(tmp_path) == ["psm_older"]


def test_without_shared_memory_there_is_nothing_to_sweep(clock, tmp_path):
    shm = ShmWatch(clock, tmp_path / "none")
    shm.note([])
    assert shm.remove() == Swept()
    shm.close()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_taken_port_names_its_owner_and_a_free_one_nobody(family, host):
    with socket.socket(family) as server:
        try:
            server.bind((host, 0))
        except OSError:
            assert not Path("/proc/net/if_inet6").exists()
            return
        port = server.getsockname()[1]
        assert owner_of_port(port) is None  # bound, but nobody listens
        server.listen()
        assert owner_of_port(port) == PortOwner(os.getpid(), procfs.stat(os.getpid()).comm)
    assert owner_of_port(port) is None
