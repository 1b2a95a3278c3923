"""Machines of the second lot that stand still for a reason that could not be seen."""

from tests.corpus.surroundings import (
    IN_COMM_INIT,
    using_nccl,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    NO_PTRACE,
    bundle,
    engine,
    front,
    gpus,
    line,
)


def core_engine() -> Bundle:
    return bundle(
        front(stack=NO_PTRACE),
        engine(stack=NO_PTRACE),
        phase=Phase.MODEL_INIT,
        gpus=gpus(4, name="NVIDIA A10G"),
        log=[line("Waiting for 1 local, 0 remote core engine proc(s) to start.", ago_s=9)],
    )


def nvls_set_up() -> Bundle:
    return vllm(workers(8, IN_COMM_INIT, cpu=0.02), phase=Phase.COMM_INIT, gpus=gpus(8), log=[using_nccl("2.19.4")])
