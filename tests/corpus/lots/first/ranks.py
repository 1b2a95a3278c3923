"""Machines of the first lot: ranks that wait for each other, or for one that is gone."""

from tests.corpus.surroundings import (
    FIRST_ALL_REDUCE,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    pcie_gpus,
    scheduler,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.host import Topology
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    ended,
    front,
    gpus,
    helper,
    host,
    line,
    ordinary_cgroup,
    ordinary_facts,
    process,
)

WORKSTATION = Topology(iommu="on", acs=("0000:40:01.1", "0000:60:01.1"), bar1_bytes=96 * GB)
CLEAN = Topology(iommu="off", acs=(), bar1_bytes=96 * GB)
PRO = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


def pcie(count: int, name: str, topology: Topology, *, spins: bool, engine_: str = "vllm", **more: object) -> Bundle:
    cards = pcie_gpus(count, name, **more)
    return vllm(
        workers(count, FIRST_ALL_REDUCE, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMM_INIT,
        engine=engine_,
        host=host(topology=topology),
        gpus=spinning(cards, 38) if spins else cards,
        log=[using_nccl()],
    )


def hicache(*, killed: bool) -> Bundle:
    stack = (
        "__init__ (sglang/srt/mem_cache/memory_pool_host.py:160)",
        "init_memory_pool (sglang/srt/managers/scheduler.py:700)",
        SCHEDULER_MAIN,
    )
    facts = ordinary_facts(cgroup=ordinary_cgroup(memory_max_bytes=100 * GB, oom_kills=int(killed)))
    alive = [one for one in range(8) if one != 5 or not killed]
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *stack[1:])
    main = front(
        stack=[
            "_recv (multiprocessing/connection.py:379)",
            "recv (multiprocessing/connection.py:250)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1490)",
        ],
        syscall="read(0x2b, 0x7f3a10, 0x4)",
        label="",
    )
    return bundle(
        main,
        helper(),
        [scheduler(n, waits, native=SYNCS, state="R", cpu=1.0, facts=facts) for n in alive],
        engine="sglang",
        phase=Phase.KV_CACHE,
        ranks=8,
        gpus=gpus(8, memory_used_bytes=12 * GB),
        exits=[ended(scheduler(5, stack), signal=9, oom=True)] if killed else [],
        log=[line("Allocating 15.00 GB host memory for hierarchical KV cache.", source="TP0", number=0)],
    )


def aborted(*, dead: bool) -> Bundle:
    serves = ("recv_requests (sglang/srt/managers/scheduler.py:1400)", SCHEDULER_MAIN)
    second = scheduler(1, (), state="Z", syscall="", threads=()) if dead else scheduler(1, serves)
    return sglang(
        scheduler(0, serves, syscall="poll(0x7f41, 0x1, 0x64)"),
        second,
        phase=Phase.SERVING,
        ranks=2,
        nodes=2,
        node=1,
        gpus=gpus(2),
        question="no token within 60 s",
    )


def noexec(*, dead: bool) -> Bundle:
    main = front(
        stack=[
            "select (selectors.py:415)",
            "wait (multiprocessing/connection.py:1136)",
            "_wait_for_scheduler_ready (sglang/srt/entrypoints/engine.py:1540)",
        ],
        label="",
    )
    state = "Z" if dead else "S"
    children = [process(4100 + n, "sglang_temp_fil", state=state, ppid=FRONT, memory=0, shared=0) for n in range(2)]
    return bundle(
        main, helper(), *children, engine="sglang", phase=Phase.SPAWN, ranks=1, host=host(container="docker"),
        log=["server_args=ServerArgs(model_path='/models/llm')"],
    )  # fmt: skip


def near_the_end(*, apart: bool) -> Bundle:
    runs = "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)"
    drafts = (
        "synchronize (torch/cuda/streams.py:108)",
        "all_gatherv (vllm/distributed/device_communicators/pynccl.py:250)",
        "dispatch (vllm/distributed/device_communicators/all2all.py:60)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1900)",
        "propose (vllm/v1/spec_decode/eagle.py:300)",
        "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3500)",
        WORKER_MAIN,
    )
    skipped = (
        "all_reduce (torch/distributed/distributed_c10d.py:2900)",
        "coordinate_batch_across_dp (vllm/v1/worker/dp_utils.py:160)",
        runs,
        "execute_dummy_batch (vllm/v1/worker/gpu_worker.py:700)",
        WORKER_MAIN,
    )
    return vllm(
        worker(0, skipped if apart else drafts, syscall="epoll_wait(0x4)"),
        worker(1, drafts, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(gpus(2), 160),
        options={"data-parallel-size": "2", "enable-expert-parallel": []},
    )
