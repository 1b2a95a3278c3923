"""Two machines, and what decides is a fact of the second: it is found there, and supports nothing on the first."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.look import Leftover, Lock
from firstlight.core.record import to_json
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty, GapReason, Phase
from firstlight.diagnose import merge, reported, state
from firstlight.diagnose.scene import scene_of
from firstlight.report.markdown import markdown
from firstlight.testing.bundles import (
    GB,
    Made,
    bundle,
    file,
    gpu,
    host,
    interface,
    line,
    ordinary_facts,
    place,
    rank,
    socket,
)

BARRIER = ("barrier (torch/distributed/distributed_c10d.py:5356)", "load (vllm/v1/worker/gpu_worker.py:300)")
MEETS = (
    "_create_c10d_store (torch/distributed/rendezvous.py:190)",
    "init_process_group (torch/distributed/distributed_c10d.py:1760)",
)
LOADS = ("_copy (torch/_tensor.py:900)", "load_weights (vllm/model_executor/model_loader/weight_utils.py:500)")
BATON = (
    "wait (torch/utils/file_baton.py:49): time.sleep(self.wait_seconds)",
    "_jit_compile (torch/utils/cpp_extension.py:2140)",
)
BUFFER = (
    "_create_shm_buffer (vllm/distributed/shm_buffer.py:20)",
    "SharedMemory (multiprocessing/shared_memory.py:9)",
)
NICS = (interface("lo", "127.0.0.1", kind="loopback"), interface("eth1", "10.0.0.3"))
WAITS_FOR_PAGE = {"state": "D", "kernel": ("folio_wait_bit_common", "filemap_fault"), "syscall": "none"}
SHARD = file("/mnt/m/model-00001-of-00030.safetensors", filesystem="nfs4")
XID = "NVRM: Xid (PCI:0000:10:00): 79, pid=4101, GPU has fallen off the bus."
LOCK = Lock(kind="file", path="/root/.cache/torch_extensions/op/lock", holder=0, age_s=90_000.0)


class Stall(NamedTuple):
    """A stall of one machine: who stands where, and the facts of the machine without which that tells nothing."""

    rank: Made
    facts: dict[str, object]


STALLS = {
    "wrong_interface": Stall(
        rank(1, stack=MEETS), {"host": host(interfaces=NICS), "environment": {"GLOO_SOCKET_IFNAME": "eth0"}}
    ),
    "shm_too_small": Stall(
        rank(1, stack=BUFFER),
        {
            "host": host(shm_bytes=64 << 20, shm_used_bytes=64 << 20),
            "log": [line("OSError: No space left on device: '/dev/shm/psm_1'", level="ERROR")],
        },
    ),
    "slow_storage": Stall(
        rank(1, stack=LOADS, **WAITS_FOR_PAGE),
        {"phase": Phase.WEIGHTS, "host": host(places=(place("weights", "/mnt/m", filesystem="nfs4"),))},
    ),
    "rendezvous_unreachable": Stall(
        rank(1, files=[socket("10.0.0.3:7", "10.5.5.5:29500", state="SYN_SENT")]),
        {"environment": {"MASTER_ADDR": "10.5.5.5", "MASTER_PORT": "29500"}},
    ),
    "ulimit": Stall(
        rank(1, facts=ordinary_facts(nofile=1024)),
        {"log": [line("OSError: [Errno 24] Too many open files", level="ERROR")]},
    ),
    "gpu_fault": Stall(rank(1), {"kernel_log": [XID]}),
    "stale_jit_lock": Stall(
        rank(1, stack=BATON, syscall="clock_nanosleep(0x1, 0x0)"), {"locks": [LOCK], "phase": Phase.IMPORT}
    ),
}


def on(name: str, of: Bundle, node: int, nodes: int = 2) -> Bundle:
    return replace(of, host=replace(of.host, name=name), node=node, nodes=nodes)


def waits() -> Made:
    """A rank that is where it should be."""
    return rank(0, stack=BARRIER)


def judged(given: Bundle, cause: str) -> list[Finding]:
    return [one for one in state(given).findings if one.id == cause]


@pytest.mark.parametrize("cause", STALLS)
def test_a_fact_of_the_second_machine_decides_there(cause: str) -> None:
    stall = STALLS[cause]
    facts = {"phase": Phase.RENDEZVOUS, **stall.facts}
    first = bundle(waits(), phase=facts["phase"])
    found = judged(merge([on("node-a", first, 0), on("node-b", bundle(stall.rank, **facts), 1)]), cause)
    assert [one.verdict for one in found] == [Certainty.ESTABLISHED]
    assert "on node-b" in found[0].title
    assert "node-a" not in " ".join((found[0].title, *found[0].evidence))
    assert all(pid >= PIDS_A_NODE for pid in found[0].pids)


@pytest.mark.parametrize("cause", STALLS)
def test_a_fact_of_the_first_machine_decides_nothing_on_the_second(cause: str) -> None:
    """The same facts, but those who stand in such a place are on the other machine, which lacks nothing. What the
    first says of itself stays true of it."""
    stall = STALLS[cause]
    facts = {"phase": Phase.RENDEZVOUS, **stall.facts}
    first, second = bundle(waits(), **facts), bundle(stall.rank, phase=facts["phase"])
    found = judged(merge([on("node-a", first, 0), on("node-b", second, 1)]), cause)
    for one in found:
        if one.verdict == Certainty.ESTABLISHED:
            assert one.title.endswith("on node-a")
            assert "node-b" not in " ".join(one.evidence)
            assert all(pid < PIDS_A_NODE for pid in one.pids)


def test_machines_of_which_the_same_is_true_are_told_in_one_finding() -> None:
    facts = STALLS["shm_too_small"].facts
    given = [on(f"node-{n}", bundle(rank(n, stack=BUFFER), **facts), n, nodes=5) for n in range(5)]
    found = judged(merge(given), "shm_too_small")
    assert [one.title for one in found] == [
        "shared memory (/dev/shm) is too small or full on node-0, node-1, node-2 and 2 more"
    ]
    assert any(one.startswith("node-1: /dev/shm: ") for one in found[0].evidence)


def test_a_verdict_is_that_of_the_machine_where_it_is_worst() -> None:
    """Nothing of the kind on the first machine, and a question that nobody could ask on the second."""
    unseen = Gap(what="kernel log", reason=GapReason.NO_PERMISSION, detail="be root")
    given = [on("a", bundle(rank(0)), 0), on("b", bundle(rank(1), kernel_log=unseen, gpus=unseen), 1)]
    assert dict(state(merge(given)).weighed)["host_memory_pin"] in {"not examined", "not seen"}
    assert dict(state(merge(given[::-1])).weighed) == dict(state(merge(given)).weighed)


def two_machines() -> Bundle:
    leftover = Leftover(pid=77, name="vllm", state="S", age_s=9.0, holds=("GPU 0",))
    translated = host(topology=Topology(iommu="on", acs=(), bar1_bytes=GB))
    first = bundle(rank(0, stack=BARRIER), gpus=(gpu(0),), environment={"A": "1"})
    second = bundle(rank(1, stack=BARRIER), gpus=(gpu(0),), host=translated, leftovers=(leftover,))
    return merge([on("node-a", first, 0), on("node-b", second, 1)])


def test_every_machine_keeps_its_facts() -> None:
    merged = two_machines()
    first, second = merged.machines
    assert (first.host.topology.iommu, second.host.topology.iommu) == (host().topology.iommu, "on")
    assert first.variable("A") == "1"
    assert second.variable("A") == ""
    leftovers = second.looks[-1].leftovers
    assert isinstance(leftovers, tuple)
    assert [one.pid for one in leftovers] == [PIDS_A_NODE + 77]
    assert merged.host.cpus == 2 * first.host.cpus
    assert isinstance(merged.host.shm_bytes, Gap)


def test_a_scene_has_a_part_for_each_machine() -> None:
    scene = scene_of(two_machines())
    assert [one.bundle.host.name for one in scene.machines] == ["node-a", "node-b"]
    assert [[each.rank for each in one.standings] for one in scene.machines] == [[0], [1]]
    assert all(one.whole is scene for one in scene.machines)
    alone = scene_of(bundle(rank(0)))
    assert alone.machines == (alone,)
    assert alone.whole is alone


def test_a_merged_bundle_comes_back_as_it_was_written() -> None:
    merged = two_machines()
    again = read_bundle(to_json(merged))
    assert again == merged
    assert reported(again) == reported(merged)


def test_the_report_shows_the_environment_of_every_machine() -> None:
    report = reported(two_machines())
    rows = dict(report.environment)
    assert rows["GPU"] == "1 x NVIDIA H100 80GB HBM3"
    iommus = [value for name, value in report.environment if name == "IOMMU"]
    assert "on (on node-b)" in iommus
    assert "on (on node-b)" in markdown(report)


def test_locks_of_the_same_path_on_two_machines_are_two() -> None:
    polls = {"stack": BATON, "syscall": "clock_nanosleep(0x1, 0x0)"}
    given = [on(f"node-{n}", bundle(rank(n, **polls), locks=[LOCK]), n) for n in range(2)]
    graph = state(merge(given)).graph
    labels = sorted(one.label for one in graph.nodes if one.kind == "lock")
    assert labels == [f"lock file {LOCK.path} on node-{n}" for n in range(2)]
    assert len({edge.target for edge in graph.edges if edge.kind == "lock_file"}) == 2
