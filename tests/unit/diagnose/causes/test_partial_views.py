"""What GPUs and ranks still show where a part is out of sight: one rank's stack, native frames, a power limit, the
other machine. Each beside a stall that looks alike and must not be named so."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Lock
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    GB,
    NO_PTRACE,
    Moves,
    bundle,
    cuda_libraries,
    device,
    ended,
    engine,
    gpus,
    host,
    line,
    ordinary_facts,
    process,
    rank,
)

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


UNTOLD = Gap(what="utilisation", reason=GapReason.NOT_SUPPORTED, detail="N/A")
PCIE = {"fabric": "not supported", "nvlinks_down": 0, "nvlinks": 0}
ACS = host(topology=Topology(acs=("0000:00:01.1",), iommu="passthrough"))
GROUP = ("new_group (torch/distributed/distributed_c10d.py:5300)", *FORWARD)
KERNEL = ("fwd (/py/flash_attn/interface.py:40)", *FORWARD)
CAPTURES = ("get_graph_buffer_ipc_meta (vllm/_custom_ops.py:90)", "capture (vllm/v1/worker/runner.py:8)")
LINK = "NCCL WARN NET/IB : Got completion from peer 10.0.0.3<1> with status=12 opcode=0 (Send)"


def test_an_all_reduce_where_no_driver_tells_what_gpus_do(judge):
    there = {"gpus": gpus(2, utilisation=UNTOLD)}
    assert judge(bundle([rank(n, stack=CUSTOM) for n in (0, 1)], **there), "custom_allreduce").word == "supported"
    moves = [rank(n, stack=CUSTOM, cpu=0.3) for n in (0, 1)]
    assert judge(bundle(moves, **there), "custom_allreduce").finding is None
    idle = gpus(2, utilisation=0.0)
    assert judge(bundle([rank(n, stack=CUSTOM) for n in (0, 1)], gpus=idle), "custom_allreduce").finding is None


def test_all_gpus_spin_where_writes_are_diverted(judge):
    there = [rank(n, stack=SYNC, native=NO_PTRACE, state="R", cpu=1.0) for n in (0, 1)]
    assert judge(bundle(there, gpus=gpus(2, **SPINS, **PCIE), host=ACS), "nccl_p2p_pcie").word == "supported"
    assert judge(bundle(there, gpus=gpus(2, **SPINS, **PCIE)), "nccl_p2p_pcie").finding is None, "nothing diverts"
    linked = gpus(2, **SPINS, fabric="completed", nvlinks_down=0, nvlinks=18)
    assert judge(bundle(there, gpus=linked, host=ACS), "nccl_p2p_pcie").finding is None
    one = (*gpus(1, **SPINS, **PCIE), *gpus(2, **PCIE)[1:])
    assert judge(bundle(there, gpus=one, host=ACS), "nccl_p2p_pcie").finding is None, "one waits for the idle one"


def test_ranks_in_other_meetings(judge):
    hidden = rank(2, stack=NO_PTRACE, native=NO_PTRACE)
    apart = [rank(0, stack=GATHER), rank(1, stack=GROUP), hidden]
    assert judge(bundle(apart), "mismatched_collective").word == "supported"
    together = [rank(0, stack=GATHER), rank(1, stack=GATHER), hidden]
    assert judge(bundle(together), "mismatched_collective").finding is None
    late = [rank(0, stack=GATHER), rank(1, stack=INIT), hidden]
    assert judge(bundle(late), "mismatched_collective").finding is None


def test_a_kernel_beside_a_rank_out_of_sight(judge):
    hidden = rank(2, stack=NO_PTRACE, native=NO_PTRACE)
    cards = gpus(3, **SPINS)
    same = bundle([rank(n, stack=KERNEL) for n in (0, 1)], hidden, gpus=cards)
    assert judge(same, "kernel_hang_sm").word == "supported"
    other = bundle(rank(0, stack=KERNEL), rank(1, stack=FORWARD), hidden, gpus=cards)
    assert judge(other, "kernel_hang_sm").finding is None
    nobody = bundle([rank(n, stack=NO_PTRACE, native=NO_PTRACE) for n in range(3)], gpus=cards)
    assert judge(nobody, "kernel_hang_sm").finding is None
    assert judge(nobody, "graph_replay").finding is None


@pytest.mark.parametrize("phase", [Phase.GRAPH_CAPTURE, Phase.WARMUP])
def test_graphs_are_captured_whatever_the_log_has_come_to(judge, phase):
    apart = bundle(rank(0, stack=CAPTURES), rank(1, stack=FORWARD), phase=phase)
    assert judge(apart, "graph_capture").word == "supported"
    told = bundle(rank(0, stack=("all_gather_object (torch/distributed/c10d.py:9)",)), rank(1, stack=FORWARD))
    assert judge(told, "graph_capture").finding is None


def test_a_link_that_fails_where_nobody_may_look(judge):
    there = [rank(n, stack=NO_PTRACE, native=NO_PTRACE) for n in (0, 1)]
    assert judge(bundle(there, log=[line(LINK)], nodes=2), "nccl_transport_bug").word == "supported"
    moves = [rank(n, stack=NO_PTRACE, native=NO_PTRACE, cpu=0.3) for n in (0, 1)]
    assert judge(bundle(moves, log=[line(LINK)], nodes=2), "nccl_transport_bug").finding is None
    assert judge(bundle(there, nodes=2), "nccl_transport_bug").finding is None


def test_memory_that_is_locked_grows(judge):
    def locked(bytes_: int) -> Bundle:
        first = bundle(rank(0, facts=ordinary_facts(locked_bytes=GB)))
        last = bundle(rank(0, facts=ordinary_facts(locked_bytes=bytes_)))
        return replace(last, looks=(first.looks[0], last.looks[-1]))

    assert judge(locked(9 * GB), "host_memory_pin").word == "supported"
    assert judge(locked(GB), "host_memory_pin").finding is None


def _blind(cpu: float = 0.0, **told: object) -> Bundle:
    """Two ranks, of whom nothing but their calls may be seen."""
    there = [rank(n, stack=NO_PTRACE, native=NO_PTRACE, cpu=cpu, syscall="clock_nanosleep(0x0, 0x0)") for n in (0, 1)]
    return bundle(there, **{"phase": Phase.IMPORT, **told})


LEFT = Lock(kind="file", path="/root/.cache/torch_extensions/py311/ops/lock", holder=0, age_s=90_000.0)
HELD = Lock(kind="flock", path="/root/.cache/flashinfer/90/cached_ops/ops.lock", holder=4101)
HUB = Lock(kind="flock", path="/hub/.locks/models--m/0a.lock", holder=4101)


@pytest.mark.parametrize("lock", [LEFT, HELD])
def test_a_build_lock_where_nobody_may_look(judge, lock):
    assert judge(_blind(locks=(lock,)), "stale_jit_lock").word == "supported"
    assert judge(_blind(locks=(lock,), phase=Phase.SERVING), "stale_jit_lock").finding is None
    assert judge(_blind(locks=(lock,), cpu=0.3), "stale_jit_lock").finding is None
    builds = process(4200, "cicc", role=Role.COMPILER, cpu=1.0)
    at_work = bundle(_ranks_that_sleep(), builds, locks=(lock,), phase=Phase.IMPORT)
    assert judge(at_work, "stale_jit_lock").word != "supported"


def _ranks_that_sleep() -> list[object]:
    return [rank(n, stack=NO_PTRACE, native=NO_PTRACE, syscall="clock_nanosleep(0x0, 0x0)") for n in (0, 1)]


def test_no_build_lock(judge):
    assert judge(_blind(), "stale_jit_lock").finding is None
    assert judge(_blind(locks=(HUB,)), "stale_jit_lock").finding is None
    waits = [rank(n, stack=NO_PTRACE, native=NO_PTRACE) for n in (0, 1)]
    assert judge(bundle(waits, locks=(LEFT,), phase=Phase.IMPORT), "stale_jit_lock").finding is None


def _without(missing: int, *, phase: Phase = Phase.RENDEZVOUS, **told: object) -> Bundle:
    there = [rank(n, stack=NO_PTRACE, native=NO_PTRACE) for n in range(4) if n != missing]
    return bundle(there, phase=phase, **{"ranks": 4, **told})


def test_a_rank_that_is_not_there_where_nobody_may_look(judge):
    assert judge(_without(1), "rank_died").word == "supported"
    assert judge(_without(1, phase=Phase.IMPORT), "rank_died").finding is None, "it may be yet to start"
    assert judge(_without(1, nodes=2), "rank_died").finding is None
    assert judge(_without(9), "rank_died").finding is None


NVLS = "host:1:1 [0] NCCL INFO NVLS comm 0x1 headRank 0 nHeads 8 buffSize 1048576"


def test_the_last_words_of_nccl_where_nobody_may_look(judge):
    told = {"phase": Phase.COMM_INIT, "log": [line(NVLS)]}
    assert judge(_blind(**told), "nccl_nvls").word == "supported"
    assert judge(_blind(cpu=0.3, **told), "nccl_nvls").finding is None
    assert judge(_blind(phase=Phase.COMM_INIT), "nccl_nvls").finding is None


def test_gpus_that_spin_where_nobody_may_look(judge):
    cards = {"gpus": gpus(2, **SPINS, **PCIE), "phase": Phase.COMM_INIT}
    assert judge(_blind(host=ACS, **cards), "nccl_p2p_pcie").word == "supported"
    assert judge(_blind(**cards), "nccl_p2p_pcie").finding is None
    works = {"gpus": gpus(2, **{**SPINS, "power_w": 500.0, "memory_activity": 40.0}, **PCIE)}
    assert judge(_blind(host=ACS, **works), "nccl_p2p_pcie").finding is None


def test_a_rank_that_burns_cpu_out_of_sight_waits_where_its_gpu_spins(judge):
    seen = rank(0, stack=CUSTOM, state="R", cpu=1.0)
    hidden = rank(1, stack=NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0)
    assert judge(bundle(seen, hidden, gpus=gpus(2, **SPINS)), "custom_allreduce").word == "supported"
    works = (*gpus(1, **SPINS), *gpus(2, utilisation=0.0)[1:])
    assert judge(bundle(seen, hidden, gpus=works), "custom_allreduce").finding is None, "it may compile"
    grows = rank(1, stack=NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0, moves=Moves(memory_bytes=GB))
    assert judge(bundle(seen, grows, gpus=gpus(2, **SPINS)), "custom_allreduce").finding is None


def _forked(phase: Phase = Phase.RENDEZVOUS, *, forked: bool = True, device_: str = "/dev/nvidia-uvm") -> Bundle:
    child = rank(0, ppid=4050, stack=NO_PTRACE, native=NO_PTRACE, facts=ordinary_facts(forked=forked))
    return bundle(engine(files=[device(device_)]), child, phase=phase)


def test_a_child_of_a_fork_where_nobody_may_look(judge):
    assert judge(_forked(), "fork_after_cuda").word == "supported"
    assert judge(_forked(forked=False), "fork_after_cuda").finding is None
    assert judge(_forked(device_="/dev/nvidia0"), "fork_after_cuda").finding is None, "NVML is harmless"
    assert judge(_forked(Phase.WEIGHTS), "fork_after_cuda").finding is None


def test_two_cudas_where_nobody_may_look(judge):
    other = Library(path="/py/nvidia/cuda_runtime/lib/libcudart.so.13", kind="cuda_runtime", version="13.0")
    facts = ordinary_facts(libraries=(*cuda_libraries(), other))

    def two(phase: Phase, **more: object) -> Bundle:
        return bundle(rank(0, stack=NO_PTRACE, native=NO_PTRACE, facts=facts, **more), phase=phase)

    assert judge(two(Phase.COMM_INIT), "driver_toolkit_mismatch").word == "supported"
    assert judge(two(Phase.WEIGHTS), "driver_toolkit_mismatch").finding is None
    assert judge(two(Phase.COMM_INIT, cpu=0.3), "driver_toolkit_mismatch").finding is None


def test_a_rank_is_missing_beside_one_out_of_sight(judge):
    meets = [rank(n, stack=GATHER) for n in (0, 2)]
    hidden = rank(3, stack=NO_PTRACE, native=NO_PTRACE)
    assert judge(bundle(meets, hidden, ranks=4), "rank_died").word == "supported"
    elsewhere = rank(3, stack=FORWARD)
    assert judge(bundle(meets, elsewhere, ranks=4), "rank_died").finding is None
    assert judge(bundle(meets, rank(1, stack=GATHER), hidden, ranks=4), "rank_died").finding is None


CAPTURE = ("capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:640)", *FORWARD)


def test_everybody_captures_while_gpus_spin(judge):
    there = [rank(n, stack=CAPTURE, state="R", cpu=1.0) for n in (0, 1)]
    assert judge(bundle(there, gpus=gpus(2, **SPINS)), "graph_capture").word == "supported"
    assert judge(bundle(there, gpus=gpus(2, utilisation=0.0)), "graph_capture").finding is None
    apart = [rank(0, stack=CAPTURE), rank(1, stack=FORWARD)]
    assert judge(bundle(apart, gpus=gpus(2, **SPINS)), "graph_capture").finding is None
    options = {"enforce-eager": ""}
    assert judge(bundle(there, gpus=gpus(2, **SPINS), options=options), "graph_capture").word != "supported"


TUNES = (
    "all_reduce (torch/distributed/distributed_c10d.py:2900)",
    "choose_one (flashinfer/autotuner.py:700)",
    *FORWARD,
)


def test_a_tuner_that_waits_for_another_machine(judge):
    assert judge(bundle(rank(0, stack=TUNES), nodes=2), "autotune").word == "supported"
    assert judge(bundle(rank(0, stack=TUNES)), "autotune").finding is None
    assert judge(bundle(rank(0, stack=GATHER), nodes=2), "autotune").finding is None, "it is past the tuner"
    assert judge(bundle(rank(0, stack=TUNES, cpu=0.3), nodes=2), "autotune").finding is None


@pytest.mark.parametrize(
    ("cause", "told", "got_over"),
    [
        (
            "no_machine_code",
            "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
            "FlashAttention only supports Ampere GPUs or newer, falling back to xFormers",
        ),
        (
            "no_machine_code",
            "ptxas: error: Instruction 'tcgen05.alloc' not supported on .target 'sm_120'",
            "INFO targets: sm_90a, sm_120",
        ),
        (
            "driver_toolkit_mismatch",
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver",
            "INFO found CUDA 13.0",
        ),
        (
            "nccl_p2p_pcie",
            "RuntimeError: CUDA error: peer access is not supported between these two devices",
            "Custom allreduce is disabled: peer access is not supported between GPUs, using NCCL instead",
        ),
        (
            "mismatched_collective",
            "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
            "INFO 4 tensors were gathered",
        ),
        (
            "jit_build_failure",
            "/usr/include/cutlass/a.h:40:10: fatal error: curand_kernel.h: No such file or directory",
            "INFO found curand_kernel.h",
        ),
    ],
)
def test_what_a_process_ended_of(judge, cause, told, got_over):
    def says(text: str) -> Bundle:
        return bundle(engine(), log=[line(text, level="ERROR")], exits=[ended(rank(0), code=1)], gpus=gpus(2))

    assert judge(says(told), cause).word == "supported"
    assert judge(says(got_over), cause).finding is None


def test_helper_threads_that_poll_are_no_movement(judge):
    def apart(cpu: float, **more: object) -> Bundle:
        return bundle(rank(0, stack=GATHER, cpu=cpu, **more), rank(1, stack=GROUP))

    assert judge(apart(0.15), "mismatched_collective").word == "supported"
    assert judge(apart(0.3), "mismatched_collective").finding is None
    assert judge(apart(0.15, moves=Moves(read_bytes=GB)), "mismatched_collective").finding is None


def _fills(phase: Phase = Phase.KV_CACHE, *, read: int = 0, grows: int = 9 * GB, options: object = None) -> Bundle:
    moves = Moves(memory_bytes=grows, read_bytes=read)
    there = rank(0, stack=NO_PTRACE, native=NO_PTRACE, cpu=1.0, moves=moves)
    asked = {"hicache-size": "60"} if options is None else options
    return bundle(there, phase=phase, options=asked)


def test_a_pool_in_host_memory_that_was_asked_for(judge):
    assert judge(_fills(), "host_memory_pin").word == "supported"
    assert judge(_fills(options={}), "host_memory_pin").finding is None
    assert judge(_fills(Phase.WEIGHTS), "host_memory_pin").finding is None
    assert judge(_fills(read=9 * GB), "host_memory_pin").finding is None, "it loads"
    assert judge(_fills(grows=0), "host_memory_pin").finding is None


FIRST = "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0'"


def test_the_first_choice_of_the_engine_where_nobody_may_look(judge):
    cards = {"gpus": gpus(2, **SPINS, **PCIE), "phase": Phase.WARMUP}
    assert judge(_blind(log=[line(FIRST)], **cards), "custom_allreduce").word == "supported"
    other = FIRST.replace("CUSTOM", "SYMM_X")
    assert judge(_blind(log=[line(other)], **cards), "custom_allreduce").finding is None
    assert judge(_blind(log=[line(FIRST)], cpu=0.3, **cards), "custom_allreduce").finding is None


def test_a_shim_by_the_environment_where_maps_are_out_of_sight(judge):
    refused = Gap(what="mapped libraries", reason=GapReason.NO_PERMISSION, detail="")
    facts = [ordinary_facts(libraries=refused), ordinary_facts()]

    def meets(name: str, *, hidden: bool = True, stack: object = INIT) -> Bundle:
        there = [rank(n, stack=stack, facts=facts[0 if hidden else 1]) for n in (0, 1)]
        return bundle(there, environment={"LD_PRELOAD": name}, phase=Phase.COMM_INIT)

    assert judge(meets("/usr/lib/libvgpu.so"), "preload_shim").word == "supported"
    assert judge(meets("/usr/lib/libjemalloc.so.2"), "preload_shim").finding is None
    assert judge(meets("/usr/lib/libvgpu.so", hidden=False), "preload_shim").finding is None, "it is not there"
    assert judge(meets("/usr/lib/libvgpu.so", stack=FORWARD), "preload_shim").finding is None
