"""Machines of the tenth lot that wait: for a lock, the network, a cluster, a kernel, another thread."""

from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    begun,
    core,
    detokenizer,
    launcher,
    loaded,
    opened,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus, scheduler, schedulers, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Futex, Lock
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    device,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    ordinary_facts,
    place,
    process,
    socket,
    thread,
)

SLEEPS = "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"
NO_LOCKS = Gap(what="locks", reason=GapReason.NO_PERMISSION, detail="/proc/locks may not be read")


def top_k(*, hangs: bool) -> Bundle:
    """The dummy sampler's masking kernel does not end on this card."""
    stack = (
        "apply_top_k_top_p_triton (vllm/v1/sample/ops/topk_topp_triton.py:960)",
        "apply_top_k_top_p (vllm/v1/sample/ops/topk_topp_sampler.py:262)",
        "forward_native (vllm/v1/sample/ops/topk_topp_sampler.py:120)",
        "sample (vllm/v1/sample/sampler.py:240)",
        "_dummy_sampler_run (vllm/v1/worker/gpu_model_runner.py:5010)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5160)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:360)",
        "_initialize_kv_caches (vllm/v1/engine/core.py:240)",
        *CORE_MAIN,
    )
    cards = pcie_gpus(1, memory_used_bytes=9 * GB)
    log = [
        *begun("/models/dense3b", "0.21.0"),
        v("EngineCore", "Model loading took 5.79 GiB memory and 3.811204 seconds", "gpu_model_runner.py:4790"),
        v("EngineCore", "torch.compile takes 14.20 s in total", "monitor.py:34"),
    ]
    return started(
        "vllm serve /models/dense3b --gpu-memory-utilization 0.85 --max-model-len 8192", front(),
        core(stack, state="R", cpu=1.0), helper(), log=log, phase=Phase.KV_CACHE, quiet_s=800,
        gpus=spinning(cards, 101.0) if hangs else cards, host=host(driver="580.95.05", cuda="13.0", cpus=32),
    )  # fmt: skip


def offline(*, connects: bool) -> Bundle:
    """A machine without a way out: the first request to the hub gets no answer to its SYN."""
    stack = (
        "create_connection (urllib3/util/connection.py:73)",
        "_new_conn (urllib3/connection.py:196)",
        "send (requests/adapters.py:667)",
        "get_hf_file_metadata (huggingface_hub/file_download.py:1650)",
        "cached_file (transformers/utils/hub.py:402)",
        "get_config (vllm/transformers_utils/config.py:90)",
        "create_model_config (vllm/engine/arg_utils.py:810)",
        "run_server (vllm/entrypoints/openai/api_server.py:530)",
    )
    hub = [socket("10.31.7.4:51022", "18.164.174.55:443", state="SYN_SENT", fd=14)]
    told = (
        {"stack": stack, "syscall": "poll(0x7ffd10, 0x1, 0x2710)", "fds": (14,), "files": hub} if connects else UNSEEN
    )
    main = front(**{"label": "", "memory": GB // 2, **told})
    log = [
        "INFO 09-13 08:11:40 api_server.py:495] vLLM API server version 0.6.1",
        "INFO 09-13 08:11:40 api_server.py:496] args: Namespace(host=None, port=8000, model='org/llm-7b')",
    ]
    return started(
        "python -m vllm.entrypoints.openai.api_server --model org/llm-7b --dtype half", main, log=log,
        phase=Phase.CONFIG, quiet_s=200, gpus=gpus(1, name="NVIDIA L4", architecture="89",
        memory_total_bytes=24 * GB),
        environment={"TRANSFORMERS_OFFLINE": "1", "HF_HOME": "/data/hf"},
        host=host(places=(place("hub_cache", "/data/hf", needed_bytes=14 * GB), place("home", "/root"))),
    )  # fmt: skip


def soft_lock(*, left: bool) -> Bundle:
    """A pod was killed while it downloaded; its lock file on NFS stays, and the next pod waits for it."""
    stack = (
        "acquire (filelock/_api.py:344)",
        "WeakFileLock (huggingface_hub/utils/_fixes.py:98)",
        "_hf_hub_download_to_cache_dir (huggingface_hub/file_download.py:1190)",
        "hf_hub_download (huggingface_hub/file_download.py:1010)",
        "_inner_hf_hub_download (huggingface_hub/_snapshot_download.py:270)",
        "run (concurrent/futures/thread.py:58)",
    )
    waits = (
        "wait (threading.py:331)",
        "snapshot_download (huggingface_hub/_snapshot_download.py:290)",
        "download_weights_from_hf (vllm/model_executor/model_loader/weight_utils.py:470)",
        "_prepare_weights (vllm/model_executor/model_loader/default_loader.py:120)",
        *CORE_MAIN,
    )
    path = "/hub/.locks/models--org--llm-70b/9c1f0b7d.lock"
    pool = [thread(stack, name=f"ThreadPoolExecutor-0_{n}", syscall=SLEEPS) for n in range(2)]
    one = core(waits, threads=(*idle_threads(), *pool)) if left else core(**{"stack": (), **UNSEEN})
    lock = Lock(kind="file", path=path, holder=0, waiters=(4050,), age_s=91_400, filesystem="nfs4")
    log = [
        *begun("org/llm-70b"),
        *(v("EngineCore", f"Still waiting to acquire lock on {path} (elapsed: {s}.1 seconds)", "_fixes.py:104")
          for s in (10, 20, 30) if left),
    ]  # fmt: skip
    return started(
        "vllm serve org/llm-70b --tensor-parallel-size 1", front(), one, helper(), log=log, phase=Phase.WEIGHTS,
        quiet_s=300, locks=[lock] if left else NO_LOCKS, gpus=gpus(1, name="NVIDIA H200"),
        folders=[folder("download", "/hub/models--org--llm-70b/blobs", bytes_=8 * GB, files=2, newest_ago_s=91_400)],
        host=host(container="kubernetes", places=(place("hub_cache", "/hub", filesystem="nfs4"), place("home",
        "/root"))),
    )  # fmt: skip


def placement(*, told: bool) -> Bundle:
    """vLLM on Ray waits until a second machine has joined."""
    stack = (
        "wait (ray/_private/worker.py:3010)",
        "_wait_until_pg_ready (vllm/executor/ray_utils.py:196)",
        "initialize_ray_cluster (vllm/executor/ray_utils.py:310)",
        "__init__ (vllm/executor/executor_base.py:53)",
        "run_mp_engine (vllm/engine/multiprocessing/engine.py:360)",
    )
    one = process(
        4050, "python", role=Role.ENGINE, stack=stack, facts=BARE, native=("absl::CondVar::WaitCommon (_raylet.so)",)
    )
    short = "The number of required GPUs exceeds the total number of available GPUs in the placement group."
    want = "specs=[{'node:192.168.2.2': 0.001, 'GPU': 1.0}, {'GPU': 1.0}]"
    waits = f"Waiting for creating a placement group of specs for %d seconds. {want}. Check `ray status` to see if"
    log = [
        "2024-12-12 09:14:07,120 INFO worker.py:1819 -- Connected to Ray cluster.",
        *([
            f"WARNING 12-12 09:14:08 ray_utils.py:287] {short}",
            *(
                f"INFO 12-12 09:1{m}:18 ray_utils.py:180] {waits % s} you have enough resources."
                for m, s in ((4, 10), (5, 70))
            ),
        ] if told else []),
    ]  # fmt: skip
    return started(
        "python -m vllm.entrypoints.openai.api_server --model /models/llm --distributed-executor-backend ray "
        "--tensor-parallel-size 2",
        front(stack=("wait (vllm/engine/multiprocessing/client.py:150)",)), one, raylet(), log=log, phase=Phase.SPAWN,
        version="0.6.5",
        quiet_s=80, gpus=gpus(1, name="NVIDIA A10", architecture="86", memory_total_bytes=24 * GB),
    )  # fmt: skip


def forked(*, seen: bool) -> Bundle:
    """An evaluation had started CUDA before vLLM forked its engine; the child waits for a lock of the driver."""
    outer = (
        "set_device (torch/cuda/__init__.py:529)",
        "init_device (vllm/v1/worker/gpu_worker.py:140)",
        *CORE_MAIN,
    )
    many = [thread(name=f"cuda-EvtHandlr{n}", syscall="poll(0x7f3d00, 0xa, 0x64)") for n in range(6)]
    main = process(
        FRONT, "lighteval", ppid=1, role=Role.FRONT, threads=(*idle_threads(), *many), memory=3 * GB,
        stack=("wait (multiprocessing/connection.py:948)",
        "wait_for_engine_startup (vllm/v1/engine/core_client.py:480)",
               "__init__ (lighteval/models/vllm/vllm_model.py:210)"),
        files=[device("/dev/nvidia0", fd=21), device("/dev/nvidia-uvm", fd=22)],
    )  # fmt: skip
    told = {
        "stack": outer,
        "syscall": "futex(0x7f91c0, 0x80, 0x2, 0x0)",
        "native": ("__lll_lock_wait (libc.so.6)", "pthread_mutex_lock (libc.so.6)", "?? (libcuda.so.1)",
                   "cuDevicePrimaryCtxRetain (libcuda.so.1)"),
        "futex": Futex(address=0x7F91C0, orphan=14_004),
        "facts": ordinary_facts(forked=True, parent_threads=11),
        "files": [device("/dev/nvidia0", fd=21), device("/dev/nvidia-uvm", fd=22)],
    } if seen else {**UNSEEN, "facts": ordinary_facts(libraries=())}  # fmt: skip
    child = process(4050, "lighteval", role=Role.ENGINE, label="EngineCore", memory=2 * GB, **told)  # type: ignore[arg-type]
    return started(
        "lighteval vllm pretrained=/models/distill-1.5b,dtype=bfloat16,data_parallel_size=1 lighteval|aime24|0|0",
        main,
        child, helper(), phase=Phase.MODEL_INIT, quiet_s=700, gpus=gpus(4, memory_used_bytes=GB),
        log=["[2025-04-29 09:14:07,120] [    INFO]: --- LOADING MODEL --- (pipeline.py:187)"],
    )  # fmt: skip


def mla_build(*, left: bool) -> Bundle:
    """An interrupted build left torch's lock file; one rank waits for it, and seven for that rank's file lock."""
    build = ("load_cuda_ops (flashinfer/jit/core.py:127)", "get_batch_mla_module (flashinfer/mla.py:60)",
             "init_forward_metadata_capture_cuda_graph (sglang/srt/layers/attention/flashinfer_backend.py:430)",
             "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:330)",
             SCHEDULER_MAIN)  # fmt: skip
    baton = ("wait (torch/utils/file_baton.py:51)", "_jit_compile (torch/utils/cpp_extension.py:1703)",
             "load (torch/utils/cpp_extension.py:1380)", *build)  # fmt: skip
    queue = ("acquire (filelock/_api.py:344)", "__enter__ (filelock/_api.py:376)", *build)
    op = "batch_mla_attention_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_ckv_512"
    home = f"/root/.cache/flashinfer/90/cached_ops/{op}"
    holds = file(f"/root/.cache/flashinfer/90/{op}.lock", fd=44, access="rw")
    ranks = [
        scheduler(n, baton if n == 3 else queue, syscall=SLEEPS, files=[holds], memory=6 * GB)
        if left
        else scheduler(n, memory=6 * GB, **UNSEEN)
        for n in range(8)
    ]
    locks = [
        Lock(kind="flock", path=holds.target, holder=4103, waiters=tuple(4100 + n for n in range(8) if n != 3),
             holder_name="sglang::scheduler_TP3", filesystem="overlay"),
        Lock(kind="file", path=f"{home}/lock", holder=0, waiters=(4103,), age_s=60_300, filesystem="overlay"),
    ]  # fmt: skip
    log = [
        *loaded(8),
        *(at(f"TP{n}", "Capture cuda graph begin. This can take up to several minutes.") for n in range(8)),
        *(f"2026-11-28 09:14:0{n},101 - INFO - flashinfer.jit: Loading JIT ops: {op}" for n in range(8)),
    ]
    return started(
        f"{SGLANG} --trust-remote-code --enable-flashinfer-mla --disable-radix-cache --tp 8", launcher(),
        detokenizer(),
        helper(), ranks, log=log, phase=Phase.GRAPH_CAPTURE, quiet_s=1800, version="0.4.3",
        locks=locks if left else NO_LOCKS,
        gpus=gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=84 * GB),
        folders=[folder("compile_cache", "/root/.cache/flashinfer", bytes_=3 << 20, files=41, newest_ago_s=60_300)],
    )  # fmt: skip


def norm_build(*, left: bool) -> Bundle:
    """AMD's operators are to be built in the image's folder, where a lock file has lain since the image was made."""
    stack = ("wait (/sgl-workspace/aiter/aiter/jit/utils/file_baton.py:48)",
             "mp_lock (/sgl-workspace/aiter/aiter/jit/core.py:190)",
             "build_module (/sgl-workspace/aiter/aiter/jit/core.py:610)",
             "rms_norm (/sgl-workspace/aiter/aiter/ops/rmsnorm.py:20)",
             "forward_aiter (sglang/srt/layers/layernorm.py:140)",
             "run_once (sglang/srt/model_executor/cuda_graph_runner.py:640)", SCHEDULER_MAIN)  # fmt: skip
    path = "/sgl-workspace/aiter/aiter/jit/build/lock_module_rmsnorm"
    log = [
        *opened(8),
        "[aiter] import [module_aiter_enum] under /sgl-workspace/aiter/aiter/jit/module_aiter_enum.so",
        *([f"[aiter] waiting for baton release at {path}"] * 8 if left else []),
    ]
    cards = gpus(8, name="AMD Instinct MI300X", vendor="amd", architecture="gfx942", memory_total_bytes=192 * GB,
                 memory_used_bytes=91 * GB, power_limit_w=750.0, power_w=140.0, fabric="not supported")  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --attention-backend aiter", launcher(), detokenizer(), helper(),
        schedulers(8, stack, syscall=SLEEPS) if left else [scheduler(n, **UNSEEN) for n in range(8)], log=log,
        phase=Phase.GRAPH_CAPTURE, quiet_s=1500, version="0.5.6", gpus=cards,
        locks=[Lock(kind="file", path=path, holder=0, waiters=tuple(range(4100, 4108)), age_s=1_123_000,
                    filesystem="overlay")] if left else NO_LOCKS,
        host=host(container="docker", driver="amdgpu 6.12.12", cuda="", devices=("/dev/kfd",)),
    )  # fmt: skip
