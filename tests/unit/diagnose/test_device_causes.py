"""Causes of the device family, one clue at a time: what decides, and what looks alike and must not."""

import pytest
from msgspec.structs import replace

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.facts import Library
from firstlight.core.gpu import GpuProcess
from firstlight.core.host import Topology
from firstlight.core.look import Futex, Listener
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.statement import state
from firstlight.diagnose.weigh import weigh
from firstlight.testing.bundles import (
    GB,
    NO_PTRACE,
    Moves,
    bundle,
    compiler,
    cuda_libraries,
    device,
    ended,
    engine,
    front,
    gpus,
    helper,
    host,
    line,
    ordinary_facts,
    process,
    rank,
    ranks,
    socket,
)

GATHERS = ("all_gather (torch/distributed/distributed_c10d.py:3500)", "forward (/srv/model.py:10)")
REDUCES = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "forward (/srv/model.py:20)")
PRIVATE_WAIT = "futex(0x7f00, 0x80, 0x2, 0x0, 0x0, 0x0)"
FORKED = ordinary_facts(forked=True, parent_threads=30)


def verdict(of: Bundle, cause: str, *, before: bool = False) -> str:
    said = weigh(scene_of(of), all_causes(), before=before)
    told = {finding.id: finding.verdict for finding in said.findings}
    return told.get(cause) or dict(said.others).get(cause, "not asked")


def call(
    number: int, group: str, sequence: int, operation: str = "nccl:all_reduce", **more: object
) -> CollectiveCall:
    told = {"state": "started", "input_sizes": ((8, 16),), "output_sizes": ((8, 16),), "dtype": "Float", **more}
    return CollectiveCall(rank=number, group=group, sequence=sequence, operation=operation, **told)  # type: ignore[arg-type]


def two(calls: tuple[CollectiveCall, ...], **more: object) -> Bundle:
    return bundle(front(), engine(), helper(), ranks(2, stack=REDUCES, **more), collectives=calls)


@pytest.mark.parametrize(
    "second",
    [
        call(1, "tp", 7, "nccl:_all_gather_base"),
        call(1, "tp", 7, input_sizes=((8, 32),)),
        call(1, "tp", 7, dtype="Half"),
    ],
    ids=["operation", "sizes", "type"],
)
def test_the_same_call_that_differs_is_a_mismatch(second: CollectiveCall) -> None:
    assert verdict(two((call(0, "tp", 7), second)), "mismatched_collective") == "established"


@pytest.mark.parametrize(
    "calls",
    [
        (call(0, "tp", 7), call(1, "tp", 7)),
        (call(0, "tp", 7), call(1, "tp", 6)),
        (call(0, "tp", 7, state="completed"), call(1, "tp", 7, "nccl:broadcast", state="completed")),
        (call(0, "pp", 7, "nccl:send 0->1"), call(1, "pp", 7, "nccl:recv 0<-1")),
        (call(0, "tp", 7, "nccl:all_to_all"), call(1, "tp", 7, "nccl:all_to_all", input_sizes=((4, 16),))),
        (call(0, "tp", 7), call(0, "tp", 7, input_sizes=((9, 9),))),
    ],
    ids=["alike", "one is behind", "all is over", "send meets recv", "uneven by design", "two servers' rank 0"],
)
def test_calls_that_may_differ_are_no_mismatch(calls: tuple[CollectiveCall, ...]) -> None:
    assert verdict(two(calls), "mismatched_collective") == "not seen"


def test_ranks_that_wait_for_each_other_in_two_groups_are_a_mismatch() -> None:
    begun = tuple(call(number, group, 3, state="completed") for number in (0, 1) for group in ("tp", "dp"))
    across = (*begun, call(0, "tp", 4), call(1, "dp", 4))
    assert verdict(two(across), "mismatched_collective") == "established"
    assert verdict(two(across, cpu=0.4), "mismatched_collective") == "not seen"  # somebody still works
    assert verdict(two((*across, call(0, "dp", 4))), "mismatched_collective") == "not seen"


def test_frozen_counts_that_differ_support_a_mismatch() -> None:
    apart = Communicator(id="c1", ranks=2, counts=((0, 41), (1, 40)))
    assert verdict(bundle(ranks(2, stack=REDUCES), communicators=[apart]), "mismatched_collective") == "supported"
    even = replace(apart, counts=((0, 41), (1, 41)))
    assert verdict(bundle(ranks(2, stack=REDUCES), communicators=[even]), "mismatched_collective") == "not seen"


def test_a_lock_that_nobody_can_release_after_a_fork_is_told() -> None:
    at_lock = {"native": ("__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "?? (libgomp.so.1)")}
    alone = bundle(front(), rank(0, facts=FORKED, syscall=PRIVATE_WAIT, **at_lock))
    assert verdict(alone, "fork_in_threads") == "supported", "it may have taken the lock twice itself"
    orphaned = bundle(front(), rank(0, facts=FORKED, futex=Futex(address=1, orphan=99), threads=()))
    assert verdict(orphaned, "fork_in_threads") == "established"
    spawned = bundle(front(), rank(0, syscall=PRIVATE_WAIT, **at_lock))
    assert verdict(spawned, "fork_in_threads") == "not seen"


def test_a_forked_process_that_waits_for_an_event_is_not_stuck_on_a_lock() -> None:
    waits = ("wait (threading.py:331)", "main (/srv/serve.py:9)")
    assert verdict(bundle(rank(0, facts=FORKED, syscall=PRIVATE_WAIT, stack=waits)), "fork_in_threads") == "not seen"


def test_a_numa_warning_alone_is_not_the_cause_of_a_stall_elsewhere() -> None:
    facts = ordinary_facts(capabilities=("chown",), seccomp=2)
    warned = [line("numa_migrate_pages failed. errno: 1", level="WARNING")]
    elsewhere = bundle(rank(0, stack=REDUCES, facts=facts), log=warned)
    assert verdict(elsewhere, "numa_binding") == "not seen"
    at_it = bundle(rank(0, stack=("init_cpu_threads_env (vllm/cpu_worker.py:9)",), facts=facts), log=warned)
    assert verdict(at_it, "numa_binding") == "established"


def test_a_gpu_error_counts_only_for_a_gpu_of_this_server() -> None:
    told = ["NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus."]
    ours = tuple(replace(card, processes=(GpuProcess(pid=4100, here=True),)) for card in gpus(1))
    theirs = tuple(replace(card, processes=(GpuProcess(pid=77, here=True),)) for card in gpus(1))
    assert verdict(bundle(rank(0), gpus=ours, kernel_log=told), "gpu_fault") == "established"
    assert verdict(bundle(rank(0), gpus=theirs, kernel_log=told), "gpu_fault") == "supported"


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_an_event_that_a_program_causes_is_no_fault_of_the_gpu(number: int) -> None:
    told = [f"NVRM: Xid (PCI:0000:10:00): {number}, pid=4100, name=python"]
    assert verdict(bundle(rank(0), gpus=gpus(1), kernel_log=told), "gpu_fault") == "not seen"


def test_different_builds_of_nccl_support_a_version_problem() -> None:
    own, other = cuda_libraries(), list(cuda_libraries())
    other[-1] = replace(other[-1], path="/usr/lib/libnccl.so.2", build="b2")
    mixed = bundle(
        rank(0, stack=REDUCES, facts=ordinary_facts(libraries=own)),
        rank(1, stack=REDUCES, facts=ordinary_facts(libraries=other)),
    )
    assert verdict(mixed, "nccl_version") == "supported"
    assert verdict(bundle(ranks(2, stack=REDUCES)), "nccl_version") == "not seen"


def test_two_mpi_libraries_count_where_somebody_is_in_mpi() -> None:
    folders = ("/opt/conda/lib/libmpi.so.40", "/usr/lib/x86_64-linux-gnu/libmpich.so.12")
    facts = ordinary_facts(libraries=[Library(path=path, kind="mpi") for path in folders])
    in_mpi = ("<module> (mpi4py/MPI.py:1)", "init (/srv/run.py:3)")
    assert verdict(bundle(ranks(2, stack=in_mpi, facts=facts)), "mpi_mismatch") == "supported"
    assert verdict(bundle(ranks(2, stack=REDUCES, facts=facts)), "mpi_mismatch") == "not seen"


def test_graphs_that_do_not_end() -> None:
    replays = {
        "native": ("?? (libcuda.so.1)", "cuGraphLaunch (libcuda.so.1)"),
        "stack": ("replay (torch/cuda/graphs.py:90)",),
    }
    assert verdict(bundle(ranks(2, **replays), phase=Phase.SERVING), "graph_replay") == "supported"
    eager = bundle(ranks(2, **replays), phase=Phase.SERVING, options={"enforce-eager": ()})
    assert verdict(eager, "graph_replay") == "excluded"
    registers = ("register_graph_buffers (vllm/custom_all_reduce.py:200)", "capture (vllm/custom_all_reduce.py:180)")
    captures = ("capture_model (vllm/gpu_model_runner.py:5000)",)
    split = bundle(rank(0, stack=registers), rank(1, stack=captures), phase=Phase.GRAPH_CAPTURE)
    assert verdict(split, "graph_capture") == "supported"
    assert verdict(bundle(ranks(2, stack=captures), phase=Phase.GRAPH_CAPTURE), "graph_capture") == "not seen"


def test_bytes_that_stay_unconfirmed_support_a_dropped_connection() -> None:
    def waits(unsent: int, peer: str) -> Bundle:
        files = [socket("10.0.0.2:4000", peer, unsent=unsent)]
        return bundle(rank(0, stack=REDUCES, files=files), phase=Phase.SERVING, nodes=2)

    assert verdict(waits(4096, "10.0.0.9:5000"), "idle_connection_drop") == "supported"
    assert verdict(waits(0, "10.0.0.9:5000"), "idle_connection_drop") == "not seen"
    assert verdict(waits(4096, "127.0.0.1:5000"), "idle_connection_drop") == "not seen"


def test_unequal_memory_is_a_cause_where_the_engine_refuses_it() -> None:
    cards = tuple(replace(card, memory_used_bytes=(2 + 30 * card.index) * GB) for card in gpus(2))
    refused = [
        line("The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", level="ERROR")
    ]
    assert verdict(bundle(ranks(2), gpus=cards, log=refused), "gpu_memory_imbalance") == "established"
    assert verdict(bundle(ranks(2), gpus=cards), "gpu_memory_imbalance") == "not seen"
    assert verdict(bundle(ranks(2), gpus=cards), "gpu_memory_imbalance", before=True) == "supported"


def test_a_script_that_a_child_still_imports_is_not_run_again() -> None:
    within = (
        "__init__ (vllm/v1/engine/core_client.py:500)",
        "<module> (vllm/entrypoints/llm.py:10)",
        "_call_with_frames_removed (<frozen importlib._bootstrap>:241)",
        "<module> (/srv/run.py:1)",
        "_fixup_main_from_path (multiprocessing/spawn.py:297)",
    )
    child = process(4050, "python", stack=within)
    assert verdict(bundle(front(), child, phase=Phase.IMPORT), "missing_main_guard") == "not seen"


def test_gpu_users_that_fork_are_told_only_where_the_child_uses_a_gpu() -> None:
    parent = front(files=[device("/dev/nvidia-uvm")])
    idle = rank(0, facts=FORKED, ppid=4000, stack=("recv (multiprocessing/connection.py:430)", "loop (/srv/a.py:3)"))
    assert verdict(bundle(parent, idle), "fork_after_cuda") == "not seen"
    at_cuda = rank(0, facts=FORKED, ppid=4000, native=("?? (libcuda.so.1)", "cuInit (libcuda.so.1)"))
    assert verdict(bundle(parent, at_cuda), "fork_after_cuda") == "supported"


def test_a_transport_that_reports_errors_is_told_while_ranks_wait() -> None:
    told = [line("NCCL WARN NET/IB : Got completion from peer 10.0.0.9 with status=12 error", level="WARNING")]
    assert verdict(bundle(rank(0, stack=GATHERS), log=told, nodes=2), "nccl_transport_bug") == "supported"
    assert verdict(bundle(rank(0, stack=GATHERS), nodes=2), "nccl_transport_bug") == "not seen"


def test_what_is_foreseen_is_asked_before_a_start_only() -> None:
    preloaded = bundle(host=host(preload=("/usr/local/vgpu/libvgpu.so",)))
    assert verdict(preloaded, "preload_shim", before=True) == "supported"
    assert verdict(preloaded, "preload_shim") != "supported"


def test_ranks_that_only_make_a_communicator_are_unknown_with_what_to_collect() -> None:
    makes = (
        "ncclCommInitRank (vllm/pynccl_wrapper.py:440)",
        "__init__ (vllm/pynccl.py:140)",
        "worker (/srv/w.py:1)",
    )
    said = state(bundle(front(), engine(), ranks(4, stack=makes), phase=Phase.COMM_INIT, gpus=gpus(4)))
    assert not [one for one in said.findings if one.verdict in {"established", "supported"}]
    assert any("NCCL_DEBUG=INFO" in step for step in said.next_steps)
    assert any("NCCL_P2P_DISABLE=1" in step for step in said.next_steps)


def test_a_profiler_that_stands_in_for_waits_of_libc_blocks_nothing() -> None:
    profiler = Library(path="/opt/nsys/libToolsInjectionOSRT64.so", kind="profiler", preloaded=True)
    facts = ordinary_facts(libraries=(*cuda_libraries(), profiler))
    waits = (
        "futex_wait (libc.so.6)",
        "pthread_cond_wait (libToolsInjectionOSRT64.so)",
        "?? (libcuda.so.1)",
        "cuStreamSynchronize (libcuda.so.1)",
    )
    assert verdict(bundle(rank(0, stack=REDUCES, native=waits, facts=facts)), "preload_shim") == "supported"
    own = ("futex_wait (libc.so.6)", "?? (libvgpu.so)", "cuMemAlloc_v2 (libvgpu.so)", "?? (libcudart.so.12)")
    vgpu = ordinary_facts(libraries=[Library(path="/vgpu/libvgpu.so", kind="profiler", preloaded=True)])
    assert verdict(bundle(rank(0, stack=REDUCES, native=own, facts=vgpu)), "preload_shim") == "established"


def test_a_bootstrap_port_of_another_machine_is_not_ours_to_open() -> None:
    def asks(where: str) -> Bundle:
        return bundle(
            rank(0, files=[socket("10.0.0.2:5000", f"{where}:8998", state="SYN_SENT")]),
            options={"disaggregation-mode": "prefill"},
            listeners=[Listener(host="0.0.0.0", port=30000, pid=4100)],
        )

    assert verdict(asks("10.0.0.2"), "pd_handshake") == "established"
    assert verdict(asks("10.0.0.77"), "pd_handshake") == "not seen"


def test_an_old_nccl_is_not_blamed_while_a_compiler_works() -> None:
    captures = ("capture (sglang/cuda_graph_runner.py:500)",)
    facts = ordinary_facts(libraries=cuda_libraries(nccl="2.21.5"))
    those = ranks(2, stack=captures, facts=facts)
    assert verdict(bundle(those, phase=Phase.GRAPH_CAPTURE), "nccl_version") == "supported"
    busy = compiler(moves=Moves(written_bytes=GB))
    assert verdict(bundle(those, busy, phase=Phase.GRAPH_CAPTURE), "nccl_version") == "not seen"


def test_peers_are_not_blamed_for_a_rank_that_has_gone_or_was_stopped() -> None:
    acs = host(topology=Topology(iommu="on", acs=("0000:00:01.1",), bar1_bytes=32 * GB))
    cards = gpus(2, fabric="not supported", utilisation=100.0)
    both = bundle(ranks(2, stack=REDUCES), host=acs, gpus=cards)
    assert verdict(both, "nccl_p2p_pcie") == "supported"
    stopped = bundle(rank(0, stack=REDUCES), rank(1, stack=REDUCES, state="T"), host=acs, gpus=cards)
    assert verdict(stopped, "nccl_p2p_pcie") == "not seen"
    gone = bundle(ranks(2, stack=REDUCES), host=acs, gpus=cards, exits=[ended(rank(2), signal=9)])
    assert verdict(gone, "nccl_p2p_pcie") == "not seen"


def test_a_thread_that_stays_in_the_driver_is_told_even_where_only_the_kernel_function_is_seen() -> None:
    stuck = bundle(rank(0, state="D", wchan="os_acquire_rwlock_read", kernel=NO_PTRACE))
    assert verdict(stuck, "gpu_fault") == "supported"
    pins = bundle(rank(0, state="D", kernel=("pin_user_pages_fast", "nvidia_ioctl [nvidia]")))
    assert verdict(pins, "gpu_fault") == "not seen"


def test_ranks_that_nccl_itself_cannot_reach_are_told() -> None:
    def reports(**lost: tuple[int, ...]) -> Bundle:
        return bundle(ranks(2, stack=REDUCES), communicators=[Communicator(id="c1", ranks=4, **lost)])

    assert verdict(reports(dead=(3,)), "nccl_rank_lost") == "supported"
    assert verdict(reports(unresponsive=(3,)), "nccl_rank_lost") == "supported"
    assert verdict(reports(), "nccl_rank_lost") == "not seen"


def test_a_gpu_that_is_busy_without_working_and_alone_has_a_kernel_that_hangs() -> None:
    waits = {
        "stack": ("synchronize (torch/cuda/__init__.py:1090)",),
        "native": ("cuStreamSynchronize (libcuda.so.1)",),
    }
    busy = gpus(1, utilisation=100.0)
    assert verdict(bundle(rank(0, **waits), gpus=busy), "kernel_hang_sm") == "supported"
    assert verdict(bundle(rank(0, **waits), gpus=busy, nodes=2), "kernel_hang_sm") == "not seen"
    assert verdict(bundle(ranks(2, **waits), gpus=busy), "kernel_hang_sm") == "not seen"
    works = gpus(1, utilisation=100.0, memory_activity=60.0, power_w=600.0)
    assert verdict(bundle(rank(0, **waits), gpus=works), "kernel_hang_sm") == "not seen"
