"""Dumps of torch's flight recorder: real ones, ones written by hand, and pickles that want something else."""

import json
import os
import pickle
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.core.collective import CollectiveCall
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.collectives import ask_for_dumps, dump_pipes, flight_folders, flight_records
from firstlight.evidence.collectives.flight_reader import CALLS_MAX, calls_of


def within(seconds: float = 30) -> Deadline:
    return Deadline(SystemClock(), seconds, "flight recorder")


def entry(sequence: int, group: str = "0", **more: Any) -> dict[str, Any]:
    """One entry as dumps of version 2.10 have it."""
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/venv/torch/distributed/distributed_c10d.py", "line": 2501},
            {"name": "warm_up", "filename": "/srv/model_runner.py", "line": 77},
        ],
        "record_id": sequence,
        "pg_id": 0,
        "process_group": (group, "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[8, 4096]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[8, 4096]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "retired": True,
        "time_discovered_completed_ns": None,
    } | more


def dump(*entries: dict[str, Any]) -> bytes:
    return pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": list(entries)}, protocol=2)


def read(folder: Path, **more: Any) -> tuple[CollectiveCall, ...]:
    found = flight_records([folder], within(), **more)
    assert not isinstance(found, Gap), found
    return found


def test_the_calls_of_every_rank_are_read(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(dump(entry(1), entry(2, state="started", retired=False)))
    (tmp_path / "nccl_trace_rank_1").write_bytes(dump(entry(1)))
    (tmp_path / "notes.txt").write_text("no dump")
    found = read(tmp_path)
    assert [(one.rank, one.sequence, one.state) for one in found] == [
        (0, 1, "completed"),
        (0, 2, "started"),
        (1, 1, "completed"),
    ]
    assert found[1] == CollectiveCall(
        rank=0,
        group="0:default_pg",
        sequence=2,
        operation="nccl:all_reduce",
        state="started",
        input_sizes=((8, 4096),),
        output_sizes=((8, 4096),),
        dtype="BFloat16",
        where="warm_up (/srv/model_runner.py:77)",
    )


def test_the_beginning_of_a_path_finds_its_ranks_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "run7_3").write_bytes(dump(entry(1)))
    (tmp_path / "run8_4").write_bytes(dump(entry(1)))
    assert [one.rank for one in read(tmp_path / "run7_")] == [3]


def test_json_is_read_like_a_pickle(tmp_path: Path) -> None:
    text = {"version": "2.10", "entries": [entry(5) | {"collective_seq_id": "5"}]}
    (tmp_path / "trace_rank_2.json").write_text(json.dumps(text))
    assert [(one.rank, one.sequence, one.group) for one in read(tmp_path)] == [(2, 5, "0:default_pg")]


def test_a_send_counts_in_its_own_sequence(tmp_path: Path) -> None:
    more: dict[str, Any] = {"is_p2p": True, "p2p_seq_id": 9, "profiling_name": "nccl:send 0->1"}
    (tmp_path / "rank_0").write_bytes(dump(entry(0, **more)))
    assert [(one.operation, one.sequence) for one in read(tmp_path)] == [("nccl:send 0->1", 9)]


def test_the_last_calls_of_each_group_are_kept() -> None:
    many = [entry(number, group=str(group)) for number in range(300) for group in range(3)]
    found = calls_of(dump(*many))
    assert len(found) == 3 * CALLS_MAX
    assert {one["sequence"] for one in found} == set(range(300 - CALLS_MAX, 300))


def test_dumps_of_an_earlier_run_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(dump(entry(1)))
    os.utime(tmp_path / "rank_0", (1000, 1000))
    assert read(tmp_path, since=2000) == ()
    assert len(read(tmp_path, since=1000)) == 1


def test_nothing_there_is_nothing_seen(tmp_path: Path) -> None:
    assert read(tmp_path / "missing" / "trace_rank_") == ()
    assert read(tmp_path) == ()


class Evil:
    """Runs a command when it is unpickled by somebody who lets it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._path}",)


def gap_of(folder: Path) -> Gap:
    found = flight_records([folder], within())
    assert isinstance(found, Gap)
    return found


def test_a_pickle_that_names_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps({"entries": [Evil(tmp_path / "ran")]}))
    assert "a dump has no names" in gap_of(tmp_path).detail
    assert not (tmp_path / "ran").exists()


HOSTILE = {
    "empty": b"",
    "garbage": bytes(range(1, 256)) * 20,
    "cut short": dump(entry(1))[:-40],
    "not a mapping": pickle.dumps([1, 2]),
    "entries of another kind": pickle.dumps({"entries": 7}),
    "a claim of much memory": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b".",
    "a memo of great length": b"\x80\x02Nr" + struct.pack("<I", 0xFFFFFFF0) + b".",
    "deep JSON": b'{"entries":' + b"[" * 100_000,
    "refers outside": b"\x80\x02X\x01\x00\x00\x00xQ.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_dump_is_a_gap(name: str, tmp_path: Path) -> None:
    (tmp_path / "trace_rank_0").write_bytes(HOSTILE[name])
    assert gap_of(tmp_path).reason is GapReason.FAILED


def test_entries_that_make_no_sense_become_empty_fields(tmp_path: Path) -> None:
    nonsense: dict[str, Any] = {key: [None, {"x": []}] for key in entry(1)} | {"collective_seq_id": -7, "state": 5}
    (tmp_path / "trace_rank_0").write_bytes(dump(nonsense, entry(1, state="x" * 100_000)))
    first, second = read(tmp_path)
    assert (first.operation, first.state, first.sequence) == ("", "", 0)
    assert len(second.state) == 200


def test_one_bad_dump_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "trace_rank_0").write_bytes(b"garbage")
    (tmp_path / "trace_rank_1").write_bytes(dump(entry(1)))
    assert [one.rank for one in read(tmp_path)] == [1]


def test_a_dump_that_is_a_fifo_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace_rank_0")
    assert read(tmp_path) == ()


def test_no_time_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "trace_rank_0").write_bytes(dump(entry(1)))
    found = flight_records([tmp_path], within(0))
    assert isinstance(found, Gap)
    assert found.reason is GapReason.TIMED_OUT


REAL = """
import os, sys
os.environ["TORCH_FR_BUFFER_SIZE"] = "20"
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def warm_up():
    dist.all_reduce(torch.ones(4, 3))
warm_up()
with open(sys.argv[1], "wb") as file:
    file.write(c10d._dump_fr_trace())
with open(sys.argv[2], "wb") as file:
    file.write(c10d._dump_fr_trace_json())
os._exit(0)
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_dump_of_torch_is_read_in_both_forms(tmp_path: Path) -> None:
    files = [tmp_path / "pickled_0", tmp_path / "json_0"]
    done = subprocess.run(
        [sys.executable, "-c", REAL, *map(str, files)], capture_output=True, timeout=120, check=False
    )
    if b"AttributeError" in done.stderr:
        pytest.skip("this torch has no flight recorder for gloo")
    assert done.returncode == 0, done.stderr.decode()
    (pickled,), (text,) = read(tmp_path / "pickled_"), read(tmp_path / "json_")
    assert pickled.where.startswith("warm_up (<string>:")
    assert (pickled.rank, pickled.sequence, pickled.operation) == (0, 1, "gloo:all_reduce")
    assert (pickled.state, pickled.input_sizes, pickled.dtype) == ("completed", ((4, 3),), "Float")
    assert (text.sequence, text.operation, text.input_sizes) == (1, "gloo:all_reduce", ((4, 3),))


def test_dumps_lie_where_the_environment_says() -> None:
    named = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/dumps/run_", "HOME": "/home/me"}
    assert flight_folders(named) == (
        Path("/dumps/run_"),
        Path("/home/me/.cache/torch/comm_lib_trace_rank_"),
        Path("/tmp/nccl_trace_rank_"),
    )


def test_a_pipe_with_a_reader_is_asked_and_nothing_else(tmp_path: Path) -> None:
    pipes = dump_pipes({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "p")}, [0, 1, 2, 3, -1])
    assert [pipe.name for pipe in pipes] == ["p0.pipe", "p1.pipe", "p2.pipe", "p3.pipe"]
    os.mkfifo(pipes[0])
    os.mkfifo(pipes[1])
    pipes[2].write_text("a file")
    reader = os.open(pipes[0], os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert ask_for_dumps(pipes, within()) == (pipes[0],)
        assert os.read(reader, 100)
    finally:
        os.close(reader)
    assert pipes[2].read_text() == "a file"
    assert not pipes[3].exists()
