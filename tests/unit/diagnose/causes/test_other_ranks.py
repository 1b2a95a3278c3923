"""What ranks, collectives and builds show of one mechanism in other libraries, launchers and accelerators: each
beside a stall that looks alike and must not be named so."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    NO_PTRACE,
    bundle,
    compiler,
    cuda_libraries,
    ended,
    engine,
    folder,
    front,
    gpus,
    line,
    ordinary_facts,
    process,
    rank,
    ranks,
    socket,
)

ALL_REDUCE = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "forward (/srv/model.py:20)")
FORWARD = ("forward (/srv/model.py:10)", "execute_model (vllm/v1/worker/gpu_worker.py:500)")
NATIVE_REDUCE = ("ncclAllReduce (libnccl.so.2)", "main (trtllm)")
TUNES = "benchmark_all_configs (torch/_inductor/runtime/triton_heuristics.py:900)"
TRTLLM = ("__init__ (tensorrt_llm/llmapi/llm.py:120)", "<module> (/srv/serve.py:12)")
DISPATCH = ("intranode_dispatch (deep_ep/buffer.py:400)", "forward (/srv/moe.py:20)")
COMBINE = ("low_latency_combine (deep_ep/buffer.py:700)", "forward (/srv/draft.py:30)")
CAUGHT = "Watchdog caught collective operation timeout"
DETECTED = "Exception (either an error or timeout) detected by watchdog"
MPI_INIT = ("MPI_Init_thread (mpi4py/MPI.cpython-312.so)", "<module> (/srv/serve.py:3)")


def _two(*log: str, first=ALL_REDUCE, second=ALL_REDUCE, **told: object) -> Bundle:
    said = [line(text, level="ERROR") for text in log]
    return bundle(front(), engine(), rank(0, stack=first), rank(1, stack=second), log=said, gpus=gpus(2), **told)


def _timeouts(*told: tuple[int, int, str, int], group="0(default_pg)", **more: object) -> Bundle:
    """Ranks whose watchdog gave up: rank, number of the call, operation, elements."""
    said = [
        line(text, number=number, level="ERROR")
        for number, call, operation, elements in told
        for text in (
            f"[Rank {number}] {CAUGHT}: WorkNCCL(SeqNum={call}, OpType={operation}, NumelIn={elements}, NumelOut=9)",
            f"[PG ID 0 PG GUID {group} Rank {number}] {DETECTED} at work: {call}, last enqueued NCCL work: 130",
        )
    ]
    return bundle(front(), ranks(2, stack=ALL_REDUCE), log=said, gpus=gpus(2), **more)


def _mpi(*log: str, path: str, variables=None) -> Bundle:
    facts = ordinary_facts(libraries=[Library(path=path, kind="mpi", version="4.1")], variables=variables)
    return bundle(ranks(2, stack=MPI_INIT, facts=facts), log=[line(text) for text in log])


def _side(*log: str, role="kv_producer", peer="", **options: str) -> Bundle:
    files = [socket("10.0.0.2:41022", peer, state="SYN_SENT", fd=17)] if peer else []
    config = {"kv-transfer-config": f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}'} if role else {}
    said = [line(text, level="WARNING") for text in log]
    return bundle(front(), engine(files=files), phase=Phase.SERVING, log=said, options={**config, **options})


def _lone_native(*, there: int, missing: bool) -> Bundle:
    made = [rank(number, native=NATIVE_REDUCE, stack=()) for number in range(there)]
    return bundle(front(), *made, ranks=there + missing, gpus=gpus(there))


def _launched(*log: str) -> Bundle:
    made = [rank(number, stack=ALL_REDUCE) for number in (0, 2)]
    return bundle(front(), *made, ranks=3, nodes=2, log=[line(text, level="ERROR") for text in log])


def _failed_inside(text: str) -> Bundle:
    idle = ("wait (threading.py:331)", "recv_requests (sglang/srt/managers/scheduler.py:1400)")
    return bundle(front(), rank(0, stack=ALL_REDUCE), rank(1, stack=idle), log=[line(text, number=1, level="ERROR")])


def _waits_for_baton(*, builds: bool) -> Bundle:
    told = [line("[aiter] waiting for baton release at /tmp/aiter_configs/tuned_fmoe.csv.lock", number=1)]
    made = [rank(number, stack=NO_PTRACE) for number in (0, 1)]
    return bundle(front(), *made, *([compiler()] if builds else []), log=told)


def _compiles_unseen(*, grows: int) -> Bundle:
    cache = folder("compile_cache", "/root/.triton/cache", bytes_=1 << 20, grows=grows)
    return bundle(front(), rank(0, stack=NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0), folders=[cache])


def _before_launch(*, nccl: str) -> Bundle:
    native = ("sched_yield (libc.so.6)", "ncclLaunchKernelBefore_NoUncapturedCuda (libnccl.so.2)", *NATIVE_REDUCE)
    facts = ordinary_facts(libraries=cuda_libraries(nccl=nccl))
    return bundle(front(), ranks(2, native=native, state="R", cpu=1.0, facts=facts), phase=Phase.SERVING)


def _ended_with(text: str) -> Bundle:
    return bundle(front(), log=[line(text, level="ERROR", ago_s=41)], exits=[ended(rank(0), code=1, ago_s=40)])


def _settings(*values: str) -> Bundle:
    facts = [ordinary_facts(variables={"NCCL_P2P_DISABLE": value}) for value in values]
    return bundle(front(), *(rank(at, stack=ALL_REDUCE, facts=one) for at, one in enumerate(facts)))


def _locks(*, builds: bool) -> Bundle:
    polls = (
        "blocking_acquire (tvm_ffi/utils/lockfile.py:100)",
        "__enter__ (tvm_ffi/utils/lockfile.py:120)",
        "build_inline (tvm_ffi/cpp/extension.py:500)",
    )
    lock = Lock(path="/root/.cache/tvm-ffi/op/lock", kind="flock", holder=4101, waiters=(), filesystem="ext4")
    waiter = rank(0, stack=polls, syscall="clock_nanosleep(0x1)")
    holder = rank(1, stack=FORWARD)
    return bundle(front(), waiter, holder, *([compiler()] if builds else []), locks=[lock])


def _unseen_locks(*, rest) -> Bundle:
    baton = ("wait (torch/utils/file_baton.py:50)", "load (torch/utils/cpp_extension.py:1700)")
    return bundle(front(), rank(0, stack=baton), rank(1, stack=rest), locks=NO_PTRACE)


def _spins(native: str) -> Bundle:
    return bundle(process(4100, "llama-server", native=[native, "main (llama-server)"], state="R", cpu=1.0))


def _fails(text: str) -> Bundle:
    return bundle(front(), rank(0, stack=FORWARD), log=[line(text, level="ERROR")])


SIZES = "node-a:1:1 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 peer 10.1.1.6 collective mismatch error"
FINGERPRINT = "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE"
PREAMBLE = "gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 4096 vs 64"
OMPI = {"OMPI_COMM_WORLD_SIZE": "2"}
CLOSED = "node-a:1:1 [0] misc/socket.cc:881 NCCL WARN socketProgress: Connection closed by remote peer gpu-b<41022>"
EFA = "node-a:1:1 [0] NCCL WARN NET/OFI Request completed with error. RC: 12. Error: unreachable"
UCX = "[1700.1] [gpu-a:77:0] ib_mlx5_log.c:177 UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE"
ABORTED = "mpirun noticed that process rank 1 with PID 4101 on node gpu-b exited on signal 9 (Killed)."
SRUN = "srun: error: gpu-b: task 1: Out Of Memory"
BOOTSTRAP = "KVTransferError(bootstrap_room=77): Request 77 timed out after 300.0s in KVPoll.Bootstrapping"
SIDE_CHANNEL = "10.0.0.9:5600"

WAYS = {
    "torch measures kernels": (
        "autotune", _two(first=(TUNES, *FORWARD)), _two(first=FORWARD),
    ),
    "TunableOp measures kernels": (
        "autotune",
        bundle(rank(0, native=["at::cuda::tunable::TunableOp::FindFastest (libtorch_hip.so)"], stack=FORWARD),
               rank(1, stack=ALL_REDUCE)),
        bundle(rank(0, native=["at::native::mm (libtorch_hip.so)"], stack=FORWARD), rank(1, stack=ALL_REDUCE)),
    ),
    "exchanges between experts": (
        "mismatched_collective", _two(first=DISPATCH, second=COMBINE), _two(first=DISPATCH, second=DISPATCH),
    ),
    "sizes, in NCCL's words": ("mismatched_collective", _two(SIZES), _two(CLOSED)),
    "sizes, in Gloo's words": ("mismatched_collective", _two(PREAMBLE), _two("gloo: Connection closed by peer")),
    "calls, in torch's words": ("mismatched_collective", _two(FINGERPRINT), _two("Detected no mismatch")),
    "watchdogs that gave up on different calls": (
        "mismatched_collective",
        _timeouts((0, 120, "ALLREDUCE", 64), (1, 118, "_ALLGATHER_BASE", 64)),
        _timeouts((0, 120, "ALLREDUCE", 64), (1, 120, "ALLREDUCE", 64)),
    ),
    "watchdogs that gave up on other sizes": (
        "mismatched_collective",
        _timeouts((0, 120, "ALLREDUCE", 64), (1, 120, "ALLREDUCE", 96)),
        _timeouts((0, 120, "ALLREDUCE", 64)),
    ),
    "a launcher of another MPI": (
        "mpi_mismatch",
        _mpi(path="/usr/lib/x86_64-linux-gnu/libmpich.so.12", variables=OMPI),
        _mpi(path="/usr/lib/x86_64-linux-gnu/libmpi.so.40", variables=OMPI),
    ),
    "a launcher without a common PMI": (
        "mpi_mismatch",
        _mpi("but OMPI was not built with SLURM's PMI support and therefore cannot execute", path="/l/libmpi.so.40"),
        _mpi("Open MPI v4.1.2 initialised", path="/l/libmpi.so.40"),
    ),
    "a connection to another machine that broke": (
        "nccl_rank_lost", _two(CLOSED, nodes=2), _two(CLOSED, nodes=2, exits=[ended(rank(2), code=1)]),
    ),
    "libfabric's errors": ("nccl_transport_bug", _two(EFA), _two(EFA, first=FORWARD, second=FORWARD)),
    "UCX's errors": ("nccl_transport_bug", _two(UCX), _two("UCX  INFO using rc_mlx5")),
    "an NCCL that lacks a function": (
        "nccl_version",
        bundle(front(), log=[line("libtorch_cuda.so: undefined symbol: ncclCommWindowRegister", level="ERROR")],
               exits=[ended(rank(0), code=1)]),
        bundle(front(), log=[line("libfoo.so: undefined symbol: foo_init", level="ERROR")],
               exits=[ended(rank(0), code=1)]),
    ),
    "a side channel that does not answer": (
        "pd_handshake", _side(role="kv_consumer", peer=SIDE_CHANNEL), _side(role="", peer=SIDE_CHANNEL),
    ),
    "one side's log": (
        "pd_handshake",
        _side(BOOTSTRAP, role="", **{"disaggregation-mode": "decode"}),
        _side(BOOTSTRAP.replace("Bootstrapping", "Transferring"), role=""),
    ),
    "a rank that is not there, by native frames": (
        "rank_died", _lone_native(there=2, missing=True), _lone_native(there=2, missing=False),
    ),
    "mpirun tells of a rank": ("rank_died", _launched(ABORTED), _launched("mpirun: 3 processes started")),
    "srun tells of a task": ("rank_died", _launched(SRUN), _launched("srun: job 7 has been allocated resources")),
    "a rank whose thread failed": (
        "rank_died", _failed_inside("Exception in thread Thread-3 (forward)"), _failed_inside("Slow step in thread"),
    ),
    "settings of NCCL for one rank only": (
        "nccl_version", _settings("1", "0"), _settings("1", "1"),
    ),
    "a card that cannot be opened": (
        "nccl_transport_bug", _two("NCCL WARN NET/IB : Unable to open device erdma_1"), _two("NET/IB : using mlx5_0"),
    ),
    "an NCCL whose calls in graphs deadlock": (
        "nccl_version", _before_launch(nccl="2.20.5"), _before_launch(nccl="2.22.3"),
    ),
    "a stranger at NCCL's port": (
        "nccl_transport_bug",
        _two("misc/socket.cc:484 NCCL WARN socketFinalizeAccept: wrong magic 74656d2f20544547 != 7970663b906d70b9"),
        _two("misc/socket.cc NCCL INFO socketFinalizeAccept"),
    ),
    "another engine in a script that runs again": (
        "missing_main_guard",
        bundle(front(), rank(0, stack=(*TRTLLM, "_fixup_main_from_path (multiprocessing/spawn.py:290)"))),
        bundle(front(), rank(0, stack=TRTLLM)),
    ),
    "cores outside of the container": (
        "numa_binding",
        _ended_with("sched_setaffinity failed: Invalid argument"),
        _ended_with("open failed: Invalid argument"),
    ),
    "a build lock, in the log alone": (
        "stale_jit_lock", _waits_for_baton(builds=False), _waits_for_baton(builds=True),
    ),
    "a compiler that no stack shows": ("slow_jit", _compiles_unseen(grows=9), _compiles_unseen(grows=0)),
    "a lock of TVM": ("stale_jit_lock", _locks(builds=False), _locks(builds=True)),
    "a lock that was not seen, awaited by all": (
        "stale_jit_lock", _unseen_locks(rest=ALL_REDUCE), _unseen_locks(rest=FORWARD),
    ),
    "a launcher of Triton without headers": (
        "jit_build_failure",
        _fails("subprocess.CalledProcessError: Command '['/bin/gcc', 'main.c']' returned non-zero exit status 1."),
        _fails("subprocess.CalledProcessError: Command '['/usr/bin/git']' returned non-zero exit status 1."),
    ),
    "a compiler that was killed": (
        "jit_build_failure",
        _fails("g++: fatal error: Killed signal terminated program cc1plus"),
        _fails("g++: warning: unused argument"),
    ),
    "a build for a GPU of AMD": (
        "jit_build_failure",
        _fails("error: command '/opt/rocm/bin/hipcc' failed with exit code 1"),
        _fails("command '/opt/rocm/bin/hipcc' found"),
    ),
    "a compiler as a library": (
        "jit_build_failure",
        _fails("nvrtc: error: invalid value for --gpu-architecture (-arch)"),
        _fails("nvrtc 12.8 loaded"),
    ),
    "a barrier of OpenMP": ("cpu_spin", _spins("gomp_barrier_wait (libgomp.so.1)"), _spins("ggml_mul (libggml.so)")),
}  # fmt: skip


@pytest.mark.parametrize(("cause", "seen", "twin"), WAYS.values(), ids=WAYS)
def test_a_cause_is_named_however_it_shows(judge, cause, seen, twin):
    assert judge(seen, cause).word in {"established", "supported"}
    assert judge(twin, cause).word not in {"established", "supported"}


def test_calls_of_different_groups_are_not_compared(judge):
    alone = _timeouts((0, 120, "ALLREDUCE", 64), group="3(tp)").logs
    other = _timeouts((1, 118, "ALLREDUCE", 64), group="4(dp)").logs
    both = bundle(ranks(2, stack=ALL_REDUCE), log=[one for tail in (*alone, *other) for one in tail.lines])
    assert judge(both, "mismatched_collective").word not in {"established", "supported"}
