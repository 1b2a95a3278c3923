"""Machines of the eleventh lot that compile, tune, or wait for somebody who once compiled."""

from tests.corpus.lots.eleventh.machines import gb10, spark
from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    at,
    base,
    begun,
    broadcasts,
    core,
    detokenizer,
    launcher,
    loaded,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, scheduler, spinning, worker

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Lock, Pressure
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    compiler,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    process,
    rank,
)

SLEEPS = "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"
NO_LOCKS = Gap(what="locks", reason=GapReason.NO_PERMISSION, detail="/proc/locks may not be read")
NINJA = (
    "_try_wait (subprocess.py:2011)",
    "wait (subprocess.py:1266)",
    "run (subprocess.py:550)",
    "run_ninja (flashinfer/jit/cpp_ext.py:320)",
    "build (flashinfer/jit/core.py:290)",
    "build_and_load (flashinfer/jit/core.py:315)",
)
BATON = (
    "wait (torch/utils/file_baton.py:51)",
    "_jit_compile (torch/utils/cpp_extension.py:1703)",
    "load (torch/utils/cpp_extension.py:1380)",
)


def _tools(parent: int, count: int, source: str) -> list:  # type: ignore[type-arg]
    """ninja, and what it has started."""
    where = f"/root/.cache/flashinfer/{source}"
    return [
        compiler("ninja", 0, cmdline=("ninja", "-v", "-C", where), ppid=parent, cpu=0.0, state="S"),
        *(compiler("nvcc", 1 + n, cmdline=("nvcc", "-c", f"{where}/k{n}.cu"), ppid=4900, cpu=0.0, state="S")
          for n in range(count)),
        *(compiler("cicc", 20 + n, cmdline=("cicc", f"{where}/k{n}.cpp1.ii"), ppid=4901 + n) for n in range(count)),
    ]  # fmt: skip


def delta_net(*, works: bool) -> Bundle:
    """After torch.compile, FlashInfer builds the gated-delta kernels for a rank; three wait for its lock."""
    outer = (
        "_warm_up_prefill (vllm/model_executor/layers/mamba/qwen_gdn_linear_attn.py:1110)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:480)",
        WORKER_MAIN,
    )
    path = "/home/dev/.cache/flashinfer/0.6.12/90a/cached_ops/gdn_prefill_sm90.lock"
    holds = file(path, fd=44, access="rw")
    waits = ("acquire (filelock/_api.py:344)", "build_and_load (flashinfer/jit/core.py:312)", *outer)
    ranks = [
        worker(n, (*NINJA, *outer) if n == 0 else waits, files=[holds], memory=8 * GB,
               syscall="wait4(0x1324, 0x7ffd10, 0x0)" if n == 0 else SLEEPS)
        if works
        else worker(n, memory=8 * GB, **UNSEEN)
        for n in range(4)
    ]  # fmt: skip
    lock = Lock(kind="flock", path=path, holder=4100, waiters=(4101, 4102, 4103), holder_name="VLLM::Worker_TP0",
                filesystem="ext4")  # fmt: skip
    cache = folder("compile_cache", "/home/dev/.cache/flashinfer", bytes_=9 << 20, files=61,
                   grows=700_000 if works else 0)  # fmt: skip
    log = [*begun("/models/gdn35b", "0.24.0"),
           *(v(f"Worker_TP{n}", "torch.compile took 38.14 s in total", "monitor.py:53")
             for n in range(4))]  # fmt: skip
    return started(
        "vllm serve /models/gdn35b --tensor-parallel-size 4 --max-model-len 131072", base(), ranks,
        _tools(4100, 6, "0.6.12/90a") if works else (), log=log, phase=Phase.WARMUP, quiet_s=140,
        motion=Motion.SLOW if works else Motion.STALLED, locks=[lock] if works else NO_LOCKS, folders=[cache],
        gpus=gpus(4, memory_used_bytes=61 * GB), host=host(container="kubernetes"),
    )  # fmt: skip


def cutlass_units(*, works: bool) -> Bundle:
    """A 5090 meets an FP4 matrix product for the first time: eighteen units of CUTLASS, four at a time."""
    outer = (
        "mm_fp4 (flashinfer/gemm/gemm_base.py:2410)",
        "apply_weights (vllm/model_executor/kernels/linear/nvfp4/flashinfer.py:90)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)",
        *CORE_MAIN,
    )
    one = core((*NINJA, *outer), syscall="wait4(0x1324, 0x7ffd10, 0x0)") if works else core(**UNSEEN)  # type: ignore[arg-type]
    cache = folder("compile_cache", "/root/.cache/flashinfer", bytes_=30 << 20, files=44,
                   grows=90_000 if works else 0)  # fmt: skip
    log = [*begun("/models/q8b-fp4", "0.26.0"),
           v("EngineCore", "Model loading took 5.61 GiB memory and 4.9 seconds", "runner.py:4790")]  # fmt: skip
    return started(
        "vllm serve /models/q8b-fp4 --max-model-len 32768", front(), one, helper(),
        _tools(4050, 4, "0.6.14/120a/cached_ops/fp4_gemm_cutlass_sm120") if works else (), log=log,
        phase=Phase.KV_CACHE, quiet_s=500, motion=Motion.SLOW if works else Motion.STALLED, folders=[cache],
        environment={"MAX_JOBS": "4"}, gpus=pcie_gpus(1, memory_used_bytes=8 * GB),
        pressure=Pressure(memory_some=3.0, memory_full=0.0, io_some=1.0, cpu_some=2.0, memory_free_bytes=21 * GB),
        host=host(cpus=16, memory_bytes=61 * GB, memory_free_bytes=21 * GB, driver="580.95.05", cuda="13.0"),
    )  # fmt: skip


def cascade(*, works: bool) -> Bundle:
    """One of four Sparks: a request of a new shape has its rank compile one Triton kernel after the other."""
    outer = (
        "build_c128a_topk_metadata (vllm/models/deepseek_v4/sparse_mla.py:384)",
        "_build_attention_metadata (vllm/v1/worker/gpu_model_runner.py:2110)",
        "execute_model (vllm/v1/worker/gpu_model_runner.py:3610)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:840)",
        WORKER_MAIN,
    )
    triton = ("compile (triton/compiler/compiler.py:320)", "_do_compile (triton/runtime/jit.py:730)", *outer)
    told = {
        "stack": ("make_llir (triton/backends/nvidia/compiler.py:390)", *triton), "state": "R", "cpu": 1.0,
        "moves": Moves(stack=("make_ttgir (triton/backends/nvidia/compiler.py:295)", *triton)),
    } if works else UNSEEN  # fmt: skip
    one = rank(0, memory=9 * GB, threads=idle_threads(), **told)
    loop = front(
        stack=("run_forever (asyncio/base_events.py:608)",), syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)"
    )
    log = [
        *begun("/models/v4-flash", "0.22.0"),
        v("Worker_TP0", "Warming up DeepSeek V4 D512-split kernels", "kernel_warmup.py:130"),
        v("APIServer", "Application startup complete.", "on.py:62"),
        *broadcasts("EngineCore"),
    ]
    return started(
        "vllm serve /models/v4-flash -tp 4 --nnodes 4 --node-rank 0 --master-addr 10.20.0.1", loop, base()[1:], one,
        log=log, phase=Phase.SERVING, quiet_s=150, motion=Motion.QUIET, question="no token within 60 s",
        folders=[folder("compile_cache", "/root/.triton/cache", bytes_=38 << 20, files=610,
                        grows=41_000 if works else 0)],
        gpus=gb10(96, power_w=11.0), host=spark(),
    )  # fmt: skip


def rollout(*, left: bool) -> Bundle:
    """Reinforcement learning with SGLang within Ray's workers: a build that was broken off has left torch's lock."""
    stack = (
        *BATON,
        "load_cuda_ops (flashinfer/jit/core.py:123)",
        "get_batch_prefill_module (flashinfer/prefill.py:90)",
        "init_forward_metadata (sglang/srt/layers/attention/flashinfer_backend.py:210)",
        "forward (sglang/srt/model_executor/model_runner.py:1010)",
        "generate_sequences (verl/workers/rollout/sglang_rollout/sglang_rollout.py:240)",
    )
    op = "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_128"
    path = f"/root/.cache/flashinfer/90/cached_ops/{op}/lock"
    ranks = [
        rank(n, name="ray::WorkerDict", label=f"rank {n}", ppid=4061, memory=11 * GB, threads=idle_threads(),
             **({"stack": stack, "syscall": SLEEPS} if left else UNSEEN))
        for n in range(8)
    ]  # fmt: skip
    main = process(FRONT, "python3 -m verl.trainer.main_ppo", ppid=1, facts=BARE, syscall="futex(0x7f, 0x80, 0x0)",
                   stack=("get (ray/_private/worker.py:2753)", "run_ppo (verl/trainer/main_ppo.py:61)"))  # fmt: skip
    log = [
        "(WorkerDict pid=4100) NCCL version 2.21.5+cuda12.4",
        "(WorkerDict pid=4100) Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:01<00:00,  1.2s/it]",
        (
            "(WorkerDict pid=4100) 2025-03-13 21:08:31,512 - INFO - flashinfer.jit: Prebuilt kernels not found, "
            "using JIT backend"
        ),
    ]
    lock = Lock(
        kind="file", path=path, holder=0, waiters=tuple(range(4100, 4108)), age_s=71_200, filesystem="overlay"
    )
    return started(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=sglang", main, raylet(), ranks, log=log,
        phase=Phase.COMPILE, quiet_s=1900, ranks=8, locks=[lock] if left else NO_LOCKS,
        folders=[folder("compile_cache", "/root/.cache/flashinfer", bytes_=2 << 20, files=19, newest_ago_s=71_200)],
        gpus=gpus(8, name="NVIDIA H20", memory_used_bytes=52 * GB), host=host(container="docker"),
    )  # fmt: skip


def tactics(*, apart: bool) -> Bundle:
    """Each rank has tuned for itself; now one is in a kernel of its own choice, and seven register their buffers."""
    capture = (
        "run_once (sglang/srt/model_executor/cuda_graph_runner.py:640)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:690)",
        "init_cuda_graphs (sglang/srt/model_executor/model_runner.py:2010)",
        SCHEDULER_MAIN,
    )
    registers = (
        "__exit__ (sglang/srt/distributed/device_communicators/pynccl_allocator.py:160)",
        "forward (sglang/srt/layers/moe/fused_moe_triton/layer.py:910)",
        *capture,
    )
    own = (
        "trtllm_bf16_moe (flashinfer/fused_moe/core.py:1710)",
        "choose_one (flashinfer/autotuner.py:540)",
        "forward (sglang/srt/layers/moe/fused_moe_triton/layer.py:905)",
        *capture,
    )
    meets = {"native": ("poll (libc.so.6)", "bootstrapAllGather (libnccl.so.2)",
                        "ncclCommWindowRegister (libnccl.so.2)"),
             "syscall": "poll(0x7f3a10, 0x1, 0xffffffff)"}  # fmt: skip
    ranks = [
        scheduler(n, own, state="R", cpu=1.0, memory=9 * GB)
        if apart and n == 5
        else scheduler(n, registers, memory=9 * GB, **meets)
        for n in range(8)
    ]
    log = [
        *loaded(8),
        *(at(f"TP{n}", f"Running FlashInfer autotune with cache: /root/.cache/flashinfer/rank_tp{n}_pp0_dp0.json")
          for n in range(8)),
        *(at(f"TP{n}", "FlashInfer autotune completed.") for n in range(8)),
        *(at(f"TP{n}", "Capture cuda graph begin. This can take up to several minutes.") for n in range(8)),
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --attention-backend flashinfer --enable-symm-mem", launcher(), detokenizer(), helper(),
        ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=900, version="0.5.12",
        gpus=spinning(gpus(8, name="NVIDIA B200", architecture="100", memory_used_bytes=151 * GB), 190.0),
    )  # fmt: skip
