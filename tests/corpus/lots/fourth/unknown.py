"""Machines of the fourth lot that stand still for a reason that nobody found, or that could not be seen."""

from tests.corpus.lots.fourth.network import FALLBACK, LAN
from tests.corpus.surroundings import (
    IN_COMM_INIT,
    SCHEDULER_MAIN,
    SGLANG_INIT,
    SYNCS,
    WORKER_MAIN,
    pcie_gpus,
    schedulers,
    sglang,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.host import Resolved
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    bundle,
    gpus,
    host,
    interface,
    line,
    rank,
)


def mpirun() -> Bundle:
    native = ["poll (libc.so.6)", "opal_progress (libopen-pal.so.40)", "ompi_mpi_init (libmpi.so.40)"]
    return bundle(
        [rank(n, name="python", stack=["init (horovod/common/basics.py:80)"], native=native) for n in range(1)],
        engine="generic",
        phase=Phase.RENDEZVOUS,
        nodes=3,
        environment={"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0"},
        host=host(interfaces=(*LAN, interface("docker0", "172.17.0.1", kind="bridge"))),
    )


def two_nodes() -> Bundle:
    return sglang(
        schedulers(8, SGLANG_INIT, cpu=0.01),
        phase=Phase.COMM_INIT,
        nodes=2,
        environment={"NCCL_SOCKET_IFNAME": "enx", "GLOO_SOCKET_IFNAME": "enxa088c2393978"},
        options={"dist-init-addr": "node-0.company.net:20000"},
        host=host(
            interfaces=(LAN[0], interface("enxa088c2393978", "fd00:40::11")),
            resolved=(Resolved(name="node-0.company.net", addresses=("fd00:40::11",)),),
        ),
        gpus=gpus(8),
    )


def eight_l40s() -> Bundle:
    return vllm(
        workers(8, IN_COMM_INIT, cpu=0.01),
        phase=Phase.COMM_INIT,
        gpus=pcie_gpus(8, "NVIDIA L40S", architecture="89"),
        log=[FALLBACK, using_nccl()],
    )


def loads_a_kernel() -> Bundle:
    return vllm(
        worker(
            0,
            (
                "_init_handles (triton/compiler/compiler.py:480)",
                "run (triton/runtime/jit.py:740)",
                "_zero_kv_blocks (vllm/v1/worker/gpu_model_runner.py:1200)",
                WORKER_MAIN,
            ),
        ),
        worker(1, ("synchronize (torch/cuda/streams.py:231)", WORKER_MAIN), native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=gpus(2, name="NVIDIA RTX A5000", architecture="86"),
    )


def two_a100s() -> Bundle:
    return bundle(
        [rank(n, name="tritonserver", native=SYNCS, state="R", cpu=1.0) for n in range(2)],
        engine="generic",
        phase=Phase.SERVING,
        gpus=spinning(gpus(2, name="NVIDIA A100-SXM4-40GB", architecture="80"), 95, memory=1.0),
        host=host(driver="545.23.08", cuda="12.3"),
    )


def invalid_buffers() -> Bundle:
    return sglang(
        schedulers(4, ("wait (torch/distributed/distributed_c10d.py:500)", SCHEDULER_MAIN), cpu=0.3),
        phase=Phase.COMM_INIT,
        nodes=4,
        gpus=gpus(4, name="NVIDIA GB200", architecture="100"),
        log=[line(f"Rank {n} got invalid buffer data from {n + 8}.", level="WARNING", ago_s=2) for n in range(4)],
    )


def symmetric_memory() -> Bundle:
    return vllm(
        workers(4, ("wait (threading.py:327)", WORKER_MAIN)),
        phase=Phase.SERVING,
        gpus=gpus(4, name="NVIDIA H200"),
        log=[line("Symmetric memory is not supported on this device", level="WARNING", ago_s=600)],
    )
