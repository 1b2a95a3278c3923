"""Machines of the twelfth lot that build kernels, wait for somebody who builds, or do not get past an import."""

from tests.corpus.lots.twelfth.machines import spark, spark_host
from tests.corpus.starts import (
    CORE_MAIN,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    WORKER_MAIN,
    at,
    base,
    begun,
    core,
    core_name,
    detokenizer,
    launcher,
    loaded,
    started,
    v,
)
from tests.corpus.surroundings import scheduler, worker

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    PACKAGES,
    compiler,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    ordinary_facts,
    process,
)

SLEEPS = "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"
NO_LOCKS = Gap(what="locks", reason=GapReason.NO_PERMISSION, detail="/proc/locks may not be read")
NINJA = (
    "select (selectors.py:415)",
    "_communicate (subprocess.py:2115)",
    "run (subprocess.py:550)",
    "run_ninja (flashinfer/jit/cpp_ext.py:330)",
    "build (flashinfer/jit/core.py:310)",
    "build_and_load (flashinfer/jit/core.py:340)",
)


def cold_spark(*, seen: bool) -> Bundle:
    """The first start after a reboot: the expert kernels of a new GPU are built, with an empty cache."""
    stack = (
        *NINJA,
        "get_cutlass_fused_moe_module (flashinfer/fused_moe/core.py:330)",
        "cutlass_fused_moe (flashinfer/fused_moe/core.py:1010)",
        "apply (vllm/model_executor/layers/fused_moe/flashinfer_cutlass_moe.py:270)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)",
        *CORE_MAIN,
    )
    cache = "/root/.cache/flashinfer/0.6.12/121a/cached_ops/fused_moe_120"
    units = ("moe_gemm_tma_ws_e2m1", "fused_moe_gemm_launcher_sm80_bf16", "cutlass_fused_moe_kernels")
    tools = [
        compiler("ninja", 0, ppid=4050, cpu=0.0, state="S", memory=GB // 64, cmdline=("ninja", "-v", "-C", cache)),
        *(compiler("nvcc", 1 + n, ppid=4900, cpu=0.0, state="S", memory=GB // 16,
                   cmdline=("nvcc", "-gencode=arch=compute_121a,code=sm_121a", "-c", f"{unit}.cu"))
          for n, unit in enumerate(units)),
        *(compiler("cicc", 4 + n, ppid=4901 + n, memory=3 * GB, cmdline=("cicc", "--arch", "compute_121a", unit))
          for n, unit in enumerate(units)),
    ]  # fmt: skip
    log = [
        *begun("/models/coder80b-fp4", "0.24.0"),
        v("EngineCore", "Model loading took 44.9 GiB memory and 211.7 seconds", "gpu_model_runner.py:4790"),
    ]
    grows = 34_000_000 if seen else 0
    return started(
        "vllm serve /models/coder80b-fp4 --gpu-memory-utilization 0.50 --kv-cache-dtype fp8 --max-model-len 262144",
        front(), core(stack if seen else UNSEEN["stack"], syscall="poll(0x7f3a10, 0x2, 0xffffffff)", memory=9 * GB),
        helper(), tools if seen else [], log=log, phase=Phase.KV_CACHE, quiet_s=260, motion=Motion.QUIET,
        folders=[folder("compile_cache", "/root/.cache/flashinfer", bytes_=410 << 20, files=120, grows=grows)],
        gpus=(spark(memory_used_bytes=51 * GB),), host=spark_host(container="docker"),
    )  # fmt: skip


def many_wait(*, seen: bool) -> Bundle:
    """One of eight ranks builds a kernel at its first call, the others wait for its lock; nobody says so."""
    outer = (
        "trtllm_fp8_block_scale_moe (flashinfer/fused_moe/core.py:1710)",
        "forward (vllm/model_executor/layers/fused_moe/layer.py:1910)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)",
        WORKER_MAIN,
    )
    waits = ("acquire (filelock/_api.py:344)", "__enter__ (filelock/_api.py:376)",
             "build_and_load (flashinfer/jit/core.py:335)", *outer)  # fmt: skip
    home = "/root/.cache/flashinfer/0.6.12/100a"
    lock = file(f"{home}/fused_moe_trtllm_sm100.lock", fd=44, access="rw")
    ranks = [
        worker(n, (*NINJA, *outer), files=[lock], syscall="poll(0x7f3a10, 0x2, 0xffffffff)", memory=9 * GB)
        if n == 0
        else worker(n, waits, files=[lock], syscall=SLEEPS, memory=9 * GB)
        for n in range(8)
    ]
    tools = [
        compiler("ninja", 0, cpu=0.0, state="S", memory=GB // 64,
                 cmdline=("ninja", "-v", "-C", f"{home}/cached_ops/fused_moe_trtllm_sm100")),
        compiler("nvcc", 1, ppid=4900, cpu=0.0, state="S", memory=GB // 16, cmdline=("nvcc", "moe_runner.cu")),
        compiler("ptxas", 2, ppid=4901, memory=2 * GB, cmdline=("ptxas", "-arch=sm_100a", "moe_runner.ptx")),
    ]  # fmt: skip
    held = Lock(kind="flock", path=lock.target, holder=4100, waiters=tuple(range(4101, 4108)),
                holder_name="VLLM::Worker_TP0", filesystem="overlay")  # fmt: skip
    log = [
        *begun("/models/r1", "0.22.0"),
        v("Worker_TP0", "Model loading took 79.8 GiB memory and 131.4 seconds", "gpu_model_runner.py:4790"),
    ]
    return started(
        "vllm serve /models/r1 --tensor-parallel-size 8", base(),
        ranks if seen else [worker(n, memory=9 * GB, **UNSEEN) for n in range(8)], tools if seen else [], log=log,
        phase=Phase.KV_CACHE, quiet_s=380, locks=[held] if seen else NO_LOCKS,
        folders=[folder("compile_cache", "/root/.cache/flashinfer", bytes_=96 << 20, files=40,
                        grows=6_000_000 if seen else 0)],
        gpus=gpus(8, name="NVIDIA B200", architecture="100", memory_used_bytes=88 * GB),
    )  # fmt: skip


def left_behind(*, seen: bool) -> Bundle:
    """An earlier start ended while it built; torch's lock file is still in the folder, and nobody builds."""
    stack = (
        "wait (torch/utils/file_baton.py:43)",
        "_jit_compile (torch/utils/cpp_extension.py:1703)",
        "load (torch/utils/cpp_extension.py:1312)",
        "load_cuda_ops (flashinfer/jit/core.py:127)",
        "get_batch_decode_module (flashinfer/decode.py:110)",
        "init_forward_metadata_capture_cuda_graph (sglang/srt/layers/attention/flashinfer_backend.py:330)",
        "capture (sglang/srt/model_executor/cuda_graph_runner.py:290)",
        SCHEDULER_MAIN,
    )
    op = "batch_decode_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_qk_128"
    home = f"/root/.cache/flashinfer/80/cached_ops/{op}"
    one = scheduler(0, stack, name="sglang::scheduler", label="scheduler", syscall=SLEEPS, memory=6 * GB)
    blind = scheduler(0, name="sglang::scheduler", label="scheduler", memory=6 * GB, **UNSEEN)
    log = [
        *loaded(1),
        at("", "Capture cuda graph begin. This can take up to several minutes."),
        "  0%|          | 0/23 [00:00<?, ?it/s]",
        f"2025-02-21 09:14:07,101 - INFO - flashinfer.jit: Loading JIT ops: {op}",
    ]
    return started(
        f"{SGLANG} --host 0.0.0.0 --mem-fraction-static 0.85", launcher(), detokenizer(), helper(),
        one if seen else blind, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=1500, version="0.4.3",
        locks=[Lock(kind="file", path=f"{home}/lock", holder=0, waiters=(4100,), age_s=7_900, filesystem="ext4")]
        if seen else NO_LOCKS,
        folders=[folder("compile_cache", "/root/.cache/flashinfer", bytes_=9 << 20, files=33, newest_ago_s=7_900)],
        gpus=gpus(1, name="NVIDIA A100-SXM4-80GB", architecture="80", memory_used_bytes=68 * GB),
    )  # fmt: skip


def shared_card(*, seen: bool) -> Bundle:
    """In a pod with a share of a GPU a preloaded library answers what MKL looks up, and the import never ends."""
    stack = (
        "_call_with_frames_removed (<frozen importlib._bootstrap>:241)",
        "create_module (<frozen importlib._bootstrap_external>:1176)",
        "<module> (torch/__init__.py:234)",
        "<module> (/srv/embed/worker.py:3)",
    )
    native = ("__dlsym_hook_section (libvgpu.so)", "dlsym (libvgpu.so)", "?? (libmkl_intel_thread.so.2)",
              "?? (libmkl_intel_thread.so.2)", "call_init (ld-linux-x86-64.so.2)",
              "_dl_open (ld-linux-x86-64.so.2)")  # fmt: skip
    shim = Library(path="/usr/local/vgpu/libvgpu.so", kind="foreign", build="9d41", preloaded=True)
    told = {
        "stack": stack,
        "native": native,
        "facts": ordinary_facts(libraries=(shim,)),
    } if seen else {**UNSEEN, "facts": ordinary_facts(libraries=())}  # fmt: skip
    main = process(FRONT, "python", ppid=1, role=Role.FRONT, state="R", cpu=1.0, memory=GB // 4, **told)
    return started(
        "python -u /srv/embed/worker.py --port 8080", main, log=["worker starts"], phase=Phase.IMPORT, quiet_s=300,
        gpus=gpus(1, name="NVIDIA A10", architecture="86", memory_total_bytes=24 * GB, memory_used_bytes=0),
        host=host(container="kubernetes", preload=("/usr/local/vgpu/libvgpu.so",) if seen else ()),
    )  # fmt: skip


def strix() -> Bundle:
    """An APU: the engine says its rank, and then keeps one core busy; its stack may not be read."""
    one = core(UNSEEN["stack"], state="R", cpu=1.0, memory=2 * GB, native=UNSEEN["native"])
    card = gpus(1, name="AMD Radeon 8060S", vendor="amd", architecture="gfx1151", memory_total_bytes=96 * GB,
                memory_used_bytes=GB, power_limit_w=120.0, power_w=11.0, fabric="not supported")  # fmt: skip
    name = core_name("0.19.1")
    log = [
        *begun("org/dense8b", "0.19.1"),
        f"({name} pid=4050) [aiter] import [module_aiter_enum] under {PACKAGES}aiter/jit/module_aiter_enum.so",
        v(name, "world_size=1 rank=0 local_rank=0 distributed_init_method=tcp://192.168.68.31:46985 backend=nccl",
          "parallel_state.py:1400"),
        v(name, "rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0", "parallel_state.py:1712"),
    ]  # fmt: skip
    return started(
        "vllm serve org/dense8b --gpu-memory-utilization 0.6", front(), one, helper(), log=log,
        phase=Phase.MODEL_INIT, quiet_s=1200, gpus=card,
        folders=[folder("hub_cache", "/root/.cache/huggingface/hub", bytes_=16 * GB, files=20)],
        host=host(container="docker", cpus=32, memory_bytes=31 * GB, driver="amdgpu 6.16.6", cuda="",
                  devices=("/dev/kfd",)),
    )  # fmt: skip
