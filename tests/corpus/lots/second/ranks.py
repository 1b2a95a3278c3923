"""Machines of the second lot: collectives that do not come together."""

from tests.corpus.surroundings import (
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    schedulers,
    sglang,
    spinning,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    bundle,
    gpus,
    host,
    rank,
)


def multicast(*, log: bool) -> Bundle:
    said = [
        nccl_line("comm 0x55 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 18000 - Init START"),
        *[
            nccl_line("NVLS Bind mem 0xac0000000 UC handle 0x7f33 MC handle 0x7f34 size 1073741824", n)
            for n in range(4)
        ],
    ]
    return bundle(
        [
            rank(n, name="all_reduce_perf", native=["?? (libcuda.so.1)", "ncclCommInitRank (libnccl.so.2)"])
            for n in range(4)
        ],
        engine="generic",
        phase=Phase.COMM_INIT,
        gpus=gpus(4),
        host=host(container="docker"),
        log=said if log else [],
    )


def custom(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:790)",
        "all_reduce (vllm/_custom_ops.py:826)",
        "all_reduce_unreg (vllm/distributed/device_communicators/custom_all_reduce.py:290)",
        "custom_all_reduce (vllm/distributed/device_communicators/custom_all_reduce.py:300)",
        "forward (vllm/model_executor/layers/linear.py:1000)",
        WORKER_MAIN,
    )
    cards = gpus(8, name="NVIDIA A100-SXM4-80GB", architecture="80")
    return vllm(
        workers(8, stack if spins else stack[4:], native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(cards, 110) if spins else cards,
        environment={"CUDA_LAUNCH_BLOCKING": "1"},
    )


def _call(number: int, sizes: tuple[int, ...], sequence: int = 4410) -> CollectiveCall:
    return CollectiveCall(
        rank=number, group="tp", sequence=sequence, operation="nccl:all_reduce", state="started",
        input_sizes=(sizes,), output_sizes=(sizes,), dtype="BFloat16", where="all_reduce (parallel_state.py:600)",
    )  # fmt: skip


def accepts(second: tuple[int, ...]) -> Bundle:
    stack = (
        "all_reduce (sglang/srt/distributed/parallel_state.py:600)",
        "forward (sglang/srt/models/deepseek_v2.py:1500)",
        "verify (sglang/srt/speculative/eagle_worker.py:700)",
        SCHEDULER_MAIN,
    )
    return sglang(
        schedulers(2, stack, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(gpus(2, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942"), 180),
        collectives=[_call(0, (12, 7168)), _call(1, second)],
    )


def swapped(*, counted: bool) -> Bundle:
    stack = (
        "all_gatherv (vllm/distributed/device_communicators/cuda_communicator.py:260)",
        "dispatch (vllm/distributed/device_communicators/all2all.py:70)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1900)",
        WORKER_MAIN,
    )
    other = ("all_reduce (vllm/distributed/device_communicators/pynccl.py:168)", *stack[2:])
    counts = ((0, 90210), (1, 90210), (2, 90227), (3, 90210))
    return vllm(
        [worker(n, stack if n == 2 and counted else other, native=SYNCS, state="R", cpu=1.0) for n in range(4)],
        phase=Phase.SERVING,
        gpus=spinning(gpus(4), 170),
        communicators=[Communicator(id="0x8f", ranks=4, counts=counts)] if counted else [],
    )
