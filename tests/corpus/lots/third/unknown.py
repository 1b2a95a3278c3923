"""Machines of the third lot that stand still for a reason that nobody found, or that could not be seen."""

from tests.corpus.surroundings import (
    BROADCAST_LINE,
    IDLE_WORKER,
    IN_COMM_INIT,
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
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    bundle,
    engine,
    front,
    gpus,
    host,
    line,
    ordinary_facts,
    process,
    rank,
)

UNSEEN = Gap(what="PCI bridges", reason=GapReason.NOT_SUPPORTED, detail="a virtual machine shows its own")


def read_by_nobody() -> Bundle:
    reads = (
        "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:802)",
        "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:850)",
        "get_response (vllm/v1/executor/multiproc_executor.py:390)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    return bundle(
        front(), engine(stack=reads), worker(0, IDLE_WORKER), phase=Phase.SERVING, nodes=4,
        host=host(cpu_arch="aarch64"), gpus=gpus(1, name="NVIDIA GB10", architecture="121"), log=[BROADCAST_LINE],
    )  # fmt: skip


def each_for_the_other() -> Bundle:
    reads = (
        "poll (zmq/sugar/poll.py:106)",
        "recv (vllm/distributed/device_communicators/shm_broadcast.py:802)",
        "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:794)",
    )
    core = (
        *reads,
        "get_response (vllm/v1/executor/multiproc_executor.py:387)",
        "step_with_batch_queue (vllm/v1/core.py:590)",
    )
    return bundle(
        front(),
        engine(stack=core, syscall="poll(0x7f, 0x1, 0xffffffff)"),
        worker(0, (*reads, "worker_busy_loop (vllm/v1/executor/ray_executor_v2.py:300)"), syscall="poll(0x7f, 0x1)"),
        phase=Phase.SERVING,
        nodes=2,
        gpus=gpus(1),
    )


def inductor() -> Bundle:
    stack = (
        "wait (threading.py:327)",
        "result (concurrent/futures/_base.py:451)",
        "_wait_futures (torch/_inductor/async_compile.py:420)",
        "compile_to_module (torch/_inductor/graph.py:2100)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:1500)",
        "run_engine_core (vllm/v1/engine/core.py:400)",
    )
    pool = process(
        4300, "python", role=Role.COMPILER, ppid=4050, stack=["read (torch/_inductor/compile_worker/pool.py:60)"],
        syscall="read(0x5, 0x7f, 0x10)", facts=ordinary_facts(libraries=()),
    )  # fmt: skip
    return bundle(front(), engine(stack=stack), pool, phase=Phase.COMPILE, gpus=gpus(1, name="NVIDIA A10G"))


def other_node() -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "all_reduce (vllm/distributed/device_communicators/pynccl.py:168)",
        "profile_run (vllm/worker/model_runner.py:1200)",
        WORKER_MAIN,
    )
    card = gpus(1, name="NVIDIA A100 80GB PCIe", architecture="80", power_limit_w=300.0)
    return vllm(
        worker(0, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.WARMUP,
        nodes=2,
        gpus=spinning(card, 72),
        log=[line("Directly load the compiled graph for shape None from the cache", source="Worker_TP0", number=0)],
    )


def shmem() -> Bundle:
    stack = (
        "internode_dispatch (deep_ep/buffer.py:490)",
        "dispatch (deep_ep/buffer.py:377)",
        "test_main (/home/u/DeepEP/tests/test_internode.py:138)",
    )
    cards = gpus(8)
    return bundle(
        [rank(n, name="python", stack=stack, state="R", cpu=1.0, ppid=FRONT) for n in range(8)],
        engine="generic",
        phase=Phase.WARMUP,
        nodes=2,
        gpus=spinning(cards, 190, memory=3.0),
    )


def decode_side() -> Bundle:
    return sglang(
        scheduler(
            0,
            (
                "recv_requests (sglang/srt/managers/scheduler.py:1100)",
                "event_loop_overlap_disagg_decode (sglang/srt/disaggregation/decode.py:800)",
                SCHEDULER_MAIN,
            ),
        ),
        phase=Phase.SERVING,
        gpus=gpus(1, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942"),
        options={"disaggregation-mode": "decode"},
        question="no token within 60 s",
        listeners=[Listener(host="0.0.0.0", port=30001, pid=FRONT)],
    )


def four_l40s() -> Bundle:
    return bundle(
        [rank(n, name="trtllm-serve", stack=NO_PTRACE, native=NO_PTRACE, ppid=FRONT) for n in range(4)],
        engine="generic",
        phase=Phase.COMM_INIT,
        gpus=pcie_gpus(4, "NVIDIA L40S", architecture="89"),
        host=host(topology=Topology(iommu="off", acs=(), bar1_bytes=64 * GB)),
        log=["[TensorRT-LLM][INFO] Rank 2 is using GPU 2"],
    )


def virtual_machine() -> Bundle:
    return bundle(
        [rank(n, name="all_reduce_perf", native=SYNCS, state="R", cpu=1.0) for n in range(8)],
        engine="generic",
        phase=Phase.WARMUP,
        gpus=spinning(pcie_gpus(8, "NVIDIA GeForce RTX 4090", architecture="89"), 90, memory=2.0),
        host=host(topology=Topology(iommu="off", acs=UNSEEN, bar1_bytes=32 * GB)),
    )


def over_rdma() -> Bundle:
    return vllm(
        workers(2, ("wait (threading.py:320)", "shutdown (vllm/v1/executor/multiproc_executor.py:500)", WORKER_MAIN)),
        phase=Phase.WARMUP,
        nodes=2,
        gpus=gpus(2),
        log=[line("RuntimeError: DeepEP error: timeout (dispatch CPU)", source="Worker_DP7", level="ERROR")],
    )


def tokenizer_actor() -> Bundle:
    return bundle(
        front(
            stack=[
                "get (ray/_private/worker.py:2770)",
                "ping (vllm/transformers_utils/tokenizer_group/ray.py:90)",
            ]
        ),
        process(4500, "ray::IDLE", role=Role.OTHER, ppid=1, memory=GB),
        phase=Phase.MODEL_INIT,
        options={"tokenizer-pool-size": "1"},
    )


def bootstrap() -> Bundle:
    return vllm(workers(2, IN_COMM_INIT, cpu=0.01), phase=Phase.COMM_INIT, gpus=gpus(2), log=[using_nccl()])
