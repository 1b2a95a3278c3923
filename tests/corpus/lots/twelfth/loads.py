"""Machines of the twelfth lot that fetch a model, load it, or take memory for it."""

from tests.corpus.lots.twelfth.machines import spark, spark_host
from tests.corpus.starts import CORE_MAIN, FOR_A_PAGE, UNSEEN, WORKER_MAIN, base, begun, core, mapped, started, v
from tests.corpus.surroundings import idle_threads, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    device,
    folder,
    front,
    gpus,
    helper,
    host,
    interface,
    place,
    process,
    socket,
    thread,
)

NO_KERNEL = Gap(what="kernel stack", reason=GapReason.NO_PERMISSION, detail="only root on the machine itself may")
SAFE = (
    "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:760)",
    "get_all_weights (vllm/model_executor/model_loader/default_loader.py:240)",
    "load_weights (vllm/model_executor/models/utils.py:320)",
    "load_model (vllm/v1/worker/gpu_model_runner.py:3910)",
)


def windows_drive(*, seen: bool) -> Bundle:
    """Docker on Windows: the model lies on a drive that the virtual machine reaches over 9P, 20 MB/s."""
    path = "/app/models/vl4b-fp8/model-00001-of-00002.safetensors"
    held = {**FOR_A_PAGE, "wchan": "p9_client_rpc", "kernel": NO_KERNEL}
    moves = Moves(read_bytes=210 << 20, faults=1650, memory_bytes=208 << 20)
    one = core((*SAFE, *CORE_MAIN), files=[mapped(path, "9p")], moves=moves, memory=4 * GB, **held)
    log = [
        *begun("/app/models/vl4b-fp8", "0.11.0"),
        "Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]",
    ]
    kind = "9p" if seen else "ext4"
    weights = place("weights", "/app/models/vl4b-fp8", filesystem=kind, needed_bytes=6 * GB, slow=seen)
    return started(
        "vllm serve /app/models/vl4b-fp8 --tensor-parallel-size 1 --swap-space 2 --gpu-memory-utilization 0.85",
        front(), one if seen else core(memory=4 * GB, **UNSEEN), helper(), log=log, phase=Phase.WEIGHTS, quiet_s=70,
        motion=Motion.SLOW, pressure=Pressure(memory_some=0.0, memory_full=0.0, io_some=84.0 if seen else 1.0,
                                              cpu_some=0.5, memory_free_bytes=21 * GB),
        gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB,
                  memory_used_bytes=2 * GB),
        host=host(container="docker", kernel="6.6.87.2-microsoft-standard-WSL2", memory_bytes=31 * GB, cpus=24,
                  numa_nodes=1, places=(weights, place("home", "/root", filesystem="overlay"))),
    )  # fmt: skip


def failing_disk(*, seen: bool) -> Bundle:
    """A small model, a local disk that had been fast, and 14 MB a second."""
    path = "/nvme1/chat7b/model-00002-of-00002.safetensors"
    moves = Moves(read_bytes=142 << 20, faults=1130, memory_bytes=141 << 20)
    one = core((*SAFE, *CORE_MAIN), files=[mapped(path, "xfs", 6 * GB)], moves=moves, memory=9 * GB, **FOR_A_PAGE)
    log = [
        *begun("/nvme1/chat7b", "0.20.0"),
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [08:41<08:41, 521.1s/it]",
    ]
    return started(
        "vllm serve /nvme1/chat7b --trust-remote-code", front(), one if seen else core(memory=9 * GB, **UNSEEN),
        helper(), log=log, phase=Phase.WEIGHTS, quiet_s=330, motion=Motion.SLOW,
        pressure=Pressure(memory_some=0.0, memory_full=0.0, io_some=93.0 if seen else 0.4, cpu_some=0.2,
                          memory_free_bytes=380 * GB),
        gpus=gpus(1, name="NVIDIA A40", architecture="86", memory_total_bytes=48 * GB, memory_used_bytes=9 * GB),
        host=host(places=(place("weights", "/nvme1/chat7b", filesystem="xfs", needed_bytes=15 * GB),
                          place("home", "/root"))),
    )  # fmt: skip


def page_cache(*, seen: bool) -> Bundle:
    """One of two Sparks: the checkpoint has filled the memory that GPU and page cache share; the driver gets none."""
    stack = (
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4790)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)",
        WORKER_MAIN,
    )
    short = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from"
    said = [f"{short} _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"] * 4
    log = [
        *begun("/models/flash-fp4", "0.25.1"),
        "Loading safetensors checkpoint shards: 100% Completed | 41/41 [09:12<00:00, 13.5s/it]",
        v("Worker_TP0", "Model loading took 78.31 GiB memory and 561.2 seconds", "gpu_model_runner.py:4790"),
    ]
    squeezed = Pressure(memory_some=61.0, memory_full=44.0, io_some=30.0, cpu_some=3.0, memory_free_bytes=5 * GB,
                        swapped_in=810_000, swapped_out=1_940_000)  # fmt: skip
    one = worker(0, stack, state="R", cpu=1.0, memory=7 * GB, files=[device("/dev/nvidia-uvm", fd=23)])
    blind = worker(0, state="R", cpu=1.0, memory=7 * GB, **{**UNSEEN, "syscall": "running"})
    return started(
        "vllm serve /models/flash-fp4 --tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 192.168.40.1 "
        "--gpu-memory-utilization 0.84 --max-model-len 262144",
        base(), one if seen else blind, log=log, phase=Phase.KV_CACHE, quiet_s=800, ranks=1,
        kernel_log=said if seen else [], gpus=spinning([spark(memory_used_bytes=104 * GB)], 14.0),
        pressure=squeezed if seen else Pressure(), host=spark_host(
            memory_free_bytes=5 * GB if seen else 40 * GB, swap_bytes=16 * GB, devices=("/dev/infiniband",),
            interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("enp1s0f0np0", "192.168.40.1"))),
    )  # fmt: skip


def pool(*, seen: bool) -> Bundle:
    """A server of cached states takes its whole pool of host memory from the driver before it listens."""
    native = ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuMemHostAlloc (libcuda.so.1)",
              "cudaHostAlloc (libcudart.so.13)", "pegaflow_core::pinned::allocate (pegaflow-server)",
              "pegaflow_server::main (pegaflow-server)")  # fmt: skip
    told = {"native": native} if seen else UNSEEN
    main = process(
        FRONT, "pegaflow-server", ppid=1, role=Role.FRONT, state="R", cpu=1.0, memory=2 * GB,
        files=[device("/dev/nvidiactl", fd=9), device("/dev/nvidia0", fd=11)],
        threads=[thread(name="tokio-runtime-w", syscall="epoll_wait(0x5, 0x7f20, 0x400, 0xffffffff)")], **told,
    )  # fmt: skip
    log = ["2026-05-14T09:14:07.120Z  INFO pegaflow_server: Allocating pinned memory pool of 900 GiB, 1 shard"]
    return started(
        "pegaflow-server --addr 0.0.0.0:50055 --device 0 --pool-size 900gb", main, log=log, phase=Phase.MODEL_INIT,
        quiet_s=200, motion=Motion.QUIET, ranks=0,
        gpus=gpus(1, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=GB),
        host=host(memory_bytes=1500 * GB, memory_free_bytes=980 * GB),
    )  # fmt: skip


def blocked_name(*, seen: bool) -> Bundle:
    """The hub's list of files came; the firewall lets nobody to the host that has the files."""
    waits = (
        "wait (threading.py:359)",
        "snapshot_download (huggingface_hub/_snapshot_download.py:420)",
        "download_weights_from_hf (vllm/model_executor/model_loader/weight_utils.py:470)",
        "_prepare_weights (vllm/model_executor/model_loader/default_loader.py:120)",
        *CORE_MAIN,
    )
    connects = (
        "create_connection (urllib3/util/connection.py:73)",
        "_new_conn (urllib3/connection.py:198)",
        "send (requests/adapters.py:644)",
        "http_get (huggingface_hub/file_download.py:420)",
        "hf_hub_download (huggingface_hub/file_download.py:1010)",
        "run (concurrent/futures/thread.py:59)",
    )
    tries = [
        thread(connects, name=f"ThreadPoolExecutor-1_{n}", syscall="poll(0x7ffd10, 0x1, 0x2710)", fds=(60 + n,))
        for n in range(4)
    ]
    files = [socket("192.168.1.70:41290", "3.165.190.8:443", fd=55)] + [
        socket(f"192.168.1.70:4130{n}", "18.155.68.119:443", state="SYN_SENT", fd=60 + n) for n in range(4)
    ]
    seen_core = core(waits, threads=(*idle_threads(), *tries), files=files, memory=2 * GB)
    log = [
        *begun("org/dense12b", "0.21.0"),
        "Downloading (incomplete total...):   0%|          | 0.00/24.5G [00:00<?, ?B/s]",
        "Fetching 19 files:   0%|          | 0/19 [00:00<?, ?it/s]",
    ]
    return started(
        "vllm serve org/dense12b --max-model-len 16384", front(),
        seen_core if seen else core(memory=2 * GB, **UNSEEN), helper(), log=log, phase=Phase.WEIGHTS, quiet_s=420,
        folders=[folder("download", "/root/.cache/huggingface/hub/models--org--dense12b/blobs", files=4,
                        newest_ago_s=420)] if seen else [],
        environment={"HF_HUB_DISABLE_XET": "1"},
        gpus=gpus(1, name="NVIDIA GeForce RTX 3090", architecture="86", memory_total_bytes=24 * GB),
        host=host(container="docker", interfaces=(interface("lo", "127.0.0.1", kind="loopback"),
                                                  interface("eth0", "192.168.1.70", kind="virtual"))),
    )  # fmt: skip


def gemma() -> Bundle:
    """A model of 4B in a container: 9 GB of GPU memory are taken, nothing moves, and nobody looked into it."""
    one = core(memory=3 * GB, **UNSEEN)
    log = [
        *begun("google/gemma-3-4b-it", "0.11.0"),
        v("EngineCore_DP0", "Starting to load model google/gemma-3-4b-it...", "gpu_model_runner.py:2602"),
        v("EngineCore_DP0", "Loading model from scratch...", "gpu_model_runner.py:2634"),
        v("EngineCore_DP0", "Using Flash Attention backend on V1 engine.", "cuda.py:366"),
    ]
    return started(
        "vllm serve google/gemma-3-4b-it --port 8000", front(), one, helper(), log=log, phase=Phase.WEIGHTS,
        quiet_s=2600,
        gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB,
                  memory_used_bytes=9 * GB),
        host=host(container="docker", shm_bytes=64 << 20, shm_used_bytes=0),
    )  # fmt: skip
