"""Processes that the kernel holds: for storage, for memory, in a freezer, for a lock elsewhere, before a terminal."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Cgroup
from firstlight.core.look import Listener, OpenFile, Pressure
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import storage
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.statement import state
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    file,
    host,
    line,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
)

LOADS = ["load_model (vllm/model_executor/model_loader/default_loader.py:290)"]
READS = {"stack": LOADS, "syscall": "read(0x1e)", "files": [file("/m/model-1.safetensors", size=9 * GB)]}
FULL = ordinary_facts(cgroup=Cgroup(path="/pod", memory_bytes=99 * GB, memory_max_bytes=100 * GB))
ROOMY = ordinary_facts(cgroup=Cgroup(path="/pod", memory_bytes=50 * GB, memory_max_bytes=100 * GB))
SEARCHES = ["shrink_lruvec", "try_to_free_mem_cgroup_pages"]
FOR_GOOD = "futex(0x7f00, 0x80, 0x2, 0x0, 0x0, 0x0)"
FORKED = ordinary_facts(forked=True, parent_threads=30)
TEAM = ["futex_wait (libgomp.so.1)", "gomp_team_barrier_wait_end (libgomp.so.1)"]


def _one(*, told=None, **more) -> Bundle:
    return bundle(rank(0, **more), **{"phase": Phase.WEIGHTS, **(told or {})})


@pytest.mark.parametrize(
    ("read", "cpu", "state_", "word"),
    [
        (GB, 0.05, "D", "supported"),
        (9 * GB, 0.05, "D", "not seen"),
        (GB, 0.9, "D", "not seen"),
        (GB, 0.05, "S", "not seen"),
        (0, 0.05, "D", "not seen"),
    ],
)
def test_a_local_disk_that_crawls(judge, read, cpu, state_, word):
    made = _one(state=state_, wchan="folio_wait_bit_common", cpu=cpu, moves=Moves(read_bytes=read), **READS)
    assert judge(made, "slow_storage").word == word


def test_the_kernel_tells_of_a_server_that_does_not_answer(judge):
    told = {"kernel_log": ["nfs: server 10.0.0.9 not responding, still trying"]}
    weights = {"host": host(places=(place("weights", "/m", filesystem="nfs4"),))}
    assert judge(_one(stack=LOADS, told=told | weights), "slow_storage").word == "supported"
    assert judge(_one(stack=LOADS, told=told), "slow_storage").finding is None
    assert judge(_one(told={**told, **weights, "phase": Phase.SERVING}), "slow_storage").finding is None


def test_other_file_systems_across_the_network():
    assert storage.is_slow("yrfs")
    assert storage.is_slow("fuse.geesefs")
    assert not storage.is_slow("xfs")
    waits = _one(state="S", wchan="ptlrpc_set_wait", **READS)
    assert list(storage.in_storage(scene_of(waits)))
    assert not list(storage.in_storage(scene_of(_one(state="S", wchan="poll_schedule_timeout", **READS))))


@pytest.mark.parametrize(("facts", "word"), [(FULL, "supported"), (ROOMY, "not seen")])
def test_a_full_group_where_the_pressure_is_not_known(judge, facts, word):
    made = _one(stack=LOADS, state="D", kernel=SEARCHES, facts=facts)
    assert judge(made, "memory_pressure").word == word
    assert judge(_one(stack=LOADS, facts=facts), "memory_pressure").finding is None


def test_a_group_that_is_throttled_or_held(judge):
    pressed = {"pressure": Pressure(memory_some=35.0, swapped_in=0, swapped_out=0)}
    throttled = _one(stack=LOADS, state="D", kernel=["mem_cgroup_handle_over_high"], told=pressed)
    assert judge(throttled, "memory_pressure").word == "established"
    held = _one(stack=LOADS, state="D", kernel=["mem_cgroup_oom_synchronize", "pagefault_out_of_memory"])
    assert judge(held, "memory_pressure").word == "established"


@pytest.mark.parametrize(
    ("state_", "wchan", "kernel"),
    [("S", "do_freezer_trap", ()), ("D", "", ("__refrigerator", "get_signal"))],
)
def test_a_frozen_container(judge, state_, wchan, kernel):
    made = _one(stack=LOADS, syscall="read(0x1e)", state=state_, wchan=wchan, kernel=kernel)
    said = judge(made, "stopped_process")
    assert said.word == "established"
    assert "frozen" in said.title
    assert "unpause" in str(said.finding)
    assert "is frozen with its control group" in state(made).headline
    assert judge(_one(stack=LOADS, wchan="pipe_read"), "stopped_process").finding is None


def test_a_lock_that_another_machine_holds(judge):
    def locks(filesystem: str) -> Bundle:
        lock = OpenFile(fd=30, kind="file", target="/nfs/x.lock", access="rw", filesystem=filesystem)
        return _one(stack=LOADS, syscall="flock(0x1e, 0x2)", fds=(30,), files=[lock])

    said = judge(locks("nfs4"), "file_lock_held")
    assert said.word == "supported"
    assert "not on this machine" in said.title
    assert judge(locks("ext4"), "file_lock_held").finding is None


def test_a_terminal_that_takes_nothing(judge):
    blocks = {"stack": ["emit (logging/__init__.py:1100)", *LOADS], "syscall": "write(0x1)", "fds": (1,)}
    said = judge(_one(wchan="n_tty_write", **blocks), "queue_full")
    assert said.word == "supported"
    assert "Ctrl-Q" in str(said.finding)
    assert judge(_one(wchan="", **blocks), "queue_full").finding is None


def test_a_pool_that_the_fork_left_behind(judge):
    waits = {"stack": ["forward (serve.py:9)"], "syscall": FOR_GOOD, "native": TEAM}
    assert judge(_one(facts=FORKED, **waits), "fork_in_threads").word == "established"
    assert judge(_one(**waits), "fork_in_threads").finding is None
    running = {**waits, "syscall": "futex(0x7f00, 0x80, 0x2, 0x7f12, 0x0, 0x0)"}
    assert judge(_one(facts=FORKED, **running), "fork_in_threads").word != "established"


def _knocks(queue: int, *, backlog: int = 0, kernel_log=()) -> Bundle:
    knock = socket("127.0.0.1:5000", "127.0.0.1:9000", state="SYN_SENT")
    listens = socket("127.0.0.1:9000", state="LISTEN", fd=51, unread=queue)
    told = {"listeners": [Listener(host="127.0.0.1", port=9000, pid=4101, backlog=backlog)]}
    made = rank(0, stack=LOADS, syscall="connect(0x32)", fds=(50,), files=[knock])
    return bundle(made, rank(1, stack=LOADS, files=[listens]), kernel_log=kernel_log, **told)


def test_a_full_queue_drops_who_knocks(judge):
    assert judge(_knocks(129), "accept_queue").word == "supported"
    assert judge(_knocks(0, backlog=129), "accept_queue").word == "supported"
    assert judge(_knocks(0), "accept_queue").finding is None
    flood = ["TCP: request_sock_TCP: Possible SYN flooding on port 127.0.0.1:9000. Sending cookies."]
    assert judge(_knocks(0, kernel_log=flood), "accept_queue").word == "supported"
    assert judge(_knocks(0, kernel_log=[flood[0].replace("9000", "22")]), "accept_queue").finding is None


def _fetches(path: str, *stack: str, name: str = "python") -> Bundle:
    made = process(4000, name, stack=stack, files=[file(path, size=5000, access="w")], ppid=1)
    return bundle(made, phase=Phase.WEIGHTS)


@pytest.mark.parametrize(
    ("path", "stack", "name"),
    [
        (
            "/c/._____temp/model-1.safetensors",
            ["http_get_model_file (modelscope/hub/file_download.py:400)"],
            "python",
        ),
        ("/m/model-1.safetensors.6E3b5f1C", ["result (s3transfer/futures.py:260)"], "python"),
        ("/m/.model-1.safetensors.Ab12Cd", [], "rsync"),
    ],
)
def test_other_downloaders(judge, path, stack, name):
    assert judge(_fetches(path, *stack, name=name), "download_stuck").word == "established"
    assert judge(_fetches("/m/model-1.safetensors", *stack, name=name), "download_stuck").finding is None
    assert judge(_fetches(path, *LOADS), "download_stuck").finding is None


def test_memory_of_other_ranks_may_not_be_read(judge):
    def copies(text: str, **more) -> Bundle:
        native = ["mca_btl_vader_component_progress (libopen-pal.so.40)"]
        return _one(native=native, told={"log": [line(text)]}, **more)

    confined = {"facts": ordinary_facts(capabilities=(), seccomp=2)}
    assert judge(copies("Read -1, expected 8192, errno = 1", **confined), "container_caps").word == "supported"
    assert judge(copies("Read -1, expected 8192, errno = 1"), "container_caps").finding is None
    assert judge(copies("Read -1, expected 8192, errno = 12", **confined), "container_caps").finding is None


def test_a_database_of_a_cache_across_the_network(judge):
    said = [line("sqlite3.OperationalError: disk I/O error", level="ERROR")]
    home = {"host": host(places=(place("home", "/root", filesystem="nfs4"),))}
    assert judge(_one(told={"log": said, **home}), "nfs_cache").word == "supported"
    assert judge(_one(told={"log": said}), "nfs_cache").finding is None


def test_a_process_that_comes_back_from_swap(judge):
    swapped = ordinary_facts(swapped_bytes=9 * GB)
    assert judge(_one(facts=swapped, moves=Moves(faults=9000)), "memory_pressure").word == "supported"
    assert judge(_one(facts=swapped), "memory_pressure").finding is None
    assert judge(_one(moves=Moves(faults=9000)), "memory_pressure").finding is None


def test_a_message_that_zeromq_does_not_take(judge):
    sends = ["send (zmq/sugar/socket.py:700)", "push (serve.py:3)"]
    assert judge(_one(stack=sends, syscall="poll(0x7f)"), "queue_full").word == "supported"
    receives = ["recv (zmq/sugar/socket.py:800)", "pull (serve.py:3)"]
    assert judge(_one(stack=receives, syscall="poll(0x7f)"), "queue_full").finding is None
