"""Reports of GPUs that do not reach each other: PCIe, custom all-reduce, NVLink multicast."""

from tests.corpus.case import Case
from tests.corpus.surroundings import (
    BROADCAST_LINE,
    FIRST_ALL_REDUCE,
    IN_COMM_INIT,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    pcie_gpus,
    spinning,
    using_nccl,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.host import Topology
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import GB, ended, gpus, host, line, ordinary_facts, rank

ACS = Topology(iommu="passthrough", acs=("0000:00:01.1", "0000:00:03.1"), bar1_bytes=32 * GB)
CLEAN = Topology(iommu="off", acs=(), bar1_bytes=32 * GB)
BENCH = (
    "synchronize (torch/cuda/__init__.py:1090)",
    "all_reduce (torch/distributed/distributed_c10d.py:2900)",
    "main (/srv/bench/pair.py:31)",
)


def _advertised(bar1: int) -> Bundle:
    cards = pcie_gpus(2, bar1_bytes=bar1, utilisation=0.0)
    return vllm(
        workers(2, IN_COMM_INIT, native=("ncclCommInitRank (libnccl.so.2)",)),
        phase=Phase.COMM_INIT,
        host=host(driver="610.43.03", topology=Topology(iommu="off", acs=(), bar1_bytes=bar1)),
        gpus=cards,
        log=[using_nccl()],
    )


def _first_all_reduce(topology: Topology, **more: object) -> Bundle:
    return vllm(
        workers(2, FIRST_ALL_REDUCE, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMM_INIT,
        host=host(topology=topology),
        gpus=spinning(pcie_gpus(2, "NVIDIA RTX 5880 Ada Generation", power_limit_w=285.0), 62),
        log=[using_nccl(), nccl_line("comm 0x55 rank 0 nranks 2 - Init COMPLETE"), BROADCAST_LINE],
        **more,
    )


def _pair_tests(topology: Topology, count: int) -> Bundle:
    return vllm(
        workers(count, BENCH, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMM_INIT,
        engine="generic",
        host=host(topology=topology),
        gpus=spinning(pcie_gpus(count, "NVIDIA RTX A5000", power_limit_w=230.0), 70),
        log=[nccl_line("Channel 00 : 2[2] -> 3[3] via P2P/direct pointer")],
    )


def _rccl(warns: bool) -> Bundle:
    warning = 'Missing "iommu=pt" from kernel command line which can lead to system instability or hang!'
    cards = pcie_gpus(2, "AMD Instinct MI210", vendor="amd", architecture="gfx90a")
    return vllm(
        workers(2, IN_COMM_INIT),
        phase=Phase.COMM_INIT,
        host=host(topology=Topology(iommu="on", acs=(), bar1_bytes=64 * GB), driver="6.10.5"),
        gpus=cards,
        options={"tensor-parallel-size": "2", "enforce-eager": ()},
        log=[nccl_line(warning, level="WARN")] if warns else [],
    )


def _fused(power_w: float, memory: float, function: str) -> Bundle:
    stack = (
        f"{function} (vllm/model_executor/models/minimax_m2.py:210)",
        "forward (vllm/model_executor/models/minimax_m2.py:260)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:4400)",
        WORKER_MAIN,
    )
    return vllm(
        workers(4, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.KV_CACHE,
        gpus=spinning(pcie_gpus(4), power_w, memory),
        environment={"NCCL_P2P_DISABLE": "1", "CUDA_LAUNCH_BLOCKING": "1"},
        options={"tensor-parallel-size": "4", "disable-custom-all-reduce": (), "enforce-eager": ()},
        log=[BROADCAST_LINE],
    )


def _expandable(setting: str) -> Bundle:
    capture = ("capture_model (vllm/v1/worker/gpu_model_runner.py:5000)", WORKER_MAIN)
    facts = ordinary_facts(variables={"PYTORCH_CUDA_ALLOC_CONF": setting})
    return vllm(
        workers(3, capture, facts=facts),
        exits=[ended(rank(3), code=1, ago_s=200)],
        phase=Phase.GRAPH_CAPTURE,
        gpus=gpus(4, name="NVIDIA H200"),
        environment={"PYTORCH_CUDA_ALLOC_CONF": setting},
        log=[
            line(
                "Failed: Cuda error /src/csrc/custom_all_reduce.cuh:455 'invalid argument'",
                source="Worker_TP3",
                number=3,
                level="ERROR",
                ago_s=201,
            )
        ],
    )


def _at_two_ranks(topology: Topology) -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:1090)",
        "custom_all_reduce (vllm/distributed/device_communicators/custom_all_reduce.py:280)",
        "all_reduce (vllm/distributed/device_communicators/cuda_communicator.py:160)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:4400)",
        WORKER_MAIN,
    )
    cards = pcie_gpus(2, "NVIDIA RTX PRO 6000 Blackwell Max-Q", memory_total_bytes=96 * GB, bar1_bytes=128 * GB)
    return vllm(
        workers(2, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.COMM_INIT,
        host=host(topology=topology),
        gpus=spinning(cards, 80) if topology.iommu == "on" else cards,
        options={"tensor-parallel-size": "2", "max-model-len": "131072"},
        log=[using_nccl()],
    )


def _nvls(last: str) -> Bundle:
    return vllm(
        workers(8, IN_COMM_INIT, native=("ncclCommInitRank (libnccl.so.2)",)),
        phase=Phase.COMM_INIT,
        gpus=gpus(8, name="NVIDIA B300", architecture="103", nvlinks=18),
        options={"tensor-parallel-size": "8"},
        log=[using_nccl("2.30.7"), nccl_line("NET/Plugin: Could not find: libnccl-net.so"), nccl_line(last)],
    )


def _workspace(fabric: str) -> Bundle:
    stack = (
        "__init__ (flashinfer/comm/mnnvl.py:690)",
        "init_mnnvl_workspace (vllm/distributed/device_communicators/flashinfer_all_reduce.py:90)",
        "init_device (vllm/v1/worker/gpu_worker.py:290)",
        WORKER_MAIN,
    )
    return vllm(
        workers(8, stack),
        phase=Phase.COMM_INIT,
        nodes=2,
        gpus=gpus(8, fabric=fabric, nvlinks=18),
        log=[BROADCAST_LINE],
    )


CASES = (
    Case(
        id="club3090-873",
        url="https://github.com/noonghunna/club-3090/issues/873",
        cause="nccl_p2p_pcie",
        bundle=_advertised(256 << 20),
        shows="peer access claimed with a BAR1 window far smaller than the memory; all ranks in ncclCommInitRank",
        twin=_advertised(32 * GB),
    ),
    Case(
        id="nccl-2079",
        url="https://github.com/NVIDIA/nccl/issues/2079",
        cause="nccl_p2p_pcie",
        bundle=_first_all_reduce(ACS),
        shows="ACS on the bridges above the GPUs; both spin at idle power in the first all-reduce",
        twin=_first_all_reduce(CLEAN),
    ),
    Case(
        id="nccl-606",
        url="https://github.com/NVIDIA/nccl/issues/606",
        cause="nccl_p2p_pcie",
        bundle=_pair_tests(ACS, 4),
        shows="ACS left on bridges between the pair that hangs; GPUs spin",
        twin=_pair_tests(CLEAN, 4),
    ),
    Case(
        id="nccl-667",
        url="https://github.com/NVIDIA/nccl/issues/667",
        cause="nccl_p2p_pcie",
        bundle=_pair_tests(Topology(iommu="on", acs=("0000:3a:00.0",), bar1_bytes=32 * GB), 2),
        shows="ACS on the switch above the pair, IOMMU on; GPUs spin",
        twin=_pair_tests(CLEAN, 2),
    ),
    Case(
        id="rocm-vllm-390",
        url="https://github.com/ROCm/vllm/issues/390",
        cause="nccl_p2p_pcie",
        bundle=_rccl(warns=True),
        shows="RCCL warns of the IOMMU while all ranks connect",
        twin=_rccl(warns=False),
    ),
    Case(
        id="vllm-47544",
        url="https://github.com/vllm-project/vllm/pull/47544",
        cause="nccl_p2p_pcie",
        bundle=_fused(140, 0, "_minimax_qk_norm_fusion"),
        shows="all ranks in a fused all-reduce, GPUs spin, peer access claimed over PCIe alone",
        twin=_fused(500, 60, "_minimax_forward"),
    ),
    Case(
        id="vllm-42609",
        url="https://github.com/vllm-project/vllm/issues/42609",
        cause="custom_allreduce",
        bundle=_expandable("expandable_segments:True"),
        shows="its source reports a CUDA error, expandable segments are on, a rank has ended",
        twin=_expandable("max_split_size_mb:512"),
        companions=frozenset({"rank_died"}),
    ),
    Case(
        id="vllm-51513",
        url="https://github.com/vllm-project/vllm/issues/51513",
        cause="custom_allreduce",
        bundle=_at_two_ranks(Topology(iommu="on", acs=("0000:40:01.1", "0000:c0:01.1"), bar1_bytes=128 * GB)),
        shows="both ranks in custom all-reduce, GPUs spin; IOMMU translates, ACS on both root ports",
        twin=_at_two_ranks(CLEAN),
        companions=frozenset({"nccl_p2p_pcie"}),
    ),
    Case(
        id="vast-233",
        url="https://github.com/vast-ai/base-image/pull/233",
        cause="nccl_nvls",
        bundle=_nvls("NVLS tuning: nChannels 24 nWarps 16"),
        shows="NCCL's last words are about NVLS, no communicator is complete",
        twin=_nvls("Bootstrap timings total 0.9 (create 0.1, send 0.2)"),
    ),
    Case(
        id="vllm-51986",
        url="https://github.com/vllm-project/vllm/issues/51986",
        cause="nccl_nvls",
        bundle=_workspace("not supported"),
        shows="ranks set up an MNNVL workspace on GPUs that are in no NVLink fabric",
        twin=_workspace("completed"),
    ),
)
