"""Machines of the tenth lot whose GPUs, driver or way between the GPUs do not answer."""

from msgspec.structs import replace
from tests.corpus.starts import (
    BARE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    base,
    begun,
    detokenizer,
    launcher,
    opened,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, scheduler, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.host import Topology
from firstlight.core.look import Leftover
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    device,
    gpu,
    gpus,
    helper,
    host,
    interface,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
)

NVML_LATE = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="nvmlInit did not come back within 5 s")
CUDA_START = (
    "set_device (torch/cuda/__init__.py:567)",
    "init_device (vllm/v1/worker/gpu_worker.py:240)",
    WORKER_MAIN,
)


def orphaned_lock(*, stuck: bool) -> Bundle:
    """A process that ended well left the driver's lock behind: whoever opens a GPU since then waits in the kernel."""
    held = {
        "state": "D",
        "wchan": "__down_common",
        "syscall": "openat(0xffffff9c, 0x7ffd10, 0x80002)",
        "path": "/dev/nvidia0",
        "kernel": (
            "__down_common",
            "__down",
            "down",
            "os_acquire_mutex",
            "nv_open_device",
            "nvidia_open",
            "chrdev_open",
        ),
        "native": ("openat (libc.so.6)", "?? (libcuda.so.1)", "cuInit (libcuda.so.1)"),
    }
    ranks = [worker(n, CUDA_START, memory=GB, **held) if stuck else worker(n, memory=GB, **UNSEEN) for n in range(2)]
    said = [
        "WARNING: CPU: 21 PID: 90121 at nvidia/nv.c:5461 nvidia_dev_put_uuid+0x9a/0xb0 [nvidia]",
        "INFO: task nvidia-smi:90655 blocked for more than 122 seconds.",
        "INFO: task VLLM::Worker_TP:4100 blocked for more than 122 seconds.",
    ]
    return started(
        "vllm serve /models/llm --tensor-parallel-size 2", base(), ranks, phase=Phase.MODEL_INIT, quiet_s=500,
        log=[*begun(), *(v(f"Worker_TP{n}", "Failed to import from vllm._flashmla_C", "cuda.py:22", "WARNING")
                         for n in range(2))],
        gpus=NVML_LATE if stuck else gpus(2, name="NVIDIA H100 NVL"), kernel_log=said if stuck else [],
        leftovers=[Leftover(pid=90655, name="nvidia-smi", state="D", age_s=5200, unseen=True)] if stuck else [],
        host=host(driver="595.71.05", cuda="13.2", kernel="6.8.0-138-generic", memory_bytes=377 * GB),
    )  # fmt: skip


def preempted(*, stuck: bool) -> Bundle:
    """One GPU of eight was cleaned up after a kill (Xid 45), and calls into its driver do not return."""
    meets = ("ncclCommInitRank (sglang/srt/distributed/device_communicators/pynccl_wrapper.py:360)",
             "__init__ (sglang/srt/distributed/device_communicators/pynccl.py:120)",
             "initialize_model_parallel (sglang/srt/distributed/parallel_state.py:1500)", SCHEDULER_MAIN)  # fmt: skip
    starts = ("set_device (torch/cuda/__init__.py:529)",
              "init_torch_distributed (sglang/srt/model_executor/model_runner.py:640)", SCHEDULER_MAIN)  # fmt: skip
    held = {
        "state": "D",
        "wchan": "rwsem_down_write_slowpath",
        "syscall": "ioctl(0x16, 0xc030464e, 0x7ffd10)",
        "kernel": ("rwsem_down_write_slowpath", "down_write", "os_acquire_rwlock_write", "rm_ioctl", "nvidia_ioctl"),
        "native": ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuDevicePrimaryCtxRetain (libcuda.so.1)"),
        "files": [device("/dev/nvidia3", fd=22)],
    }
    waits = {
        "native": ("poll (libc.so.6)", "ncclCommInitRank (libnccl.so.2)"),
        "syscall": "poll(0x7f3a10, 0x1, 0xffffffff)",
    }
    ranks = [
        scheduler(n, starts, memory=GB, **held) if stuck and n == 3 else scheduler(n, meets, memory=2 * GB, **waits)
        for n in range(8)
    ]
    ill: dict[str, object] = {
        "xid": (45,),
        "fault": "nvmlDeviceGetUtilizationRates did not come back",
        "pci": "0000:61:00.0",
    }
    cards: tuple[Gpu, ...] = tuple(gpu(n, **(ill if stuck and n == 3 else {})) for n in range(8))
    xid = "NVRM: Xid (PCI:0000:61:00): 45, pid=1496200, name=python3, Ch 000000"
    said = [
        *(f"{xid}{last}" for last in ("0a", "0b", "0c", "0d")),
        "INFO: task cache_mgr_event:620917 blocked for more than 120 seconds.",
    ]
    return started(
        f"{SGLANG} --tp 8", launcher(), detokenizer(), helper(), ranks, log=opened(8), phase=Phase.COMM_INIT,
        version="0.4.1",
        quiet_s=600, gpus=cards, kernel_log=said if stuck else [],
        host=host(driver="535.161.08", cuda="12.2", kernel="5.15.0-97-generic"),
    )  # fmt: skip


def instinct_pair(*, translated: bool) -> Bundle:
    """Two MI100 write to each other through an IOMMU that translates; the first collective does not end."""
    stack = (
        "all_reduce (torch/distributed/distributed_c10d.py:2219)",
        "_verify_param_shape_across_processes (torch/distributed/utils.py:282)",
        "__init__ (torch/nn/parallel/distributed.py:821)",
        "main (/home/ml/serve/ddp.py:44)",
    )
    rccl = (Library(path="/opt/rocm/lib/librccl.so.1", kind="nccl", version="2.18.3", build="b7"),)
    ranks = [
        rank(n, name="python", label=f"rank {n}", ppid=4050, stack=stack, state="R", cpu=1.0, memory=5 * GB,
             threads=idle_threads(), facts=ordinary_facts(libraries=rccl))
        for n in range(2)
    ]  # fmt: skip
    cards = gpus(
        2, name="AMD Instinct MI100", vendor="amd", architecture="gfx908", memory_total_bytes=32 * GB,
        memory_used_bytes=GB, fabric="not supported", power_w=34.0, power_limit_w=290.0,
    )  # fmt: skip
    cards = tuple(replace(one, peers=((1 - one.index, "ok"),)) for one in cards)
    main = process(FRONT, "torchrun", ppid=1, stack=("wait (torch/distributed/elastic/multiprocessing/api.py:250)",),
                   facts=BARE, syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)")  # fmt: skip
    way = Topology(iommu="on", acs=("0000:00:01.1", "0000:20:03.1"), bar1_bytes=32 * GB)
    told = {"topology": way if translated else Topology(iommu="passthrough", acs=(), bar1_bytes=32 * GB)}
    words = () if translated else ("iommu=pt",)
    return started(
        "torchrun --nproc_per_node 2 /home/ml/serve/ddp.py", main, process(4050, "python", facts=BARE), ranks,
        log=["gpu-a:4100:4100 [0] NCCL INFO comm 0x7f nranks 2 busId 2f000 - Init COMPLETE",
             "gpu-a:4101:4101 [1] NCCL INFO comm 0x7e nranks 2 busId 3000 - Init COMPLETE"],
        phase=Phase.COMM_INIT, quiet_s=900, ranks=2, gpus=spinning(cards, 88.0), environment={"NCCL_DEBUG": "INFO"},
        host=host(driver="amdgpu 6.3.6", cuda="", kernel="5.15.0-101-generic", kernel_command=words,
                  devices=("/dev/kfd",), **told),
    )  # fmt: skip


def other_port(*, refused: bool) -> Bundle:
    """One of four nodes asks the first for its store, at a port that it has drawn by itself."""
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:177)",
        "_tcp_rendezvous_handler (torch/distributed/rendezvous.py:150)",
        "init_process_group (torch/distributed/distributed_c10d.py:595)",
        "main (/home/u17/dart/train.py:71)",
    )
    one = process(
        FRONT, "python", ppid=1, role=Role.WORKER, rank=1, stack=stack, threads=idle_threads(), memory=2 * GB,
        syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)",
        native=("clock_nanosleep (libc.so.6)", "c10d::detail::SocketConnectOp::run (libtorch_cpu.so)",
                "c10d::TCPStore::TCPStore (libtorch_cpu.so)"),
    )  # fmt: skip
    warn = (
        "[W socket.cpp:558] [c10d] The client socket has failed to connect to [gpu01.cluster]:43879 (errno: 111 - "
        "Connection refused)."
    )
    return started(
        "python /home/u17/dart/train.py --dist-backend nccl --world-size 4 --rank 1", one,
        log=["node 1: gpu02.cluster", *([warn] * 4 if refused else [])], phase=Phase.RENDEZVOUS, quiet_s=30,
        ranks=1, nodes=4, node=1, environment={"MASTER_ADDR": "gpu01.cluster", "MASTER_PORT": "43879"},
        gpus=gpus(1, name="Tesla V100-PCIE-16GB", architecture="70", memory_total_bytes=16 * GB),
        host=host(name="gpu02", kernel="3.10.0-1160", driver="470.57.02", cuda="11.4", interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("eno1", "172.10.0.102"),
            interface("ib0", "10.10.0.102", kind="infiniband"),
        )),
    )  # fmt: skip


def expert_load() -> Bundle:
    """One of eight Sparks: a worker has stood in the loading of an expert for forty minutes, and computes."""
    stack = (
        "_load_w2 (vllm/model_executor/layers/fused_moe/layer.py:870)",
        "weight_loader (vllm/model_executor/layers/fused_moe/layer.py:1240)",
        "load_weights (vllm/model_executor/models/deepseek_v2.py:1510)",
        "load_model (vllm/v1/worker/gpu_model_runner.py:4710)",
    )
    one = rank(
        0, name="ray::RayWorkerWrapper", ppid=4061, stack=stack, state="R", cpu=1.0, memory=9 * GB,
        threads=idle_threads(), files=[socket("192.168.100.10:40112", "192.168.100.11:38110", fd=81)],
    )  # fmt: skip
    card = gpus(1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, power_limit_w=140.0,
                memory_used_bytes=77 * GB, fabric="not supported")  # fmt: skip
    return started(
        "vllm serve /models/k2 --tensor-parallel-size 8 --distributed-executor-backend ray --enforce-eager", base(),
        one,
        log=[*begun("/models/k2"), v("EngineCore", "vLLM is using nccl==2.30.4", "pynccl.py:111"),
             "(RayWorkerWrapper pid=4100) Loading safetensors checkpoint shards: 100% Completed | 119/119 [04:55]"],
        phase=Phase.WEIGHTS, quiet_s=2400, gpus=spinning(card, 13.0),
        host=host(cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=22 * GB, driver="580.142",
                  cuda="13.0", devices=("/dev/infiniband",),
                  places=(place("weights", "/models/k2", needed_bytes=550 * GB), place("home", "/root"))),
    )  # fmt: skip


def loopback(*, told: bool) -> Bundle:
    """The second of two nodes: NCCL was told to use the loopback, on which nobody of the first node listens."""
    stack = (
        "_verify_param_shape_across_processes (torch/distributed/utils.py:282)",
        "__init__ (torch/nn/parallel/distributed.py:821)",
        "main (/home/ml/msg3d/minimal_ddp.py:38)",
    )
    one = rank(
        1, name="python3", label="rank 1", ppid=FRONT, stack=stack, threads=idle_threads(), memory=3 * GB, cpu=0.01,
        native=("poll (libc.so.6)", "ncclSocketConnect (libnccl.so.2)", "bootstrapInit (libnccl.so.2)",
                "ncclCommInitRank (libnccl.so.2)"),
        syscall="poll(0x7f3a10, 0x1, 0x64)",
    )  # fmt: skip
    name = "lo:127.0.0.1" if told else "enp4s0:192.168.1.88"
    log = [
        "GPU9:10330:10330 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo" if told else "rank 1 starts",
        f"GPU9:10330:10330 [0] NCCL INFO Bootstrap : Using [0]{name}<0>",
        f"GPU9:10330:10330 [0] NCCL INFO NET/Socket : Using [0]{name}<0>",
        *(["GPU9:10330:10399 [0] NCCL INFO Call to connect returned Connection refused, retrying"] * 5 * told),
    ]
    main = process(
        FRONT, "python3 -m torch.distributed.launch", ppid=1, facts=BARE, stack=("wait (subprocess.py:1083)",)
    )
    variables = {"MASTER_ADDR": "148.251.86.20", "MASTER_PORT": "29500", "NCCL_DEBUG": "INFO"}
    return started(
        "python3 -m torch.distributed.launch --nnodes 2 --node_rank 1 --nproc_per_node 1 minimal_ddp.py", main, one,
        log=log, phase=Phase.COMM_INIT, quiet_s=20 if told else 500, ranks=1, nodes=2, node=1,
        environment={**variables, **({"NCCL_SOCKET_IFNAME": "lo"} if told else {})},
        gpus=gpus(1, name="NVIDIA GeForce RTX 2080 Ti", architecture="75", memory_total_bytes=11 * GB),
        host=host(interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("enp4s0", "192.168.1.88"),
            interface("docker0", "172.17.0.1", kind="bridge"),
        )),
    )  # fmt: skip
