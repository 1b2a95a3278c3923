"""Machines of the fifth lot that stand still for a reason that nobody found, or that could not be seen."""

from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    NO_PTRACE,
    bundle,
    engine,
    front,
    gpus,
    line,
    ordinary_facts,
    process,
    rank,
)

STUCK_DRIVER = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="the driver did not answer within 5 s")


def frozen() -> Bundle:
    stuck = {"state": "D", "kernel": ("rwsem_down_read_slowpath", "down_read", "do_user_addr_fault")}
    return vllm(
        workers(2, NO_PTRACE, syscall=NO_PTRACE, wchan="rwsem_down_read_slowpath", **stuck),
        phase=Phase.WEIGHTS,
        gpus=STUCK_DRIVER,
    )


def error_12() -> Bundle:
    return vllm(
        worker(0, ("all_reduce (torch/distributed/distributed_c10d.py:2900)", WORKER_MAIN), native=SYNCS),
        phase=Phase.WARMUP,
        nodes=2,
        gpus=gpus(1),
        log=[nccl_line("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", level="WARN")],
    )


def four_engines() -> Bundle:
    return bundle(
        front(),
        [process(4050 + n, "VLLM::EngineCore", stack=NO_PTRACE, role=Role.ENGINE, ppid=FRONT) for n in range(4)],
        phase=Phase.MODEL_INIT,
        options={"data-parallel-size": "4"},
        gpus=gpus(8),
    )


def waits_for_shard() -> Bundle:
    return bundle(
        process(FRONT, "text-generation", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=())),
        rank(0, name="text-generation-server", stack=NO_PTRACE, syscall=NO_PTRACE, ppid=FRONT),
        engine="generic",
        phase=Phase.WEIGHTS,
        gpus=gpus(1),
        log=[line("Waiting for shard to be ready... rank=0", ago_s=6)],
    )


def loads_unseen() -> Bundle:
    return bundle(
        front(),
        engine(stack=["load_model (vllm/model_executor/model_loader/loader.py:300)"], facts=ordinary_facts()),
        phase=Phase.WEIGHTS,
        gpus=gpus(1),
        log=[line("Starting to load model /models/llm...", source="EngineCore", ago_s=900)],
    )
