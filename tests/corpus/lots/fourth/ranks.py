"""Machines of the fourth lot: ranks that wait for each other, or for one that is gone."""

from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    ended,
    engine,
    front,
    gpus,
    line,
    ordinary_facts,
    process,
    rank,
)


def subset(*, meets: bool) -> Bundle:
    stack = (
        "rendezvous (torch/distributed/_symmetric_memory/__init__.py:1700)",
        "__init__ (vllm/distributed/device_communicators/symm_mem.py:90)",
        "__init__ (vllm/distributed/device_communicators/cuda_communicator.py:80)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1400)",
        WORKER_MAIN,
    )
    return vllm(
        workers(2, stack if meets else stack[4:], cpu=0.02),
        phase=Phase.COMM_INIT,
        environment={"CUDA_VISIBLE_DEVICES": "0,1"},
        gpus=gpus(8, name="NVIDIA B200", architecture="100"),
        log=[using_nccl("2.27.7")],
    )


def engine_gone(*, gone: bool) -> Bundle:
    core = engine(state="Z", stack=(), syscall="") if gone else engine()
    return bundle(
        front(stack=["select (selectors.py:468)", "run_forever (asyncio/base_events.py:608)"]),
        core,
        phase=Phase.SERVING,
        question="no token within 60 s",
        gpus=gpus(1, name="NVIDIA A30"),
        log=['"GET /version HTTP/1.1" 200 OK', "Running: 0 reqs, Waiting: 3 reqs"],
    )


def writes_on(*, dead: bool) -> Bundle:
    writes = (
        "acquire_write (vllm/distributed/device_communicators/shm_broadcast.py:660): sched_yield()",
        "enqueue (vllm/distributed/device_communicators/shm_broadcast.py:760)",
        "collective_rpc (vllm/v1/executor/multiproc_executor.py:330)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN)
    return bundle(
        front(),
        engine(stack=writes if dead else ["select (selectors.py:415)"], state="R" if dead else "S", cpu=1.0 * dead),
        worker(0, waits, native=SYNCS, state="R", cpu=1.0),
        [] if dead else worker(1, waits),
        phase=Phase.SERVING,
        ranks=2,
        exits=[ended(worker(1, waits), signal=6, ago_s=400)] if dead else [],
        gpus=gpus(2),
    )


def shard(*, missing: bool) -> Bundle:
    stack = (
        "init_process_group (torch/distributed/distributed_c10d.py:900)",
        "initialize_torch_distributed (text_generation_server/utils/dist.py:60)",
        "serve_inner (text_generation_server/server.py:120)",
    )
    launcher = process(FRONT, "text-generation", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=()))
    there = [
        rank(n, name="text-generation-server", stack=stack, syscall="poll(0x7f)", ppid=FRONT)
        for n in range(1 if missing else 0, 4)
    ]
    return bundle(
        launcher, there, engine="generic", phase=Phase.RENDEZVOUS, ranks=4, gpus=gpus(4, name="NVIDIA A10G"),
        log=[line("Waiting for shard to be ready... rank=0", ago_s=8)], quiet_s=14_000,
    )  # fmt: skip
