"""Machines of the twelfth lot whose GPUs, driver or way between the GPUs do not answer."""

from tests.corpus.lots.twelfth.machines import old
from tests.corpus.starts import (
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    at,
    base,
    begun,
    broadcasts,
    detokenizer,
    listens,
    serves,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, scheduler, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.host import Topology
from firstlight.core.look import Leftover, ThreadLook
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    cuda_libraries,
    device,
    gpu,
    gpus,
    helper,
    host,
    ordinary_facts,
    process,
    rank,
    thread,
)

NVML_LATE = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="nvmlInit did not come back within 5 s")
BUSY_LOOP = ("worker_busy_loop (vllm/v1/executor/multiproc_executor.py:840)", WORKER_MAIN)
CAPTURES = (
    "capture_model (vllm/v1/worker/gpu_model_runner.py:5410)",
    "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:480)",
    *BUSY_LOOP,
)
IN_IOCTL = {
    "state": "D",
    "wchan": "rwsem_down_write_slowpath",
    "syscall": "ioctl(0x16, 0xc020462a, 0x7ffd10)",
    "kernel": ("rwsem_down_write_slowpath", "down_write", "os_acquire_rwlock_write", "rm_ioctl", "nvidia_ioctl"),
    "native": ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuEventSynchronize (libcuda.so.1)"),
}


def redirected(*, seen: bool) -> Bundle:
    """Four 4090s under bridges that send peer traffic upwards: the first all-reduce does not end."""
    stack = (
        "synchronize (torch/cuda/streams.py:91)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:96)",
        "init_model_parallel_group (vllm/distributed/parallel_state.py:601)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:690)",
        "init_device (vllm/worker/worker.py:110)",
    )
    told = {"stack": stack, "state": "R", "cpu": 1.0, "memory": 3 * GB, "threads": idle_threads()}
    driver = process(
        FRONT, "python", ppid=1, role=Role.WORKER, rank=0,
        **{**told, "stack": (*stack, "run_server (vllm/entrypoints/openai/api_server.py:170)")},
    )  # fmt: skip
    ranks = [
        rank(n, name="python", label=f"VllmWorkerProcess {n}", ppid=FRONT,
             **{**told, "stack": (*stack, "_run_worker_process (vllm/executor/multiproc_worker_utils.py:201)")})
        for n in range(1, 4)
    ]  # fmt: skip
    log = [
        old("llm_engine.py:161] Initializing an LLM engine (v0.5.0) with config: model='/models/llm'"),
        *(f"(VllmWorkerProcess pid={4100 + n}) {old('multiproc_worker_utils.py:215] Worker ready; awaiting tasks')}"
          for n in range(1, 4)),
        old("utils.py:637] Found nccl from library libnccl.so.2"),
        old("pynccl.py:65] vLLM is using nccl==2.20.5"),
    ]  # fmt: skip
    bridges = ("0000:40:01.1", "0000:40:03.1", "0000:c0:01.1", "0000:c0:03.1")
    way = Topology(iommu="on", acs=bridges, bar1_bytes=32 * GB)
    plain = Topology(iommu="off", acs=(), bar1_bytes=32 * GB)
    cards = pcie_gpus(4, "NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB,
                      memory_used_bytes=GB)  # fmt: skip
    return started(
        "python -m vllm.entrypoints.openai.api_server --model /models/llm --tensor-parallel-size 4", driver, ranks,
        log=log, phase=Phase.COMM_INIT, quiet_s=1300, version="0.5.0", gpus=spinning(cards, 76.0),
        host=host(driver="555.42.02", cuda="12.5", kernel="5.15.0-107-generic", topology=way if seen else plain),
    )  # fmt: skip


def volta_pair(*, seen: bool) -> Bundle:
    """NCCL was told to leave peers alone; the engine's own all-reduce writes to them all the same, and spins."""
    stack = ("synchronize (torch/cuda/__init__.py:1083)", *CAPTURES)
    ranks = [
        worker(n, stack, state="R", cpu=1.0, memory=9 * GB) if seen else worker(n, memory=9 * GB, **UNSEEN)
        for n in range(2)
    ]
    how = ["CUSTOM", "PYNCCL"] if seen else ["PYNCCL"]
    log = [
        *begun("/models/dense27b-fp4", "0.20.0"),
        *(v(f"Worker_TP{n}", "vLLM is using nccl==2.27.5", "pynccl.py:111") for n in range(1)),
        v("Worker_TP0", f"Using {how} all-reduce backends (in dispatch order) for group 'tp:0'",
          "cuda_communicator.py:245"),
        v("Worker_TP0", "Model loading took 11.2 GiB memory and 61.1 seconds", "gpu_model_runner.py:4790"),
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/5 [00:00<?, ?it/s]",
        *broadcasts(),
    ]  # fmt: skip
    cards = pcie_gpus(2, "Tesla V100-PCIE-32GB", architecture="70", power_limit_w=250.0, memory_used_bytes=27 * GB)
    return started(
        "vllm serve /models/dense27b-fp4 --tensor-parallel-size 2 --max-model-len 65536"
        + ("" if seen else " --disable-custom-all-reduce"),
        base(), ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=1100, environment={"NCCL_P2P_DISABLE": "1"},
        gpus=spinning(cards, 47.0) if seen else cards,
        host=host(driver="580.173.02", cuda="13.0", topology=Topology(iommu="off", acs=(), bar1_bytes=32 * GB)),
    )  # fmt: skip


def replays(*, seen: bool) -> Bundle:
    """Growing segments, peer access and a captured collective: the second replay of the graph does not come back."""
    stack = (
        "replay (torch/cuda/graphs.py:115)",
        "__call__ (vllm/compilation/cuda_graph.py:230)",
        "_model_forward (vllm/v1/worker/gpu_model_runner.py:3310)",
        "execute_model (vllm/v1/worker/gpu_model_runner.py:3520)",
        *BUSY_LOOP,
    )
    native = ("?? (libcuda.so.1)", "cuGraphLaunch (libcuda.so.1)", "cudaGraphLaunch (libcudart.so.12)",
              "at::cuda::CUDAGraph::replay() (libtorch_cuda.so)")  # fmt: skip
    told = {"stack": stack, "state": "R", "cpu": 1.0, "native": native} if seen else UNSEEN
    ranks = [worker(n, memory=7 * GB, **told) for n in range(2)]
    log = [
        *begun("/models/dense27b", "0.25.1"),
        v("Worker_TP0", "Graph capturing finished in 21 secs, took 0.61 GiB", "gpu_model_runner.py:5432"),
        v("APIServer", "Application startup complete.", "on.py:48"),
        *broadcasts(),
    ]
    cards = pcie_gpus(2, "NVIDIA GeForce RTX 3090", architecture="86", memory_total_bytes=24 * GB,
                      memory_used_bytes=21 * GB)  # fmt: skip
    return started(
        "vllm serve /models/dense27b --tensor-parallel-size 2 --disable-custom-all-reduce "
        "--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'",
        base(), ranks, log=log, phase=Phase.SERVING, quiet_s=240, question="no token within 60 s",
        environment={"NCCL_P2P_LEVEL": "SYS", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        gpus=spinning(cards, 112.0), host=host(driver="595.84", cuda="13.2"),
    )  # fmt: skip


def firmware(*, seen: bool) -> Bundle:
    """The firmware of one of eight A100 does not answer the driver; its rank hangs in the kernel, the others spin."""
    stack = ("synchronize (torch/cuda/streams.py:231)",
             "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4790)",
             "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
             "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)", *BUSY_LOOP)  # fmt: skip
    ranks = [
        worker(n, stack, memory=11 * GB, files=[device("/dev/nvidia3", fd=22)], **IN_IOCTL)
        if seen and n == 3
        else worker(n, stack, state="R", cpu=1.0, memory=11 * GB)
        for n in range(8)
    ]
    ill: dict[str, object] = {"xid": (62, 45, 119), "fault": "nvmlDeviceGetPowerUsage did not come back"}
    sound = gpus(8, name="NVIDIA A100-SXM4-80GB", architecture="80", memory_used_bytes=61 * GB)
    cards: tuple[Gpu, ...] = tuple(
        gpu(n, name=card.name, architecture="80", pci="0000:48:00.0", **ill)
        if seen and n == 3
        else spinning([card], 92.0)[0]
        for n, card in enumerate(sound)
    )
    at_48 = "NVRM: Xid (PCI:0000:48:00):"
    said = [
        "nvidia-nvswitch1: SXid (PCI:0000:aa:00.0): 24007, Severity 1 Engine instance 12 Sub-engine instance 00",
        f"{at_48} 62, 00002740 00002b08 00001126 0000117a 0000279f 0002a91a 00000011 00000000",
        f"{at_48} 45, pid=22884, name=VLLM::Worker, channel 0x0000000a",
        f"{at_48} 119, pid=11431, name=nvidia-smi, Timeout after 45s of waiting for RPC response from GPU3 GSP!",
        "NVRM: nvAssertFailedNoLog: Assertion failed: Back to back GSP RPC timeout detected! GPU marked for reset",
    ]
    log = [
        *begun("/models/moe", "0.19.1"),
        v("Worker_TP0", "Model loading took 52.4 GiB memory and 96.2 seconds", "gpu_model_runner.py:4790"),
        *broadcasts(),
    ]
    return started(
        "vllm serve /models/moe --tensor-parallel-size 8", base(), ranks, log=log, phase=Phase.KV_CACHE, quiet_s=420,
        gpus=cards, kernel_log=said if seen else [],
        host=host(driver="595.58.03", cuda="13.2", kernel="6.18.15-talos"),
    )  # fmt: skip


def halted(*, seen: bool) -> Bundle:
    """Two V100 have stopped with Xid 62 while graphs were captured, and the driver does not come back."""
    stack = ("synchronize (torch/cuda/__init__.py:1083)", *CAPTURES)
    ranks = [
        worker(n, stack, memory=8 * GB, **IN_IOCTL) if seen else worker(n, memory=8 * GB, **UNSEEN) for n in range(2)
    ]
    said = [
        *(f"NVRM: Xid (PCI:0000:{bus}:00): 62, 2b3c(2d50) 00000000 00000000" for bus in ("3b", "af")),
        "INFO: task VLLM::Worker_TP:4100 blocked for more than 122 seconds.",
        "INFO: task nvidia-smi:77120 blocked for more than 122 seconds.",
    ]
    cards = pcie_gpus(2, "Tesla V100-SXM2-32GB", architecture="70", power_limit_w=300.0, memory_used_bytes=28 * GB)
    log = [
        *begun("/models/dense27b-awq", "0.20.0"),
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/3 [00:00<?, ?it/s]",
        *broadcasts(),
    ]
    return started(
        "vllm serve /models/dense27b-awq --tensor-parallel-size 2 --max-model-len 262144 --max-num-seqs 4", base(),
        ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=3100, gpus=NVML_LATE if seen else spinning(cards, 58.0),
        kernel_log=said if seen else [],
        leftovers=[Leftover(pid=77120, name="nvidia-smi", state="D", age_s=1900, unseen=True)] if seen else [],
        host=host(driver="570.172.08", cuda="12.8"),
    )  # fmt: skip


def window(*, seen: bool) -> Bundle:
    """All four ranks register new symmetric memory, and wait in NCCL for a descriptor that nobody hands over."""
    stack = (
        "ncclCommWindowRegister (sglang/srt/distributed/device_communicators/pynccl_wrapper.py:520)",
        "register_comm_window_raw (sglang/srt/distributed/device_communicators/pynccl.py:340)",
        "__exit__ (sglang/srt/distributed/device_communicators/pynccl_allocator.py:190)",
        "forward (sglang/srt/models/qwen3_moe.py:410)",
        "forward_batch_generation (sglang/srt/managers/tp_worker.py:470)",
        "event_loop_overlap (sglang/srt/managers/scheduler.py:1340)",
        SCHEDULER_MAIN,
    )
    native = ("recvmsg (libc.so.6)", "ncclIpcSocketRecvMsg (libnccl.so.2)",
              "ncclProxyClientGetFdBlocking (libnccl.so.2)", "ncclDevrWindowRegisterInGroup (libnccl.so.2)",
              "ncclCommWindowRegister (libnccl.so.2)")  # fmt: skip
    idle: ThreadLook = thread(
        name="NCCL UDS", syscall="poll(0x7f3b20, 0x1, 0x1f4)",
        native=("poll (libc.so.6)", "ncclProxyServiceUDS (libnccl.so.2)"),
    )  # fmt: skip
    libraries: tuple[Library, ...] = cuda_libraries(nccl="2.29.7", cuda="13.0", driver="590.48.01")
    told = {"facts": ordinary_facts(libraries=libraries), "threads": (*idle_threads(), idle), "memory": 14 * GB}
    ranks = [
        scheduler(n, stack, syscall="recvmsg(0x61, 0x7ffd20, 0x0)", native=native, **told)
        if seen
        else scheduler(n, memory=14 * GB, **UNSEEN)
        for n in range(4)
    ]
    log = [
        *serves(4),
        at("TP0", "Prefill batch, #new-seq: 1, #new-token: 16384, #cached-token: 0, token usage: 0.11"),
    ]
    return started(
        f"{SGLANG} --tp 4 --enable-symm-mem --chunked-prefill-size 16384", listens(), detokenizer(), helper(), ranks,
        log=log, phase=Phase.SERVING, quiet_s=700, version="0.5.19", question="no token within 60 s",
        gpus=gpus(4, name="NVIDIA B200", architecture="100", memory_used_bytes=160 * GB),
        host=host(driver="590.48.01", cuda="13.1"),
    )  # fmt: skip
