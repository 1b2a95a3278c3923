"""What GPUs, drivers and kernels show of one mechanism in other libraries, versions and vendors: each beside a stall
that looks alike and must not be named so."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gpu import Gpu
from firstlight.core.host import Topology
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    NO_PTRACE,
    Moves,
    bundle,
    cuda_libraries,
    device,
    ended,
    engine,
    folder,
    front,
    gpus,
    host,
    line,
    ordinary_facts,
    process,
    rank,
    ranks,
)

SYNC = ("cuStreamSynchronize (libcuda.so.1)", "cudaStreamSynchronize (libcudart.so.12)")
ALL_REDUCE = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "forward (/srv/model.py:20)")
FORWARD = ("forward (/srv/model.py:10)", "execute_model (vllm/v1/worker/gpu_worker.py:500)")
INIT = ("ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)", *FORWARD)
REPLAY = ("replay (torch/cuda/graphs.py:118)", *FORWARD)
PCIE = {"fabric": "not supported", "nvlinks_down": 0, "nvlinks": 0}


def _busy(count: int, **more: object) -> tuple[Gpu, ...]:
    """GPUs that are busy without working."""
    return gpus(count, **{"utilisation": 100.0, "memory_activity": 0.0, "power_w": 120.0, **more})


def _two(*log: str, stack: object = ALL_REDUCE, told: dict[str, object] | None = None, **more: object) -> Bundle:
    said = [line(text, level="WARNING") for text in log]
    return bundle(front(), engine(), ranks(2, stack=stack, **more), log=said, **{"gpus": gpus(2), **(told or {})})


def _says(*log: str, **told: object) -> Bundle:
    """A rank has ended, and its log remains."""
    said = [line(text, level="ERROR") for text in log]
    return bundle(front(), engine(), log=said, exits=[ended(rank(0), code=1)], **{"gpus": gpus(1), **told})


def _compat(path: str, said: str = "Error 803: system has unsupported display driver / cuda driver combination"):
    driver = Library(path=path, kind="cuda_driver", version="550.54.15")
    facts = ordinary_facts(libraries=(driver, *cuda_libraries()[1:]))
    stack = ("device_count (torch/cuda/__init__.py:900)", "init_device (vllm/v1/worker/gpu_worker.py:209)")
    return bundle(front(), rank(0, stack=stack, facts=facts), log=[line(said, level="ERROR")], gpus=gpus(1))


def _older(said: str, *, cuda: str) -> Bundle:
    return bundle(rank(0), log=[line(said, level="ERROR")], gpus=gpus(1), host=host(cuda=cuda))


def _forked(*log: str, parent_has: str, forked: bool = True) -> Bundle:
    child = rank(0, stack=FORWARD, facts=ordinary_facts(forked=forked))
    return bundle(front(), engine(files=[device(parent_has)]), child, log=[line(text) for text in log])


def _oom(*, other: object = ALL_REDUCE) -> Bundle:
    told = [line("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB", number=1, level="ERROR")]
    idle = ("recv_requests (sglang/srt/managers/scheduler.py:1400)",)
    return bundle(front(), rank(0, stack=other), rank(1, stack=idle), log=told, gpus=gpus(2))


def _checks_peers(*, copies: bool) -> Bundle:
    work = "producer (vllm/distributed/device_communicators/custom_all_reduce_utils.py:40)"
    stack = (work,) if copies else ("main (/srv/other.py:9)",)
    asks = ("gpu_p2p_access_check (vllm/distributed/device_communicators/custom_all_reduce_utils.py:300)",)
    child = process(4300, "python", stack=stack, native=SYNC, ppid=4100)
    return bundle(front(), ranks(2, stack=asks), child, gpus=gpus(2, **PCIE))


def _iommu(text: str, *, stack: object = ALL_REDUCE) -> Bundle:
    return _two(stack=stack, told={"kernel_log": [text], "gpus": gpus(2, **PCIE)})


def _alone(native: str, *, peers: int = 1, busy: bool = True, **more: object) -> Bundle:
    stack = () if native else ("sample (srv/sampler.py:20): return tokens.tolist()", *FORWARD)
    return bundle(front(), ranks(peers, stack=stack, native=[native] if native else (), **more),
                  gpus=_busy(peers) if busy else gpus(peers), ranks=peers)  # fmt: skip


def _shim(*, spins: bool) -> Bundle:
    shim = "/usr/local/vgpu/libvgpu.so"
    own = "cuMemCreate (libvgpu.so)" if spins else "cuMemCreate (libcuda.so.1)"
    facts = ordinary_facts(libraries=(Library(path=shim, kind="profiler", preloaded=True), *cuda_libraries()))
    return bundle(rank(0, native=["sched_yield (libc.so.6)", own], state="R", cpu=1.0, facts=facts))


def _loads_kernels(*, grows: bool, native: str = "cuModuleLoadDataEx (libcuda.so.1)") -> Bundle:
    cache = folder("compile_cache", "/root/.nv/ComputeCache", bytes_=1 << 20, grows=4096 if grows else 0)
    return bundle(rank(0, native=[native], stack=FORWARD, state="R", cpu=1.0), folders=[cache], gpus=gpus(1))


def _bound(cores: str, *, cpu: float) -> Bundle:
    facts = ordinary_facts(cpus_allowed=cores)
    return bundle(front(), rank(0, stack=FORWARD, facts=facts, cpu=cpu, state="R", moves=Moves(memory_bytes=1)))


FATAL_IN_LOG = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
REFUSED_CONTEXT = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
MULTICAST = "node-a:1:1 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed'"
P2P_INFO = "node-a:1:1 [0] NCCL INFO NVLS multicast support is available on dev 0"
API = "NVRM: API mismatch: the client has the version 570.172.08, but this kernel module has the version 570.133.20."

WAYS = {
    "the container's own driver library": (
        "driver_toolkit_mismatch",
        _compat("/usr/local/cuda/compat/libcuda.so.550.54.15"),
        _compat("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "device count is 0"),
    ),
    "a kernel module older than the library": (
        "driver_toolkit_mismatch",
        _two(told={"kernel_log": [API]}, stack=INIT),
        _two(told={"kernel_log": ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.172.08"]}, stack=INIT),
    ),
    "PTX of a newer toolkit": (
        "driver_toolkit_mismatch",
        _older("CUDA error: the provided PTX was compiled with an unsupported toolchain.", cuda="12.4"),
        _older("CUDA error: invalid argument", cuda="12.4"),
    ),
    "a forked child on another vendor": (
        "fork_after_cuda",
        _forked("RuntimeError: Cannot re-initialize NPU in forked subprocess.", parent_has="/dev/davinci0"),
        _forked("RuntimeError: NPU out of memory", parent_has="/dev/davinci0"),
    ),
    "a forked child whose CUDA does not start": (
        "fork_after_cuda",
        _forked("RuntimeError: CUDA error: initialization error", parent_has="/dev/nvidia-uvm"),
        _forked("RuntimeError: CUDA error: initialization error", parent_has="/dev/nvidia-uvm", forked=False),
    ),
    "a GPU's fault in a container's log": (
        "gpu_fault",
        _says(FATAL_IN_LOG),
        _says("RuntimeError: CUDA error: an illegal memory access was encountered"),
    ),
    "a GPU of AMD whose queue does not end": (
        "gpu_fault",
        _two(told={"kernel_log": ["amdgpu: qcm fence wait loop timeout expired"]}),
        _two(told={"kernel_log": ["amdgpu: added device 1002:74a1"]}),
    ),
    "an NVSwitch that failed": (
        "gpu_fault",
        _two(told={"kernel_log": ["nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM"]}),
        _two(told={"kernel_log": ["nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 22013, Non-fatal, Link 33 Minion"]}),
    ),
    "a GPU that somebody has to himself": (
        "gpu_in_use",
        _says(REFUSED_CONTEXT),
        _says("torch.cuda.device_count() is 0, no device is busy"),
    ),
    "memory that others give back meanwhile": (
        "gpu_memory_imbalance",
        _says(
            "AssertionError: Error in memory profiling. Initial free memory 40.1 GiB, current free memory 55.2 GiB.",
            gpus=(gpus(1, memory_used_bytes=40 << 30)[0], *gpus(2)[1:]),
        ),
        _says("AssertionError: Error in memory profiling. Initial free memory 40.1 GiB", gpus=gpus(2)),
    ),
    "a rank that ran out of memory and lives on": ("gpu_oom_silent", _oom(), _oom(other=FORWARD)),
    "graphs that are never instantiated": (
        "graph_capture",
        _two(native=["cudaGraphInstantiate (libcudart.so.12)"], told={"phase": Phase.GRAPH_CAPTURE}),
        _two(native=["cudaGraphInstantiate (libcudart.so.12)"], cpu=1.0, moves=Moves(memory_bytes=1 << 30),
             told={"phase": Phase.GRAPH_CAPTURE}),
    ),
    "HIP refuses an operation in a capture": (
        "graph_capture",
        _two("HIP error: operation would make the legacy stream depend on a capturing blocking stream",
             stack=("capture (sglang/cuda_graph_runner.py:500)",)),
        _two("HIP error: invalid argument", stack=("capture (sglang/cuda_graph_runner.py:500)",)),
    ),
    "a replay without native frames": (
        "graph_replay",
        _two(stack=REPLAY, native=NO_PTRACE),
        _two(stack=("synchronize (torch/cuda/streams.py:100)", *REPLAY), native=NO_PTRACE),
    ),
    "memory registered for transfers": (
        "host_memory_pin",
        _two(stack=("register_memory (nixl/_api.py:300)", *FORWARD), moves=Moves(locked_bytes=4 << 30)),
        _two(stack=("register_buffers (vllm/custom_all_reduce.py:200)", *FORWARD)),
    ),
    "a GPU of AMD that is waited for": (
        "kernel_hang_sm",
        _alone("rocr::core::InterruptSignal::WaitRelaxed(hsa_signal_condition_t) (libhsa-runtime64.so.1)"),
        _alone("epoll_wait (libc.so.6)", busy=False),
    ),
    "a result that never comes": ("kernel_hang_sm", _alone(""), _alone("", peers=2)),
    "multicast, in NCCL's words": (
        "nccl_nvls",
        _two(MULTICAST, stack=INIT),
        _two(P2P_INFO, stack=FORWARD),
    ),
    "multicast, on every stack": (
        "nccl_nvls",
        _two(stack=INIT, native=["cuMulticastBindMem (libcuda.so.1)", "ncclNvlsSetup (libnccl.so.2)"]),
        _two(stack=INIT, native=["bootstrapAllGather (libnccl.so.2)"]),
    ),
    "the IOMMU of AMD refuses a GPU's writes": (
        "nccl_p2p_pcie",
        _iommu("nvidia 0000:10:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80 flags=0x20]"),
        _iommu("nvme 0000:81:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80 flags=0x20]"),
    ),
    "the IOMMU of Intel refuses a GPU's writes": (
        "nccl_p2p_pcie",
        _iommu("DMAR: [DMA Write NO_PASID] Request device [11:00.0] fault addr 0xc0000 [fault reason 0x05]"),
        _iommu("DMAR: [DMA Write NO_PASID] Request device [11:00.0] fault addr 0xc0000", stack=FORWARD),
    ),
    "the engine's own check of peers hangs": (
        "nccl_p2p_pcie", _checks_peers(copies=True), _checks_peers(copies=False),
    ),
    "a GPU that the build does not know": (
        "no_machine_code",
        _says("HSA_STATUS_ERROR_INVALID_ISA; hipErrorNoBinaryForGpu: Unable to find code object for all devices"),
        _says("hipErrorInvalidValue"),
    ),
    "the driver's cache grows": ("ptx_jit", _loads_kernels(grows=True), _loads_kernels(grows=False)),
    "a launcher that binds to one core": ("numa_binding", _bound("5", cpu=1.0), _bound("0-63", cpu=1.0)),
    "the fabric as torch counts GPUs": (
        "fabric_not_ready",
        _two(stack=("set_device (torch/cuda/__init__.py:500)",), told={"gpus": gpus(2, fabric="in progress")}),
        _two(stack=("set_device (torch/cuda/__init__.py:500)",)),
    ),
    "a fused all-reduce over NVLink": (
        "custom_allreduce",
        _two(stack=("trtllm_allreduce_fusion (flashinfer/comm/trtllm_ar.py:600)", *FORWARD), told={"gpus": _busy(2)}),
        _two(stack=("trtllm_allreduce_fusion (flashinfer/comm/trtllm_ar.py:600)", *FORWARD)),
    ),
    "AMD's quick all-reduce": (
        "custom_allreduce",
        _two(stack=("quick_all_reduce (vllm/quick_all_reduce.py:200)", *FORWARD), told={"gpus": _busy(2)}),
        _two(stack=("all_reduce (vllm/pynccl.py:168)", *FORWARD), told={"gpus": _busy(2)}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cause", "seen", "twin"), WAYS.values(), ids=WAYS)
def test_a_cause_is_named_however_it_shows(judge, cause, seen, twin):
    assert judge(seen, cause).word in {"established", "supported"}
    assert judge(twin, cause).word not in {"established", "supported"}


def test_a_shim_that_spins_in_a_call_of_its_own_is_certain(judge):
    assert judge(_shim(spins=True), "preload_shim").word == "established"
    assert judge(_shim(spins=False), "preload_shim").word == "supported"


def test_symmetric_memory_is_not_switched_off_with_the_engines_all_reduce(judge):
    stack = ("rendezvous (torch/distributed/_symmetric_memory/__init__.py:90)", "__init__ (vllm/symm_mem.py:60)")
    off = {"options": {"disable-custom-all-reduce": ""}}
    assert judge(_two(stack=stack, told=off), "custom_allreduce").word == "supported"
    own = ("all_reduce (vllm/custom_all_reduce.py:90)", *FORWARD)
    assert judge(_two(stack=own, told={**off, "gpus": _busy(2)}), "custom_allreduce").word == "excluded"


def test_an_allocation_that_waits_for_the_gpu_pins_nothing_yet(judge):
    pins = {"stack": (), "native": ("cudaHostAlloc (libcudart.so.12)",)}
    assert judge(_two(**pins), "host_memory_pin").word == "supported"
    assert judge(_two(**pins, told={"gpus": _busy(2)}), "host_memory_pin").word == "open"
    grows = {"moves": Moves(locked_bytes=4 << 30), "told": {"gpus": _busy(2)}}
    assert judge(_two(**pins, **grows), "host_memory_pin").word == "established"


def test_gpus_of_one_process_may_wait_for_each_other(judge):
    def drives(count: int, **of_host: object) -> Bundle:
        only = process(4100, "all_reduce_perf", native=("cudaStreamQuery (libcudart.so.12)",), ppid=1)
        return bundle(only, engine="generic", gpus=_busy(count, **PCIE), host=host(**of_host))

    acs = {"topology": Topology(iommu="on", acs=("0000:00:01.0",), bar1_bytes=128 << 30)}
    assert judge(drives(2, **acs), "nccl_p2p_pcie").word == "supported"
    assert judge(drives(2), "nccl_p2p_pcie").word == "not seen"
    assert judge(drives(2), "kernel_hang_sm").word == "not seen"
    assert judge(drives(1, **acs), "nccl_p2p_pcie").word == "not seen"
    assert judge(drives(1), "kernel_hang_sm").word == "supported"
