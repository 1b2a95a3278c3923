"""Machines of the tenth lot whose ranks went different ways, or of which one is gone."""

from collections.abc import Sequence

from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    SCHEDULER_MAIN,
    SGLANG,
    WORKER_MAIN,
    at,
    base,
    begun,
    broadcasts,
    detokenizer,
    launcher,
    listens,
    serves,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, scheduler, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    GB,
    Made,
    Moves,
    cuda_libraries,
    ended,
    engine,
    folder,
    front,
    gpus,
    helper,
    host,
    interface,
    ordinary_facts,
    pipe,
    place,
    process,
    socket,
    thread,
)

BUSY_LOOP = ("worker_busy_loop (vllm/v1/executor/multiproc_executor.py:840)", WORKER_MAIN)
DRAFTS = (
    "all_gatherv (vllm/distributed/device_communicators/cuda_communicator.py:290)",
    "dispatch (vllm/distributed/device_communicators/all2all.py:60)",
    "forward (vllm/model_executor/layers/fused_moe/layer.py:1910)",
    "forward (vllm/model_executor/models/qwen3_5_mtp.py:212)",
    "propose (vllm/v1/spec_decode/eagle.py:420)",
    "propose_draft_token_ids (vllm/v1/worker/gpu_model_runner.py:4020)",
    "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3630)",
    *BUSY_LOOP,
)
COORDINATES = (
    "all_reduce (torch/distributed/distributed_c10d.py:3007)",
    "_run_ar (vllm/v1/worker/dp_utils.py:48)",
    "coordinate_batch_across_dp (vllm/v1/worker/dp_utils.py:210)",
    "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4790)",
    "execute_dummy_batch (vllm/v1/worker/gpu_worker.py:690)",
    *BUSY_LOOP,
)
GLOO = (
    "pthread_cond_wait (libc.so.6)",
    "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
    "c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)",
)


def drafter(*, apart: bool) -> Bundle:
    """Near the longest sequence one data-parallel rank drafts, and the other holds that nothing is to be drafted."""
    names = [
        {"name": f"VLLM::Worker_DP{n}_EP{n}", "label": f"Worker_DP{n}_EP{n}", "memory": 9 * GB} for n in range(2)
    ]
    ranks = [
        worker(0, DRAFTS, state="R", cpu=1.0, **names[0]),
        worker(1, COORDINATES, native=GLOO, **names[1])
        if apart
        else worker(1, DRAFTS, state="R", cpu=1.0, **names[1]),
    ]  # fmt: skip
    cards = gpus(2, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=84 * GB)
    log = [
        *begun("/models/moe35b", "0.22.0"),
        v("APIServer", "Application startup complete.", "on.py:48"),
        v("APIServer", '127.0.0.1:51214 - "POST /v1/completions HTTP/1.1" 200 OK', "httptools_impl.py:476"),
        *broadcasts("EngineCore_DP0"),
        *broadcasts("EngineCore_DP1"),
    ]
    return started(
        "vllm serve /models/moe35b --max-model-len 2048 --data-parallel-size 2 --enable-expert-parallel "
        "--enforce-eager --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'",
        front(stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"),
        engine(label="EngineCore_DP0"), second_core(), helper(), ranks, log=log, phase=Phase.SERVING, quiet_s=400,
        question="no token within 60 s",
        gpus=(*spinning(cards[:1], 131.0), *(cards[1:] if apart else spinning(cards[1:], 131.0))),
    )  # fmt: skip


def second_core() -> Made:
    waits = "acquire_write (vllm/distributed/device_communicators/shm_broadcast.py:500)"
    return process(
        4051, "VLLM::EngineCore_DP1", role=Role.ENGINE, label="EngineCore_DP1", facts=BARE, stack=(waits,
        *CORE_MAIN[2:]),
        syscall="poll(0x7f3a10, 0x1, 0x3e8)",
    )  # fmt: skip


def warm_tuner(*, hits: bool) -> Bundle:
    """Two of four ranks find what they look for in a persisted cache, and skip what the others measure together."""
    warm_up = (
        "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4790)",
        "flashinfer_autotune (vllm/model_executor/warmup/kernel_warmup.py:130)",
        "kernel_warmup (vllm/model_executor/warmup/kernel_warmup.py:60)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:480)",
        WORKER_MAIN,
    )
    moe = (
        "trtllm_fp4_block_scale_moe (flashinfer/fused_moe/core.py:1810)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1910)",
    )
    tunes = (
        "all_reduce (torch/distributed/distributed_c10d.py:3007)",
        "_profile_single_kernel (flashinfer/autotuner.py:812)",
        "choose_one (flashinfer/autotuner.py:540)",
        *moe,
        *warm_up,
    )
    past = (
        "barrier (torch/distributed/distributed_c10d.py:4980)",
        "barrier (vllm/distributed/parallel_state.py:1080)",
        *warm_up[1:],
    )
    ranks = [
        worker(number, past, native=GLOO, memory=11 * GB)
        if hits and number in {0, 2}
        else worker(number, tunes, native=GLOO, memory=11 * GB)
        for number in range(4)
    ]
    cache = "/root/.cache/vllm/flashinfer_autotune_cache/0.6.16/100"
    said = "trtllm::fused_moe::gemm1"
    log = [
        *begun("/models/moe-fp4", "0.28.0"),
        *(v(f"Worker_TP{n}", f"Config cache hit for {said}", "autotuner.py:512") for n in (0, 2) if hits),
        f"Tuning {said}:   0%|          | 0/16 [00:00<?, ?it/s]",
        *broadcasts("EngineCore"),
    ]
    return started(
        "vllm serve /models/moe-fp4 --tensor-parallel-size 4 --enable-expert-parallel", base(), ranks, log=log,
        phase=Phase.WARMUP, quiet_s=700,
        folders=[folder("engine_cache", cache, bytes_=61_000, files=1, newest_ago_s=93_000)] if hits else [],
        gpus=gpus(4, name="NVIDIA B200", architecture="100", memory_used_bytes=150 * GB),
    )  # fmt: skip


def controller(*, died: bool) -> Bundle:
    """The last scheduler was killed before it was ready; the controller still holds the writing end of its pipe."""
    waits = (
        "_recv (multiprocessing/connection.py:395)",
        "recv (multiprocessing/connection.py:250)",
        "launch_tensor_parallel_group (sglang/srt/managers/data_parallel_controller.py:420)",
        "__init__ (sglang/srt/managers/data_parallel_controller.py:150)",
        "run_data_parallel_controller_process (sglang/srt/managers/data_parallel_controller.py:560)",
    )
    control = process(
        4050, "sglang::data_parallel_controller", role=Role.ENGINE, label="controller", facts=BARE, stack=waits,
        syscall="read(0x28, 0x7f3a10, 0x4)", fds=(40,), memory=GB,
        files=[pipe(4050, fd=40, number=7107) if died else pipe(4050, 4107, fd=40, number=7107)],
    )  # fmt: skip
    minimum = (
        "all_reduce (torch/distributed/distributed_c10d.py:3007)",
        "get_available_gpu_memory (sglang/srt/utils/common.py:610)",
        "load_model (sglang/srt/model_executor/model_runner.py:1330)",
        SCHEDULER_MAIN,
    )
    told = [{"name": f"sglang::scheduler_DP{n}_TP{n}", "label": f"DP{n} TP{n}", "ppid": 4050} for n in range(8)]
    ranks = [scheduler(n, minimum, native=GLOO, memory=30 * GB, **told[n]) for n in range(8)]
    log = [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        *(at(f"DP{n} TP{n}", "Init torch distributed begin.") for n in range(8)),
        *(at(f"DP{n} TP{n}", "Load weight begin. avail mem=138.9 GB") for n in range(8)),
        "Multi-thread loading shards: 100% Completed | 64/64 [02:11<00:00,  2.05s/it]",
    ]
    return started(
        f"{SGLANG} --tp 8 --dp 8 --enable-dp-attention", launcher(), control, detokenizer(), helper(),
        ranks[:7] if died else ranks, log=log, phase=Phase.WEIGHTS, quiet_s=500,
        exits=[ended(ranks[7], signal=9, ago_s=480)] if died else [],
        gpus=gpus(8, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=79 * GB),
    )  # fmt: skip


def prefetch_check(*, apart: bool) -> Bundle:
    """One rank asks the others whether a prefetch is done; they are in the next round already."""
    asks = (
        "all_reduce (torch/distributed/distributed_c10d.py:3007)",
        "_all_reduce_attn_groups (sglang/srt/mem_cache/hiradix_cache.py:196)",
        "can_terminate_prefetch (sglang/srt/mem_cache/hiradix_cache.py:1350)",
        "check_prefetch_progress (sglang/srt/mem_cache/hiradix_cache.py:1373)",
        "_get_new_batch_prefill_raw (sglang/srt/managers/scheduler.py:2679)",
        "event_loop_normal (sglang/srt/managers/scheduler.py:1310)",
        SCHEDULER_MAIN,
    )
    receives = (
        "broadcast (torch/distributed/distributed_c10d.py:2910)",
        "broadcast_pyobj (sglang/srt/utils/common.py:1437)",
        "_broadcast_reqs_across_ranks (sglang/srt/managers/scheduler_components/request_receiver.py:187)",
        "recv_requests (sglang/srt/managers/scheduler.py:1510)",
        "event_loop_normal (sglang/srt/managers/scheduler.py:1290)",
        SCHEDULER_MAIN,
    )
    others = receives if apart else asks
    ranks = [scheduler(0, asks, native=GLOO), *(scheduler(number, others, native=GLOO) for number in (1, 2, 3))]
    log = [
        *serves(4),
        at("TP0", "Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 40960, #queue-req: 11"),
    ]
    return started(
        f"{SGLANG} --tp 4 --enable-hierarchical-cache --hicache-storage-backend mooncake "
        "--hicache-storage-prefetch-policy timeout",
        listens(), detokenizer(), helper(), ranks, log=log, phase=Phase.SERVING, quiet_s=300,
        question="no token within 60 s",
        gpus=gpus(4, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=128 * GB),
        environment={"MOONCAKE_MASTER": "10.0.0.7:50051"},
    )  # fmt: skip


def slots(*, leaks: bool) -> Bundle:
    """One of two nodes: its rank looks for a free slot of NCCL's proxy, and NCCL's own thread has nothing to do."""
    gathers: Sequence[str] = (
        "all_gather (sglang/srt/distributed/device_communicators/pynccl.py:190)",
        "_all_gather_base (sglang/srt/distributed/parallel_state.py:720)",
        "tensor_model_parallel_all_gather (sglang/srt/distributed/communication_op.py:20)",
        "_get_logits (sglang/srt/layers/logits_processor.py:610)",
        "forward_batch_generation (sglang/srt/managers/tp_worker.py:470)",
        "event_loop_overlap (sglang/srt/managers/scheduler.py:1340)",
        SCHEDULER_MAIN,
    )
    appends = ("sched_yield (libc.so.6)", "ncclLocalOpAppend (libnccl.so.2)", "SaveProxy (libnccl.so.2)",
               "ncclProxySaveOp (libnccl.so.2)", "ncclLaunchKernel (libnccl.so.2)")  # fmt: skip
    progress = thread(
        name="NCCL Progress 0", syscall="futex(0x7f3b20, 0x189, 0x0, 0x0)",
        native=("pthread_cond_wait (libc.so.6)", "ncclProxyProgress (libnccl.so.2)"),
    )  # fmt: skip
    one = scheduler(
        0, gathers, state="R", cpu=1.0, native=appends if leaks else (), threads=(*idle_threads(), progress),
        facts=ordinary_facts(libraries=cuda_libraries(nccl="2.28.9" if leaks else "2.30.7", cuda="13.0",
                                                      driver="580.142")),
        files=[socket("192.168.177.11:47110", "192.168.177.12:20000", fd=71)], memory=12 * GB,
    )  # fmt: skip
    cards = gpus(1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, memory_used_bytes=104 * GB,
                 power_limit_w=140.0, fabric="not supported")  # fmt: skip
    log = [line for line in serves(2) if " TP1]" not in line]
    log += [at("TP0", "Decode batch, #running-req: 1, #token: 4410, gen throughput (token/s): 31.02")]
    return started(
        f"{SGLANG} --tp 2 --nnodes 2 --node-rank 0 --dist-init-addr 192.168.177.11:20000 --disable-cuda-graph",
        listens(), detokenizer(), helper(), one, log=log, phase=Phase.SERVING, quiet_s=900, version="0.5.17",
        question="no token within 60 s", gpus=spinning(cards, 17.0),
        host=host(
            cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=9 * GB, driver="580.142",
            cuda="13.0", places=(place("weights", "/models/llm", needed_bytes=160 * GB), place("home", "/root")),
            interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("enp1s0f0", "192.168.177.11")),
        ),
    )  # fmt: skip


def one_compiles(*, works: bool) -> Bundle:
    """A shape that is new to one rank alone: it compiles a Triton kernel, and the others wait in an all-reduce."""
    outer = (
        "forward_batch_generation (sglang/srt/managers/tp_worker.py:469)",
        "forward_target_extend (sglang/srt/speculative/eagle_worker.py:379)",
        "event_loop_normal (sglang/srt/managers/scheduler.py:1310)",
        SCHEDULER_MAIN,
    )
    builds = (
        "make_llir (triton/backends/nvidia/compiler.py:380)",
        "compile (triton/compiler/compiler.py:320)",
        "_do_compile (triton/runtime/jit.py:730)",
        "sglang_per_token_group_quant_fp8 (sglang/srt/layers/quantization/fp8_kernel.py:515)",
        *outer,
    )
    before = ("make_ttgir (triton/backends/nvidia/compiler.py:295)", *builds[1:])
    waits = ("synchronize (torch/cuda/streams.py:231)", "resolve_batch (sglang/srt/managers/utils.py:88)", *outer)
    ranks = [
        scheduler(n, builds, state="R", cpu=1.0, moves=Moves(stack=before), memory=9 * GB)
        if works and n == 5
        else scheduler(n, waits, state="R", cpu=1.0, memory=9 * GB)
        for n in range(8)
    ]
    cache = folder(
        "compile_cache", "/root/.cache/sglang/triton", bytes_=41 << 20, files=730, grows=24_000 if works else 0
    )
    return started(
        f"{SGLANG} --tp 8 --speculative-algorithm EAGLE --watchdog-timeout 600", listens(), detokenizer(), helper(),
        ranks, log=serves(8), phase=Phase.SERVING, quiet_s=110, folders=[cache],
        motion=Motion.QUIET if works else Motion.STALLED, question="no token within 60 s",
        gpus=spinning(gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=90 * GB), 142.0),
    )  # fmt: skip
