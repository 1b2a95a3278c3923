"""Machines of the twelfth lot whose ranks went different ways, or do not meet."""

from tests.corpus.lots.twelfth.machines import old
from tests.corpus.starts import (
    BARE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    base,
    detokenizer,
    launcher,
    loaded,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, scheduler

from firstlight.core.bundle import Bundle
from firstlight.core.look import Listener
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    gpus,
    helper,
    host,
    interface,
    process,
    rank,
    socket,
)

SLEEPS = "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"
GLOO = (
    "pthread_cond_wait (libc.so.6)",
    "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
    "c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)",
)


def tactics(*, seen: bool) -> Bundle:
    """Each rank measured for itself which kernel is fastest; one chose another, and allocates another size."""
    outer = (
        "forward (sglang/srt/models/qwen3_moe.py:410)",
        "run_once (sglang/srt/model_executor/cuda_graph_runner.py:640)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:660)",
        "capture (sglang/srt/model_executor/cuda_graph_runner.py:520)",
        "init_device_graphs (sglang/srt/model_executor/model_runner.py:2190)",
        SCHEDULER_MAIN,
    )
    waits = (
        "barrier (torch/distributed/distributed_c10d.py:4980)",
        "__enter__ (sglang/srt/distributed/device_communicators/pynccl_allocator.py:160)",
        "forward (sglang/srt/layers/moe/fused_moe_triton/layer.py:1060)",
        *outer,
    )
    other = (
        "trtllm_bf16_moe_op (flashinfer/fused_moe/core.py:1301)",
        "trtllm_bf16_moe (flashinfer/fused_moe/core.py:2010)",
        "forward (sglang/srt/layers/moe/fused_moe_triton/layer.py:1090)",
        *outer,
    )
    registers = ("poll (libc.so.6)", "bootstrapAllGather (libnccl.so.2)", "ncclCommWindowRegister (libnccl.so.2)",
                 "nccl_alloc_plug (nccl_allocator.so)")  # fmt: skip
    ranks = [
        scheduler(n, other, native=registers, syscall="poll(0x7f3a10, 0x1, 0xffffffff)", memory=13 * GB)
        if seen and n == 5
        else scheduler(n, waits, native=GLOO, memory=13 * GB)
        for n in range(8)
    ]
    log = [
        *loaded(8),
        at("TP0", "Running FlashInfer autotune with cache: /root/.cache/sglang/.cache/flashinfer/autotune"),
        at("TP0", "FlashInfer autotune completed."),
        *(at(f"TP{n}", "Capture cuda graph begin. This can take up to several minutes. avail mem=12.41 GB")
          for n in range(8)),
        "Capturing batches (bs=144 avail_mem=9.80 GB):  56%|#####6    | 29/52 [00:41<00:31,  1.36s/it]",
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --attention-backend flashinfer --enable-symm-mem", launcher(), detokenizer(), helper(),
        ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=900, version="0.5.12",
        gpus=gpus(8, name="NVIDIA B200", architecture="100", memory_used_bytes=168 * GB),
    )  # fmt: skip


def races_ahead(*, seen: bool) -> Bundle:
    """One rank finds every tactic in its cache and goes on to the next warm-up; its peers still measure together."""
    outer = (
        "warmup (tensorrt_llm/_torch/pyexecutor/model_engine.py:690)",
        "__init__ (tensorrt_llm/_torch/pyexecutor/py_executor.py:330)",
        "create_py_executor (tensorrt_llm/_torch/pyexecutor/py_executor_creator.py:610)",
        "worker_main (tensorrt_llm/executor/worker.py:290)",
    )
    tunes = (
        "tp_allgather (tensorrt_llm/_torch/distributed/communicator.py:410)",
        "_maybe_sync_cache_data (tensorrt_llm/_torch/autotuner.py:1190)",
        "choose_one (tensorrt_llm/_torch/autotuner.py:820)",
        "forward (tensorrt_llm/_torch/modules/fused_moe/fused_moe_trtllm_gen.py:660)",
        "_run_autotuner_warmup (tensorrt_llm/_torch/pyexecutor/model_engine.py:812)",
        *outer,
    )
    past = (
        "synchronize (torch/cuda/__init__.py:1083)",
        "forward (tensorrt_llm/_torch/distributed/ops.py:720)",
        "_general_warmup (tensorrt_llm/_torch/pyexecutor/model_engine.py:780)",
        *outer,
    )
    told = {"threads": idle_threads(), "memory": 16 * GB, "ppid": FRONT}
    ranks = [
        rank(n, name="python3 -m mpi4py.futures.server", label=f"rank {n}", stack=past, state="R", cpu=1.0, **told)
        if seen and n == 2
        else rank(n, name="python3 -m mpi4py.futures.server", label=f"rank {n}", stack=tunes, state="R",
                  cpu=1.0, **told)
        for n in range(4)
    ]  # fmt: skip
    main = process(
        FRONT, "trtllm-serve", ppid=1, role=Role.FRONT, memory=2 * GB, facts=BARE,
        stack=("wait (threading.py:359)", "_create_executor (tensorrt_llm/executor/proxy.py:310)"),
    )  # fmt: skip
    log = [
        "[11/28/2026-09:14:07] [TRT-LLM] [RANK 0] [I] Run autotuning warmup ...",
        *(["[11/28/2026-09:14:08] [TRT-LLM] [RANK 2] [I] Autotuner warmup ends. Cache size after warmup is 0"]
          if seen else []),
    ]  # fmt: skip
    return started(
        "trtllm-serve /models/moe --tp_size 4 --ep_size 4 --backend pytorch", main, ranks, log=log,
        phase=Phase.WARMUP, quiet_s=1200, ranks=4,
        gpus=gpus(4, name="NVIDIA B200", architecture="100", memory_used_bytes=140 * GB),
    )  # fmt: skip


def virtual_switch(*, seen: bool) -> Bundle:
    """The second of two machines announced the address of its own virtual network, where nobody reaches it."""
    stack = (
        "_new_process_group_helper (torch/distributed/distributed_c10d.py:1530)",
        "new_group (torch/distributed/distributed_c10d.py:3900)",
        "__init__ (vllm/distributed/parallel_state.py:136)",
        "init_world_group (vllm/distributed/parallel_state.py:590)",
        "init_device (vllm/worker/worker.py:132)",
    )
    meets = ("pthread_cond_wait (libc.so.6)", "gloo::transport::tcp::Pair::waitUntilConnected (libtorch_cpu.so)",
             "gloo::rendezvous::Context::connectFullMesh (libtorch_cpu.so)",
             "c10d::ProcessGroupGloo::ProcessGroupGloo (libtorch_cpu.so)")  # fmt: skip
    told = {
        "stack": stack,
        "native": meets,
        "syscall": "futex(0x7f3a10, 0x189, 0x0)",
        "files": [
            socket("192.168.1.21:38110", "192.168.1.34:6379", fd=61),
            socket("172.17.0.1:51180", "172.17.0.2:40553", state="SYN_SENT", fd=77),
        ],
    } if seen else UNSEEN  # fmt: skip
    one = process(FRONT, "python", ppid=1, role=Role.WORKER, rank=0, threads=idle_threads(), memory=2 * GB, **told)
    log = [
        "2024-07-11 09:14:03,120 INFO worker.py:1603 -- Connected to Ray cluster.",
        old("llm_engine.py:169] Initializing an LLM engine (v0.5.1) with config: model='/mnt/d/llm/small'"),
    ]
    return started(
        "python -m vllm.entrypoints.openai.api_server --model /mnt/d/llm/small --tensor-parallel-size 2 "
        "--distributed-executor-backend ray",
        one, raylet(), log=log, phase=Phase.RENDEZVOUS, quiet_s=240, ranks=1, nodes=2, node=0, version="0.5.1",
        gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB),
        host=host(memory_bytes=32 * GB, cpus=26, interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("enp7s0f1np1", "192.168.1.21"),
            interface("docker0", "172.17.0.1", kind="bridge"),
        )),
    )  # fmt: skip


def no_way(*, seen: bool) -> Bundle:
    """The second of two instances: the first one's store does not answer, for nothing passes between them."""
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:150)",
        "_env_rendezvous_handler (torch/distributed/rendezvous.py:220)",
        "init_process_group (torch/distributed/distributed_c10d.py:500)",
        "setup (/home/ubuntu/serve/ranks.py:31)",
    )
    there = "172.31.44.19:29500"
    told = {
        "stack": stack,
        "syscall": "poll(0x7ffd10, 0x1, 0x3e8)",
        "native": ("poll (libc.so.6)", "c10d::detail::SocketConnectOp::tryConnectCore (libtorch_cpu.so)",
                   "c10d::TCPStore::TCPStore (libtorch_cpu.so)"),
    } if seen else UNSEEN  # fmt: skip
    ranks = [
        rank(n, name="python", label=f"rank {n}", ppid=FRONT, threads=idle_threads(), memory=2 * GB, **told,
             fds=(33,) if seen else (),
             files=[socket(f"172.31.20.7:5{n}022", there, state="SYN_SENT", fd=33)] if seen else [])
        for n in range(4, 8)
    ]  # fmt: skip
    main = process(FRONT, "torchrun", ppid=1, facts=BARE, syscall=SLEEPS,
                   stack=("_invoke_run (torch/distributed/elastic/agent/server/api.py:850)",))  # fmt: skip
    return started(
        "torchrun --nnodes 2 --node_rank 1 --nproc_per_node 4 --master_addr 172.31.44.19 --master_port 29500 "
        "/home/ubuntu/serve/ranks.py",
        main, ranks, log=["rank 4 waits for the others", "rank 5 waits for the others"], phase=Phase.RENDEZVOUS,
        quiet_s=600, ranks=4, nodes=2, node=1, environment={"MASTER_ADDR": "172.31.44.19", "MASTER_PORT": "29500"},
        gpus=gpus(4, name="NVIDIA A10", architecture="86", memory_total_bytes=24 * GB, memory_used_bytes=0),
        host=host(interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("ens5", "172.31.20.7"),
        )),
    )  # fmt: skip


def placement(*, seen: bool) -> Bundle:
    """Ray knows its head by the address of the fast network, and vLLM asks for a node with the other address."""
    stack = (
        "wait (ray/_private/worker.py:3010)",
        "_wait_until_pg_ready (vllm/v1/executor/ray_utils.py:470)",
        "initialize_ray_cluster (vllm/v1/executor/ray_utils.py:600)",
        "_init_executor (vllm/v1/executor/ray_executor.py:110)",
    )
    one = process(4050, "VLLM::EngineCore", role=Role.ENGINE, label="EngineCore", stack=stack, facts=BARE,
                  native=("absl::CondVar::WaitCommon (_raylet.so)",))  # fmt: skip
    want = "specs=[{'GPU': 1.0, 'node:192.168.50.19': 0.001}, {'GPU': 1.0}]"
    error = (
        "(autoscaler +11s) Error: No available node types can fulfill resource request {'GPU': 1.0, "
        "'node:192.168.50.19': 0.001}. Add suitable node types to this cluster to resolve this issue."
    )
    check = (
        "Check `ray status` and `ray list nodes` to see if you have enough resources, and make sure the IP addresses "
        "used by ray cluster are the same as VLLM_HOST_IP."
    )
    text = "Waiting for creating a placement group of specs for"
    waits = [
        v("EngineCore", "Tensor parallel size (2) exceeds available GPUs (1).", "ray_utils.py:556", "WARNING"),
        error,
        *(v("EngineCore", f"{text} {s} seconds. {want}. {check}", "ray_utils.py:464") for s in (10, 30, 70)),
    ]
    log = [
        v("APIServer", "vLLM API server version 0.20.1", "api_server.py:1839"),
        "2026-05-02 09:14:01,120 INFO worker.py:2003 -- Connected to Ray cluster.",
        *(waits if seen else []),
    ]
    card = gpus(1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, memory_used_bytes=0,
                fabric="not supported")  # fmt: skip
    return started(
        "vllm serve /models/dense35b --tensor-parallel-size 2 --distributed-executor-backend ray",
        base()[0], one, raylet(), log=log, phase=Phase.SPAWN, quiet_s=90, gpus=card,
        environment={"NCCL_SOCKET_IFNAME": "enp1s0f0np0", "GLOO_SOCKET_IFNAME": "enp1s0f0np0"},
        listeners=[Listener(host="192.168.201.10", port=6379, pid=4070)],
        host=host(cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, container="docker", interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("enP7s7", "192.168.50.19"),
            interface("enp1s0f0np0", "192.168.201.10"),
        )),
    )  # fmt: skip
