"""What GPUs and ranks still show where a part is out of sight: one rank's stack, native frames, a power limit, the
other machine. Each beside a stall that looks alike and must not be named so."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import NO_PTRACE, bundle, cuda_libraries, gpus, host, ordinary_facts, rank

FORWARD = ("forward (/srv/model.py:10)", "execute_model (vllm/v1/worker/gpu_worker.py:500)")
SYNC = ("synchronize (torch/cuda/streams.py:231)", *FORWARD)
REPLAY = ("replay (torch/cuda/graphs.py:139)", *FORWARD)
GATHER = ("all_gather (torch/distributed/distributed_c10d.py:2900)", *FORWARD)
INIT = ("ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)", *FORWARD)
CUSTOM = ("custom_all_reduce (vllm/distributed/device_communicators/custom_all_reduce.py:260)", *FORWARD)
NO_LIMIT = Gap(what="power limit", reason=GapReason.NOT_SUPPORTED, detail="N/A")
SPINS = {"utilisation": 100.0, "memory_activity": 0.0, "power_w": 120.0}
SPARK = {"name": "NVIDIA GB10", "architecture": "121"}
PROFILER = Library(path="/opt/nsight/libToolsInjection64.so", kind="profiler")


def _all_but_one(last: object, *, cpu: float = 0.0) -> Bundle:
    """Three ranks are in the engine's all-reduce, and GPUs spin."""
    there = [rank(n, stack=CUSTOM) for n in range(3)]
    return bundle(there, rank(3, stack=last, native=NO_PTRACE, cpu=cpu), gpus=gpus(4, **SPINS))


def test_a_rank_whose_stack_is_out_of_sight_does_as_the_others(judge):
    assert judge(_all_but_one(NO_PTRACE), "custom_allreduce").word == "supported"
    assert judge(_all_but_one(FORWARD), "custom_allreduce").finding is None
    assert judge(_all_but_one(NO_PTRACE, cpu=0.3), "custom_allreduce").finding is None, "it moves"


def test_most_must_be_seen(judge):
    hidden = [rank(n, stack=NO_PTRACE, native=NO_PTRACE) for n in (1, 2)]
    seen = bundle(rank(0, stack=CUSTOM), hidden, gpus=gpus(3, **SPINS))
    assert judge(seen, "custom_allreduce").finding is None


def _spark(**more: object) -> Bundle:
    """One of two machines, each with one GPU."""
    told = {"nccl": "2.28.9", "stack": SYNC, "nodes": 2, "cpu_arch": "aarch64", "gpu": {}, **more}
    facts = ordinary_facts(libraries=cuda_libraries(nccl=str(told["nccl"])))
    card = {**SPARK, "utilisation": 96.0, "memory_activity": NO_LIMIT, "power_w": 18.0, "power_limit_w": NO_LIMIT}
    return bundle(
        rank(0, stack=told["stack"], native=NO_PTRACE, facts=facts, state="R", cpu=1.0),
        nodes=told["nodes"], phase=Phase.SERVING, question="no token within 60 s",
        gpus=gpus(1, **{**card, **told["gpu"]}), host=host(cpu_arch=str(told["cpu_arch"])),
    )  # fmt: skip


@pytest.mark.parametrize("stack", [SYNC, REPLAY, GATHER])
def test_lost_slots_where_native_frames_cannot_be_had(judge, stack):
    assert judge(_spark(stack=stack), "nccl_version").word == "supported"


@pytest.mark.parametrize(
    "other",
    [
        {"nccl": "2.30.4"},
        {"cpu_arch": "x86_64"},
        {"nodes": 1},
        {"stack": INIT},
        {"stack": FORWARD},
        {"gpu": {"power_w": 71.0}},
        {"gpu": {"utilisation": 0.0}},
    ],
)
def test_no_lost_slots(judge, other):
    assert judge(_spark(**other), "nccl_version").finding is None


def _profiled(stack: object, *, all_: bool = True, moves: bool = False, phase: Phase = Phase.SERVING) -> Bundle:
    shim = ordinary_facts(libraries=(*cuda_libraries(), PROFILER))
    facts = [shim, shim if all_ else ordinary_facts()]
    there = [rank(n, stack=stack, native=NO_PTRACE, facts=facts[n], cpu=0.3 if moves else 0.0) for n in (0, 1)]
    return bundle(there, phase=phase, gpus=gpus(2))


@pytest.mark.parametrize("stack", [SYNC, REPLAY])
def test_everybody_waits_under_a_profiler(judge, stack):
    assert judge(_profiled(stack), "preload_shim").word == "supported"
    assert judge(_profiled(stack, all_=False), "preload_shim").finding is None
    assert judge(_profiled(stack, moves=True), "preload_shim").finding is None
    assert judge(_profiled(FORWARD), "preload_shim").finding is None


def test_a_shim_where_nobody_may_look(judge):
    assert judge(_profiled(NO_PTRACE, phase=Phase.COMM_INIT), "preload_shim").word == "supported"
    assert judge(_profiled(NO_PTRACE, phase=Phase.WEIGHTS), "preload_shim").finding is None
    assert judge(_profiled(NO_PTRACE, phase=Phase.COMM_INIT, all_=False), "preload_shim").finding is None
