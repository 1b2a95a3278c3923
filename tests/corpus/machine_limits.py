"""Reports about clusters, ports, leftovers, limits, containers, shared memory, and ends from outside."""

from collections.abc import Iterable

from msgspec.structs import replace
from tests.corpus.case import Case
from tests.corpus.surroundings import WORKER_MAIN, schedulers, sglang, vllm, workers

from firstlight.core.bundle import Bundle
from firstlight.core.facts import UNLIMITED
from firstlight.core.look import Leftover, Listener
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    FIRST_RANK,
    FRONT,
    Moves,
    bundle,
    device,
    ended,
    engine,
    front,
    host,
    line,
    ordinary_cgroup,
    ordinary_facts,
    process,
)

WAITING = "Waiting for creating a placement group of specs for 150 seconds. specs=[{'GPU': 1.0}, {'GPU': 1.0}]"
TOO_MANY = "The number of required GPUs exceeds the total number of available GPUs in the placement group."

IN_COMM = (
    "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)",
    "init_device (vllm/v1/worker/gpu_worker.py:290)",
    WORKER_MAIN,
)
REG_FAILED = "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"


def _ray(said: str, *, stands: bool) -> Bundle:
    waits = [
        "wait (ray/_private/worker.py:2900)",
        "_wait_until_pg_ready (vllm/executor/ray_utils.py:180)",
        "initialize_ray_cluster (vllm/executor/ray_utils.py:330)",
    ]
    return bundle(
        front(stack=waits if stands else ["select (selectors.py:468)"]),
        phase=Phase.RENDEZVOUS,
        log=[line(said, level="WARNING", ago_s=30)] if stands else ["Connecting to existing Ray cluster"],
    )


def _taken(said: str, *, owner: int, port: int, engine_: str = "vllm") -> Bundle:
    return bundle(
        front(stack=["select (selectors.py:468)"]),
        [] if engine_ == "sglang" else engine(stack=["wait (threading.py:320)"]),
        engine=engine_,
        phase=Phase.RENDEZVOUS,
        listeners=[Listener(host="0.0.0.0", port=port, pid=owner)] if owner else [],
        log=[line(said, source="EngineCore", level="ERROR", ago_s=30)] if said else [],
    )


def _orphans(*, there: bool) -> Bundle:
    left = [
        Leftover(pid=2201, name="sglang::scheduler_TP0", state="S", age_s=8000.0, holds=("GPU 0", "/tmp/tmp_ipc_7"))
    ]
    return sglang(
        *schedulers(2, ["recv_requests (sglang/srt/managers/scheduler.py:1100)"], files=[device("/dev/nvidia0")]),
        phase=Phase.SERVING,
        leftovers=left if there else [],
    )


def _registers(*, memlock: int, capabilities: tuple[str, ...] = ()) -> Bundle:
    """Ranks whose registering of memory was refused; all have ended but one."""
    facts = ordinary_facts(memlock=memlock, capabilities=capabilities)
    failed = line(REG_FAILED, source="Worker_TP0", number=0, pid=FIRST_RANK, level="WARNING", ago_s=50)
    return vllm(
        *workers(2, IN_COMM, facts=facts, native=["ncclCommInitRank (libnccl.so.2)"]),
        phase=Phase.COMM_INIT,
        log=[failed] if memlock != UNLIMITED else [],
    )


def _threads(*, refused: int, said: bool) -> Bundle:
    group = ordinary_cgroup(pids=9990 if refused else 900, pids_max=10_000, pids_refused=refused)
    log = line(
        "pthread_create failed: Resource temporarily unavailable", source="Worker_TP3", number=3, level="ERROR"
    )
    return vllm(
        *workers(
            8, ["__init__ (vllm/v1/worker/gpu_model_runner.py:300)", WORKER_MAIN], facts=ordinary_facts(cgroup=group)
        ),
        phase=Phase.MODEL_INIT,
        log=[log] if said else [],
    )


def _unprivileged(*, capabilities: tuple[str, ...], said: bool) -> Bundle:
    facts = ordinary_facts(capabilities=capabilities, seccomp=2)
    refused = "RuntimeError: pidfd_getfd(51) failed with errno 1: Operation not permitted"
    return vllm(
        *workers(2, IN_COMM, facts=facts),
        phase=Phase.COMM_INIT,
        log=[line(refused, source="Worker_TP1", number=1, level="ERROR")] if said else [],
    )


def _channels(*devices: str) -> Bundle:
    return sglang(
        *schedulers(
            4,
            ["init_nvshmem (deep_ep/buffer.py:110)", "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)"],
        ),
        phase=Phase.COMM_INIT,
        host=host(devices=devices, container="kubernetes"),
        log=[line("nvshmem_init: NVSHMEM IBGDA init error, no IMEX channel", source="TP0", number=0, level="ERROR")],
    )


def _small_shm(*, used_mb: int, total_mb: int, refused: bool) -> Bundle:
    said = "NCCL WARN Call to posix_fallocate failed: No space left on device"
    return vllm(
        *workers(4, IN_COMM, native=["shmOpen (libnccl.so.2)", "ncclCommInitRank (libnccl.so.2)"]),
        phase=Phase.COMM_INIT,
        host=host(shm_bytes=total_mb << 20, shm_used_bytes=used_mb << 20, container="docker"),
        log=[line(said, source="Worker_TP2", number=2, level="WARNING", ago_s=60)] if refused else [],
    )


def _killed(*, signal: int, moved: bool, phase: Phase, log: Iterable[str] = ()) -> Bundle:
    """A server that somebody ended; of its processes nobody is left."""
    gone = (ended(front(), signal=signal, ago_s=2), ended(engine(), signal=9, ago_s=1))
    made = bundle(phase=phase, exits=gone, motion=Motion.MOVING if moved else Motion.STALLED, log=log, kernel_log=[])
    return replace(made, looks=())


def _impatient(*, busy: bool, log: Iterable[str]) -> Bundle:
    """Somebody gave up while the server computes, and lets it live."""
    stack = ["_warm_up (server/engine.py:300)", "main (server/__main__.py:20)"]
    return bundle(
        process(FRONT, "flash-server", stack=stack, state="R" if busy else "S", cpu=1.0 if busy else 0.0, ppid=1,
                moves=Moves(memory_bytes=80 << 20) if busy else Moves()),
        engine="generic",
        phase=Phase.WARMUP,
        motion=Motion.SLOW if busy else Motion.STALLED,
        log=log,
    )  # fmt: skip


CASES = (
    Case(
        id="aibrix-927",
        url="https://github.com/vllm-project/aibrix/issues/927",
        cause="resource_wait",
        shows="the main thread waits for a placement group, and says that it asks for more GPUs than there are",
        bundle=_ray(TOO_MANY, stands=True),
        twin=_ray(TOO_MANY, stands=False),
    ),
    Case(
        id="gpustack-5509",
        url="https://github.com/gpustack/gpustack/issues/5509",
        cause="resource_wait",
        shows="the main thread waits for a placement group, and says so",
        bundle=_ray(WAITING, stands=True),
        twin=_ray(WAITING, stands=False),
    ),
    Case(
        id="kuberay-3414",
        url="https://github.com/ray-project/kuberay/issues/3414",
        cause="resource_wait",
        shows="the main thread waits for a placement group, and says so",
        bundle=_ray(WAITING.replace("1.0", "4.0"), stands=True),
        twin=_ray(WAITING, stands=False),
    ),
    Case(
        id="gpustack-5842",
        url="https://github.com/gpustack/gpustack/issues/5842",
        cause="port_in_use",
        shows="the error says which port is not available",
        bundle=_taken(
            "ValueError: metrics_port at 40012 is not available in 30 seconds.",
            owner=0,
            port=40012,
            engine_="sglang",
        ),
        twin=_taken("", owner=0, port=40012, engine_="sglang"),
    ),
    Case(
        id="gpustack-6019",
        url="https://github.com/gpustack/gpustack/issues/6019",
        cause="port_in_use",
        shows="the first error of any rank says that an address is in use",
        bundle=_taken(
            "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.2:41877')", owner=0, port=41877
        ),
        twin=_taken("", owner=0, port=41877),
    ),
    Case(
        id="sglang-22779",
        url="https://github.com/sgl-project/sglang/issues/22779",
        cause="leftover_process",
        shows="a scheduler of an earlier run still holds a GPU of this one",
        bundle=_orphans(there=True),
        twin=_orphans(there=False),
    ),
    Case(
        id="nccltests-206",
        url="https://github.com/NVIDIA/nccl-tests/issues/206",
        cause="ulimit",
        shows="registering memory was refused, and the rank itself may lock 8 MiB",
        bundle=_registers(memlock=8 << 20),
        twin=_registers(memlock=UNLIMITED),
    ),
    Case(
        id="sparkvllm-389",
        url="https://github.com/eugr/spark-vllm-docker/issues/389",
        cause="ulimit",
        shows="registering memory was refused, and the rank may lock 64 MiB",
        bundle=_registers(memlock=64 << 20),
        twin=_registers(memlock=64 << 20, capabilities=("ipc_lock",)),
    ),
    Case(
        id="vllm-13354",
        url="https://github.com/vllm-project/vllm/issues/13354",
        cause="cgroup_pids",
        shows="a thread was refused, and the control group has refused forks",
        bundle=_threads(refused=14, said=True),
        twin=_threads(refused=0, said=True),
    ),
    Case(
        id="flashinfer-4089",
        url="https://github.com/flashinfer-ai/flashinfer/pull/4089",
        cause="container_caps",
        shows="pidfd_getfd was not permitted, and the ranks lack CAP_SYS_PTRACE",
        bundle=_unprivileged(capabilities=(), said=True),
        twin=_unprivileged(capabilities=("sys_ptrace",), said=True),
    ),
    Case(
        id="sglang-12533",
        url="https://github.com/sgl-project/sglang/issues/12533",
        cause="container_caps",
        shows="NVSHMEM fails, and the container has no IMEX channels",
        bundle=_channels("/dev/infiniband"),
        twin=_channels("/dev/infiniband", "/dev/nvidia-caps-imex-channels"),
    ),
    Case(
        id="nccl-342",
        url="https://github.com/NVIDIA/nccl/issues/342",
        cause="shm_too_small",
        shows="NCCL was refused shared memory, and /dev/shm has 64 MiB",
        bundle=_small_shm(used_mb=60, total_mb=64, refused=True),
        twin=_small_shm(used_mb=60, total_mb=64_000, refused=True),
    ),
    Case(
        id="vllm-1125",
        url="https://github.com/vllm-project/vllm/pull/1125",
        cause="shm_too_small",
        shows="/dev/shm, of 64 MiB, is nearly full while NCCL sets shared memory up",
        bundle=_small_shm(used_mb=63, total_mb=64, refused=False),
        twin=_small_shm(used_mb=2, total_mb=64, refused=False),
    ),
    Case(
        id="kserve-5062",
        url="https://github.com/kserve/kserve/issues/5062",
        cause="probe_kill",
        shows="asked to end from outside while the weights were being loaded",
        bundle=_killed(
            signal=15,
            moved=True,
            phase=Phase.WEIGHTS,
            log=["Loading safetensors checkpoint shards: 40% Completed | 12/30 [02:00<03:00, 10s/it]"],
        ),
        twin=_killed(signal=15, moved=False, phase=Phase.WEIGHTS),
        companions=frozenset({"process_died", "rank_died"}),
    ),
    Case(
        id="ollama-10517",
        url="https://github.com/ollama/ollama/issues/10517",
        cause="probe_kill",
        shows="the parent's patience ends while the counter of the load still rises",
        bundle=_impatient(
            busy=True,
            log=[
                "model load progress 0.21",
                "model load progress 0.28",
                "timed out waiting for llama runner to start - progress 0.28",
            ],
        ),
        twin=_impatient(busy=False, log=["model load progress 0.28"]),
    ),
    Case(
        id="halogen-2",
        url="https://github.com/peonist-ai/halogen-flash-server/issues/2",
        cause="probe_kill",
        shows="the wrapper says that it waits, and the server computes",
        bundle=_impatient(busy=True, log=["still loading, 1740s elapsed (the engine is alive)"]),
        twin=_impatient(busy=False, log=["loading"]),
    ),
    Case(
        id="sglang-4208",
        url="https://github.com/sgl-project/sglang/issues/4208",
        cause="probe_kill",
        shows="the router's health check is pending while the worker computes",
        bundle=_impatient(
            busy=True, log=["Worker http://10.0.0.3:30000 health check is pending with error: error sending request"]
        ),
        twin=_impatient(busy=False, log=["AUTOTUNE mm(64x4096)"]),
    ),
)
