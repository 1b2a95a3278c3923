"""Machines of the tenth lot that stand still for a reason that nobody found, or that nobody could see."""

from tests.corpus.lots.tenth.divided import GLOO
from tests.corpus.starts import (
    BARE,
    NO_NATIVE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    base,
    begun,
    broadcasts,
    detokenizer,
    launcher,
    loaded,
    opened,
    started,
    v,
)
from tests.corpus.surroundings import (
    FIRST_ALL_REDUCE,
    IDLE_WORKER,
    idle_threads,
    pcie_gpus,
    scheduler,
    spinning,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    front,
    gpus,
    helper,
    host,
    interface,
    place,
    process,
    rank,
    socket,
    thread,
)

NO_SYSFS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
UNKNOWN_WAY = Topology(iommu=NO_SYSFS, acs=NO_SYSFS, bar1_bytes=48 * GB)
QUESTION = "no token within 60 s"


def two_ampere() -> Bundle:
    log = [
        "INFO 03-10 11:40:02 api_server.py:912] vLLM API server version 0.7.3",
        "INFO 03-10 11:40:19 pynccl.py:69] vLLM is using nccl==2.21.5",
        "(VllmWorkerProcess pid=4101) INFO 03-10 11:40:19 pynccl.py:69] vLLM is using nccl==2.21.5",
    ]
    told = {"state": "R", "cpu": 1.0, "native": NO_NATIVE, "threads": idle_threads(), "stack": FIRST_ALL_REDUCE[:3]}
    ranks = [
        process(4100, "python", role=Role.ENGINE, rank=0, label="MQLLMEngine", **told),  # type: ignore[arg-type]
        process(4101, "python", role=Role.WORKER, rank=1, label="VllmWorkerProcess", ppid=4100, **told),  # type: ignore
    ]
    return started(
        "vllm serve /models/qwq-awq --tensor-parallel-size 2 --disable-custom-all-reduce --enforce-eager",
        front(stack=("wait (vllm/engine/multiprocessing/client.py:150)",), label=""), ranks, log=log,
        phase=Phase.COMM_INIT,
        quiet_s=1200,
        gpus=spinning(pcie_gpus(2, "NVIDIA RTX A6000", architecture="86", memory_total_bytes=48 * GB), 92.0),
        host=host(topology=UNKNOWN_WAY, driver="565.57.01", cuda="12.7"),
    )  # fmt: skip


def glm() -> Bundle:
    log = [
        *begun("/models/glm", "0.10.1"),
        *(
            v(f"Worker_TP{n}", "Model loading took 83.34 GiB and 96.110 seconds", "gpu_model_runner.py:2007")
            for n in range(8)
        ),
        *(
            v("APIServer", "Waiting for 1 local, 0 remote core engine proc(s) to start.", "utils.py:777", "DEBUG")
            for _ in range(6)
        ),
    ]
    return started(
        "vllm serve /models/glm --max-model-len 32768 --enforce-eager -tp 8", base(),
        [rank(n, threads=idle_threads(), memory=9 * GB, **UNSEEN) for n in range(8)], log=log, phase=Phase.MODEL_INIT,
        quiet_s=900, gpus=gpus(8, memory_used_bytes=67 * GB),
        environment={"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_TRACE_FUNCTION": "1"},
    )  # fmt: skip


def once_a_minute() -> Bundle:
    """Everything is captured and the server is up; then the engine core finds no free block."""
    log = [
        *begun("/models/vl", "0.11.0"),
        v("EngineCore_DP0", "GPU KV cache size: 162,704 tokens", "kv_cache_utils.py:1087"),
        "Capturing CUDA graphs (decode, FULL): 100%|##########| 67/67 [00:04<00:00, 14.62it/s]",
        v("APIServer", "Application startup complete.", "on.py:62"),
        *broadcasts("EngineCore_DP0"),
    ]
    main = front(
        stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"
    )
    ranks = [worker(0, IDLE_WORKER, cpu=0.02), rank(1, threads=idle_threads(), cpu=1.0, state="R", **UNSEEN)]
    cards = pcie_gpus(2, "NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB)
    return started(
        "vllm serve /models/vl --tensor-parallel-size 2 --max-model-len 16000", main, base()[1:], ranks, log=log,
        phase=Phase.SERVING, quiet_s=500, question=QUESTION, listeners=[Listener(host="0.0.0.0", port=8000,
        pid=FRONT)],
        gpus=(cards[0], *spinning(cards[1:], 88.0)),
        host=host(topology=UNKNOWN_WAY),
    )  # fmt: skip


def radeon_capture() -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:1083)",
        "graph_capture (vllm/distributed/parallel_state.py:1390)",
        "capture_model (vllm/v1/worker/gpu_model_runner.py:5210)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:470)",
        WORKER_MAIN,
    )
    cards = gpus(4, name="AMD Radeon AI PRO R9700", vendor="amd", architecture="gfx1201", memory_total_bytes=32 * GB,
                 memory_used_bytes=29 * GB, power_w=71.0, power_limit_w=300.0, fabric="not supported")  # fmt: skip
    log = [
        *begun("/models/llm", "0.19.0"),
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]",
        *broadcasts("EngineCore"),
    ]
    return started(
        "vllm serve /models/llm --tensor-parallel-size 4", base(), workers(4, stack, state="R", cpu=1.0,
        native=NO_NATIVE),
        log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=1100, gpus=spinning(cards, 71.0),
        host=host(driver="amdgpu 6.16.6", cuda="", devices=("/dev/kfd",), container="docker", topology=UNKNOWN_WAY),
    )  # fmt: skip


def head_is_done() -> Bundle:
    """The head of a pair has tuned its kernels, and waits at a barrier for the other Spark, which nobody sees."""
    waits = (
        "barrier (torch/distributed/distributed_c10d.py:4980)",
        "barrier (vllm/distributed/parallel_state.py:1080)",
        "kernel_warmup (vllm/model_executor/warmup/kernel_warmup.py:95)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:480)",
        WORKER_MAIN,
    )
    card = gpus(1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, memory_used_bytes=88 * GB,
                power_w=11.0, power_limit_w=140.0, fabric="not supported")  # fmt: skip
    log = [
        *begun("/models/flash-fp4", "0.28.0"),
        v("Worker_TP0", "Config cache hit for trtllm::fused_moe::gemm1", "autotuner.py:512"),
        v("Worker_TP0", "Config cache hit for trtllm::fused_moe::gemm2", "autotuner.py:512"),
    ]
    mesh = socket("10.100.0.14:38112", "10.100.0.15:41870", fd=77)
    return started(
        "vllm serve /models/flash-fp4 --tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 10.100.0.14",
        base(),
        worker(0, waits, native=GLOO, files=[mesh], memory=8 * GB), log=log, phase=Phase.WARMUP, quiet_s=420,
        motion=Motion.QUIET, gpus=card,
        host=host(cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=14 * GB, interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("enp1s0f1", "10.100.0.14"),
        )),
    )  # fmt: skip


def new_group() -> Bundle:
    """One of two nodes: its eight ranks make a group, and wait for what the other node's ranks would say of it."""
    makes = (
        "_new_group_with_tag (torch/distributed/distributed_c10d.py:5310)",
        "new_group (torch/distributed/distributed_c10d.py:5190)",
        "__init__ (sglang/srt/managers/cache_controller.py:300)",
        "__init__ (sglang/srt/mem_cache/hiradix_cache.py:140)",
        "init_memory_pool_and_cache (sglang/srt/managers/scheduler.py:680)",
        SCHEDULER_MAIN,
    )
    native = ("poll (libc.so.6)", "c10d::detail::TCPClient::receiveValue (libtorch_cpu.so)",
              "c10d::TCPStore::wait (libtorch_cpu.so)")  # fmt: skip
    ranks = [
        scheduler(
            n, makes, native=native, syscall="poll(0x7f3a10, 0x1, 0x1b7740)", memory=14 * GB, label=f"PP0 TP{n}",
            name=f"sglang::scheduler_PP0_TP{n}",
            files=[socket("10.0.0.2:44012", "10.0.0.2:20000", fd=61, peers=(4100,))],
        )
        for n in range(8)
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --pp 2 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.2:20000 "
        "--enable-hierarchical-cache --hicache-storage-backend file",
        launcher(), detokenizer(), helper(), ranks, quiet_s=700, version="0.5.6",
        log=[line.replace(" TP", " PP0 TP") for line in loaded(8)], phase=Phase.KV_CACHE,
        gpus=gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=88 * GB),
    )  # fmt: skip


def moon_shards() -> Bundle:
    """Shards came from HDFS; then nothing, and nobody looked where the ranks stand."""
    where = "/mnt/hdfs/llm_platform/thinking"
    ranks = [
        rank(n, name=f"sglang::scheduler_TP{n}", label=f"TP{n}", ppid=FRONT, threads=idle_threads(), cpu=0.5,
             memory=38 * GB, **UNSEEN)
        for n in range(8)
    ]  # fmt: skip
    log = [*opened(8), "Multi-thread loading shards: 100% Completed | 62/62 [19:41<00:00, 19.05s/it]"]
    return started(
        f"python -m sglang.launch_server --model-path {where} --tp 8 --trust-remote-code", launcher(), detokenizer(),
        helper(), ranks, log=log, phase=Phase.WEIGHTS, quiet_s=900, version="0.5.6",
        gpus=gpus(8, name="NVIDIA H20-3e", memory_total_bytes=141 * GB, memory_used_bytes=77 * GB),
        host=host(places=(place("weights", where, filesystem="fuse.hdfs", needed_bytes=594 * GB), place("home",
        "/root"))),
    )  # fmt: skip


def one_triton() -> Bundle:
    """Two tritonservers under MPI load an engine for two GPUs, and print nothing after their sizes."""
    servers = [
        process(
            4100 + n, "tritonserver", ppid=4050, role=Role.WORKER, rank=n, label=f"rank {n}", facts=BARE,
            memory=15 * GB,
            native=("pthread_join (libc.so.6)", "triton::core::ModelLifeCycle::AsyncLoad (libtritonserver.so)"),
            threads=[thread(name="tritonserver", state="R")],
        )
        for n in range(2)
    ]  # fmt: skip
    main = process(FRONT, "python3", ppid=1, role=Role.FRONT, facts=BARE, stack=("wait (subprocess.py:1264)",))
    orted = process(
        4050, "mpirun", facts=BARE, native=("poll (libc.so.6)", "event_base_loop (libevent_core-2.1.so.7)")
    )
    log = [
        'I0318 09:14:07.202811 121 model_lifecycle.cc:469] "loading: tensorrt_llm:1"',
        "[TensorRT-LLM][INFO] MPI size: 2, rank: 0",
        "[TensorRT-LLM][INFO] MPI size: 2, rank: 1",
        "[TensorRT-LLM][INFO] Loaded engine size: 6431 MiB",
    ]
    return started(
        "python3 scripts/launch_triton_server.py --world_size 2 --model_repo=/models/repo", main, orted, servers,
        log=log,
        phase=Phase.MODEL_INIT, quiet_s=1300, ranks=2,
        gpus=spinning(gpus(2, name="NVIDIA A100-SXM4-80GB", architecture="80", memory_used_bytes=8 * GB), 84.0),
        host=host(container="docker"),
    )  # fmt: skip


def mii() -> Bundle:
    """DeepSpeed-MII waits for its server, of whose processes nobody looked at the stacks."""
    waits = (
        "_wait_until_server_is_live (mii/server.py:113)",
        "__init__ (mii/server.py:48)",
        "<module> (serve.py:14)",
    )
    main = process(FRONT, "python", ppid=1, role=Role.FRONT, stack=waits, facts=BARE, syscall="clock_nanosleep(0x0)")
    ranks = [
        rank(n, name="python -m mii.launch.multi_gpu_server", label=f"rank {n}", ppid=4050, memory=GB, **UNSEEN)
        for n in range(2)
    ]
    spawner = process(
        4050, "deepspeed.launcher.launch", facts=BARE, stack=("sleep (deepspeed/launcher/launch.py:350)",)
    )
    return started(
        "python serve.py --tensor-parallel 2", main, spawner, ranks,
        log=[
            "[2023-08-08 09:14:07,1] [INFO] [server.py:114:_wait_until_server_is_live] waiting for server to start..."
        ] * 9,
        phase=Phase.SPAWN, quiet_s=900, ranks=2, motion=Motion.QUIET,
        gpus=pcie_gpus(4, "NVIDIA A30", architecture="80", memory_total_bytes=24 * GB),
    )  # fmt: skip
