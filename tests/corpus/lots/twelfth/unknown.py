"""Machines of the twelfth lot of which what was seen does not decide why they wait."""

from tests.corpus.lots.twelfth.machines import old, spark, spark_host
from tests.corpus.starts import (
    BARE,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    at,
    base,
    begun,
    broadcasts,
    detokenizer,
    launcher,
    loaded,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, scheduler, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.host import Topology
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    cuda_libraries,
    front,
    gpus,
    helper,
    host,
    interface,
    ordinary_facts,
    process,
    rank,
    socket,
)


def two_cards() -> Bundle:
    """NCCL says its version and no more; neither process may be read, and the way between the cards is not known."""
    driver = process(FRONT, "python", ppid=1, role=Role.WORKER, rank=0, state="R", cpu=1.0, memory=3 * GB,
                     threads=idle_threads(), **{**UNSEEN, "syscall": "running"})  # fmt: skip
    other = rank(1, name="python", label="VllmWorkerProcess 1", ppid=FRONT, state="R", cpu=1.0, memory=3 * GB,
                 threads=idle_threads(), **{**UNSEEN, "syscall": "running"})  # fmt: skip
    plugin = (
        "node-o1:4000:4000 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No "
        "such file or directory No plugin found (libnccl-net.so), using internal implementation"
    )
    log = [
        old("llm_engine.py:184] Initializing an LLM engine (v0.5.5) with config: model='/models/llm'"),
        f"(VllmWorkerProcess pid=4101) {old('multiproc_worker_utils.py:215] Worker ready; awaiting tasks')}",
        old("utils.py:975] Found nccl from library libnccl.so.2"),
        old("pynccl.py:63] vLLM is using nccl==2.20.5"),
        f"(VllmWorkerProcess pid=4101) {old('pynccl.py:63] vLLM is using nccl==2.20.5')}",
        "node-o1:4000:4000 [0] NCCL INFO Bootstrap : Using eno1:10.174.136.27<0>",
        plugin,
    ]
    cards = pcie_gpus(2, "NVIDIA A40", architecture="86", memory_total_bytes=48 * GB, memory_used_bytes=GB)
    return started(
        "python -m vllm.entrypoints.openai.api_server --model /models/llm --tensor-parallel-size 2", driver, other,
        log=log, phase=Phase.COMM_INIT, quiet_s=1700, version="0.5.5", environment={"NCCL_DEBUG": "TRACE"},
        gpus=spinning(cards, 84.0), host=host(topology=Topology(), driver="550.90.07", cuda="12.4"),
    )  # fmt: skip


def eight_blackwell() -> Bundle:
    """Eight B200: all ranks compute in the making of the communicator, and what NCCL does there was not read."""
    stack = (
        "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:140)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1410)",
        "init_device (vllm/v1/worker/gpu_worker.py:290)",
        WORKER_MAIN,
    )
    ranks = [worker(n, stack, state="R", cpu=1.0, memory=3 * GB) for n in range(8)]
    log = [
        *begun("/models/r1", "0.19.0"),
        *(v(f"Worker_TP{n}", f"world_size=8 rank={n} local_rank={n} distributed_init_method=tcp://127.0.0.1:43311 "
            "backend=nccl", "parallel_state.py:1400") for n in range(8)),
        v("Worker_TP0", "vLLM is using nccl==2.27.5", "pynccl.py:111"),
    ]  # fmt: skip
    return started(
        "vllm serve /models/r1 --tensor-parallel-size 8 --trust-remote-code", base(), ranks, log=log,
        phase=Phase.COMM_INIT, quiet_s=1500,
        gpus=gpus(8, name="NVIDIA B200", architecture="100", memory_used_bytes=2 * GB),
        host=host(cpus=256, driver="580.126.09", cuda="13.0"),
    )  # fmt: skip


def two_blackwell() -> Bundle:
    """Two B200 in a container: silent after NCCL's version, and the container may not be read."""
    ranks = [worker(n, memory=3 * GB, state="R", cpu=1.0, **{**UNSEEN, "syscall": "running"}) for n in range(2)]
    log = [
        "INFO 07-12 09:14:01 [api_server.py:1287] vLLM API server version 0.9.1",
        "INFO 07-12 09:14:19 [core.py:70] Initializing a V1 LLM engine (v0.9.1) with config: model='/models/70b-fp8'",
        *(f"(VllmWorker rank={n} pid={4100 + n}) INFO 07-12 09:14:31 [pynccl.py:70] vLLM is using nccl==2.26.2"
          for n in range(2)),
    ]  # fmt: skip
    return started(
        "vllm serve /models/70b-fp8 --port 8888 --tensor-parallel-size 2 --distributed-executor-backend mp "
        "--quantization modelopt --max-model-len 3072",
        base(), ranks, log=log, phase=Phase.COMM_INIT, quiet_s=2200,
        gpus=spinning(gpus(2, name="NVIDIA B200", architecture="100", memory_used_bytes=2 * GB), 190.0),
        host=host(container="docker", driver="575.57.08", cuda="12.9"),
    )  # fmt: skip


def first_of_two_nodes() -> Bundle:
    """Graphs are captured on two nodes; here all eight ranks wait at the card, and the other node was not seen."""
    stack = (
        "synchronize (torch/cuda/__init__.py:954)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:385)",
        "capture (sglang/srt/model_executor/cuda_graph_runner.py:290)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:1780)",
    )
    ranks = [scheduler(n, stack, state="R", cpu=1.0, memory=9 * GB,
                       files=[socket(f"10.2.0.4:4{n}110", "10.2.0.5:20000", fd=71)]) for n in range(8)]  # fmt: skip
    op = "batch_decode_with_kv_cache_dtype_q_f16_dtype_kv_f16_dtype_o_f16_dtype_idx_i32_head_dim_qk_256"
    log = [
        *loaded(8),
        *(at(f"TP{n}", "Capture cuda graph begin. This can take up to several minutes.") for n in range(8)),
        *(f"2025-03-03 18:46:45,0{n}9 - INFO - flashinfer.jit: Loading JIT ops: {op}" for n in range(8)),
        *(f"2025-03-03 18:46:45,1{n}9 - INFO - flashinfer.jit: Finished loading JIT ops: {op}" for n in range(8)),
        "  0%|          | 0/23 [00:00<?, ?it/s]",
    ]
    return started(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.2.0.4:20000 --trust-remote-code",
        launcher(), detokenizer(), helper(), ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=1400,
        version="0.4.3",
        gpus=spinning(gpus(8, name="NVIDIA A100-SXM4-80GB", architecture="80", memory_used_bytes=74 * GB), 88.0),
        host=host(devices=("/dev/infiniband",), interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("bond0", "10.2.0.4"),
            interface("ib0", "10.10.0.4", kind="infiniband"),
        )),
    )  # fmt: skip


def one_of_two_boxes() -> Bundle:
    """A pair of Sparks under load: this box's rank gathers, and where the other one stands nobody saw."""
    stack = (
        "all_gather (vllm/distributed/device_communicators/pynccl.py:210)",
        "all_gather (vllm/distributed/device_communicators/cuda_communicator.py:330)",
        "_gather_logits (vllm/model_executor/layers/logits_processor.py:90)",
        "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3630)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:840)",
        WORKER_MAIN,
    )
    facts = ordinary_facts(libraries=cuda_libraries(nccl="2.30.7", cuda="13.0", driver="580.142"))
    one = worker(0, stack, state="R", cpu=1.0, memory=9 * GB, facts=facts,
                 files=[socket("192.168.40.1:41030", "192.168.40.2:29501", fd=66)])  # fmt: skip
    log = [
        *begun("/models/moe-fp4", "0.25.1"),
        v("APIServer", "Application startup complete.", "on.py:48"),
        v("APIServer", '127.0.0.1:51214 - "POST /v1/chat/completions HTTP/1.1" 200 OK', "httptools_impl.py:476"),
        *broadcasts(),
    ]
    return started(
        "vllm serve /models/moe-fp4 --tensor-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 192.168.40.1",
        base(), one, log=log, phase=Phase.SERVING, quiet_s=280, ranks=1, question="no token within 60 s",
        gpus=spinning([spark(memory_used_bytes=99 * GB)], 31.0), host=spark_host(devices=("/dev/infiniband",)),
    )  # fmt: skip


def barrier() -> Bundle:
    """One of two nodes on Ray: its eight ranks wait in a barrier of gloo that the other node would have to join."""
    stack = (
        "barrier (torch/distributed/distributed_c10d.py:5356)",
        "in_the_same_node_as (vllm/distributed/parallel_state.py:2267)",
        "create_from_process_group (vllm/distributed/device_communicators/shm_broadcast.py:1022)",
        "__init__ (vllm/distributed/parallel_state.py:519)",
        "init_model_parallel_group (vllm/distributed/parallel_state.py:1328)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1838)",
        "init_device (vllm/v1/worker/gpu_worker.py:290)",
    )
    native = ("pthread_cond_wait (libc.so.6)", "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
              "gloo::barrier (libtorch_cpu.so)")  # fmt: skip
    ranks = [
        rank(n, name="ray::RayWorkerProc", label=f"rank {n}", ppid=4061, stack=stack, native=native, memory=3 * GB,
             threads=idle_threads(), files=[socket(f"10.6.0.3:4{n}210", "10.6.0.9:38110", fd=81)])
        for n in range(8)
    ]  # fmt: skip
    log = [
        v("APIServer", "vLLM API server version 0.26.1", "api_server.py:1839"),
        v("EngineCore", "Initializing a V1 LLM engine (v0.26.1) with config: model='/models/r1'", "core.py:110"),
        *(f"(RayWorkerProc pid={4100 + n}) INFO 08-19 09:14:31 [parallel_state.py:1607] world_size=16 rank={n} "
          f"local_rank={n} distributed_init_method=tcp://10.6.0.3:52011 backend=nccl" for n in range(8)),
    ]  # fmt: skip
    return started(
        "vllm serve /models/r1 --tensor-parallel-size 16 --distributed-executor-backend ray", base(), raylet(), ranks,
        log=log, phase=Phase.COMM_INIT, quiet_s=1000, gpus=gpus(8, memory_used_bytes=GB),
        host=host(devices=("/dev/infiniband",)),
    )  # fmt: skip


def spawned() -> Bundle:
    """trtllm-serve has begun to build its model, and says no more; nobody gave a stack."""
    main = process(FRONT, "trtllm-serve", ppid=1, role=Role.FRONT, memory=2 * GB, facts=BARE, **UNSEEN)
    one = rank(0, name="python3 -m mpi4py.futures.server", label="rank 0", ppid=FRONT, memory=4 * GB, **UNSEEN)
    log = [
        "2025-07-02 09:14:07,120 - INFO - flashinfer.jit: Prebuilt kernels not found, using JIT backend",
        "[TensorRT-LLM] TensorRT-LLM version: 0.20.0",
        "rank 0 using MpiPoolSession to spawn MPI processes",
    ]
    return started(
        "trtllm-serve org/llama8b --host 0.0.0.0 --port 8000", main, one, log=log, phase=Phase.SPAWN, quiet_s=1900,
        ranks=1, gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB),
        host=host(container="docker", shm_bytes=8 * GB),
    )  # fmt: skip


def old_instinct() -> Bundle:
    """A fork for old AMD cards serves; its first request does not come back, and the workers may not be read."""
    ranks = [worker(n, memory=8 * GB, state="R", cpu=1.0, **{**UNSEEN, "syscall": "running"}) for n in range(4)]
    cards = gpus(4, name="AMD Instinct MI50", vendor="amd", architecture="gfx906", memory_total_bytes=32 * GB,
                 memory_used_bytes=29 * GB, power_limit_w=225.0, power_w=24.0, fabric="not supported")  # fmt: skip
    log = [
        *begun("/models/next80b-awq", "0.11.0"),
        v("APIServer", "Application startup complete.", "on.py:48"),
        *broadcasts("EngineCore_DP0"),
    ]
    listening = front(stack=("run_forever (asyncio/base_events.py:608)",),
                      syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)")  # fmt: skip
    return started(
        "vllm serve /models/next80b-awq --tensor-parallel-size 4 --compilation-config '{\"level\":3}'", listening,
        base()[1], helper(), ranks, log=log, phase=Phase.SERVING, quiet_s=310, question="no token within 60 s",
        gpus=spinning(cards, 71.0), host=host(driver="amdgpu 6.3.6", cuda="", devices=("/dev/kfd",)),
    )  # fmt: skip
