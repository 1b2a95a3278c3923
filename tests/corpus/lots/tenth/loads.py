"""Machines of the tenth lot that load, read or pin: they work, and crawl, or spin at it."""

from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    FOR_A_PAGE,
    SGLANG,
    UNSEEN,
    base,
    begun,
    core,
    launcher,
    mapped,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import idle_threads, pcie_gpus

from firstlight.core.bundle import Bundle
from firstlight.core.look import Pressure
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    device,
    front,
    gpus,
    helper,
    host,
    ordinary_facts,
    place,
    process,
    rank,
)

V0_LOADS = (
    "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:375)",
    "load_weights (vllm/model_executor/models/qwen2.py:370)",
    "load_model (vllm/model_executor/model_loader/loader.py:262)",
    "load_model (vllm/worker/model_runner.py:146)",
)
V1_LOADS = (
    "weight_loader (vllm/model_executor/layers/fused_moe/layer.py:1240)",
    "load_weights (vllm/model_executor/models/deepseek_v4.py:1410)",
    "load_weights (vllm/model_executor/model_loader/default_loader.py:340)",
    "load_model (vllm/v1/worker/gpu_model_runner.py:4710)",
    "load_model (vllm/v1/worker/gpu_worker.py:330)",
)


def last_pages(*, waits: bool) -> Bundle:
    """A rank of eight Sparks, each with one GPU: shards are through, and tensors are read from the map only now."""
    page = FOR_A_PAGE if waits else {"syscall": "futex(0x7f3a10, 0x80, 0x0)"}
    one = rank(
        0, name="ray::RayWorkerWrapper", ppid=4061, stack=("copy_ (torch/_tensor.py:90)", *V1_LOADS), memory=98 * GB,
        threads=idle_threads(), shared=60 * GB, cpu=0.11 if waits else 0.0,
        moves=Moves(faults=41_000, read_bytes=1_310 << 20) if waits else Moves(),
        files=[mapped("/models/v4/model-00151-of-00163.safetensors", "ext4")] if waits else [], **page,
    )  # fmt: skip
    log = [
        *begun("/models/v4", "0.19.1"),
        "(RayWorkerWrapper pid=4100) Loading safetensors checkpoint shards: 100% Completed | 163/163 [02:06<00:00]",
    ]
    tight = Pressure(memory_some=21.0, memory_full=9.0, io_some=88.0, cpu_some=1.0, memory_free_bytes=4 * GB)
    return started(
        "vllm serve /models/v4 -tp 8 --distributed-executor-backend ray --enforce-eager --max-model-len 1024",
        base(), raylet(), one, log=log, phase=Phase.WEIGHTS, quiet_s=1500,
        motion=Motion.SLOW if waits else Motion.STALLED, pressure=tight if waits else Pressure(),
        gpus=gpus(1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, power_w=9.0,
                  power_limit_w=140.0, fabric="not supported"),
        host=host(
            cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=4 * GB, driver="580.142",
            cuda="13.0",
            places=(place("weights", "/models/v4", needed_bytes=805 * GB, free_bytes=900 * GB), place("home",
            "/root")),
        ),
    )  # fmt: skip


def juice(*, waits: bool) -> Bundle:
    """Four processes of vLLM 0.4 share the 100 MiB/s of a file system over an object store."""
    where, kind = ("/jfs/llm-72", "fuse.juicefs") if waits else ("/models/llm-72", "ext4")
    page = {**FOR_A_PAGE, "cpu": 0.02} if waits else {}
    told = {
        "moves": Moves(faults=6300, read_bytes=246 << 20) if waits else Moves(),
        "files": [mapped(f"{where}/model-00017-of-00038.safetensors", kind)] if waits else [],
        "memory": 9 * GB,
        "threads": idle_threads(),
        **page,
    }
    main = front(
        stack=(*V0_LOADS, "_run_workers (vllm/executor/multiproc_gpu_executor.py:108)"), label="", facts=None,
        rank=0, **told,
    )  # fmt: skip
    others = [
        rank(number, name="VllmWorkerProcess", label="", ppid=FRONT, stack=V0_LOADS, **told) for number in (1, 2, 3)
    ]
    log = [
        "INFO 06-11 03:12:01 llm_engine.py:161] Initializing an LLM engine (v0.4.3) with config: model='/jfs/llm-72'",
        "INFO 06-11 03:12:09 utils.py:618] Found nccl from library libnccl.so.2",
        "INFO 06-11 03:12:09 pynccl.py:65] vLLM is using nccl==2.20.5",
        "(VllmWorkerProcess pid=4101) INFO 06-11 03:12:09 pynccl.py:65] vLLM is using nccl==2.20.5",
    ]
    return started(
        f"python -m vllm.entrypoints.openai.api_server --model {where} --tensor-parallel-size 4", main, others,
        helper(), log=log, phase=Phase.WEIGHTS, quiet_s=3100, version="0.4.3",
        motion=Motion.SLOW if waits else Motion.STALLED,
        gpus=gpus(4, name="NVIDIA A100-SXM4-80GB", architecture="80", memory_used_bytes=35 * GB, power_w=66.0),
        host=host(
            container="kubernetes", driver="535.129.03", cuda="12.2",
            places=(place("weights", where, filesystem=kind, needed_bytes=144 * GB), place("home", "/root")),
        ),
    )  # fmt: skip


def bucket(*, waits: bool) -> Bundle:
    """A model cache in a bucket that is mounted; the accelerators are TPUs, of which nothing can be told."""
    where, kind = ("/data/hf-cache", "fuse.gcsfuse") if waits else ("/models/hf-cache", "ext4")
    stack = (
        "get_tensor (safetensors/__init__.py:30)",
        "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:610)",
        "load_weights (vllm/model_executor/model_loader/default_loader.py:266)",
        "load_model (vllm/v1/worker/tpu_model_runner.py:1180)",
        *CORE_MAIN,
    )
    shard = f"{where}/models--moe30b/snapshots/6c1f/model-00004-of-00016.safetensors"
    one = core(
        stack, facts=BARE, memory=21 * GB, cpu=0.04 if waits else 0.0, files=[mapped(shard, kind)] if waits else [],
        moves=Moves(faults=4100, read_bytes=158 << 20, memory_bytes=158 << 20) if waits else Moves(),
        **(FOR_A_PAGE if waits else {}),
    )  # fmt: skip
    log = [
        *begun("org/moe30b", "0.10.1"),
        v("EngineCore_DP0", "Using model weights format ['*.safetensors']", "weight_utils.py:296"),
        "Loading safetensors checkpoint shards:  19% Completed | 3/16 [14:22<1:02:40, 289.3s/it]",
    ]
    return started(
        f"vllm serve org/moe30b --tensor-parallel-size 8 --download-dir {where} --max-model-len 262144",
        front(), one, helper(), log=log, phase=Phase.WEIGHTS, quiet_s=240, gpus=(),
        motion=Motion.SLOW if waits else Motion.STALLED, environment={"VLLM_XLA_CACHE_PATH": "/data/jax"},
        host=host(
            container="kubernetes", driver="", cuda="", cpus=180, memory_bytes=720 * GB,
            places=(place("hub_cache", where, filesystem=kind, needed_bytes=61 * GB), place("home", "/root")),
        ),
    )  # fmt: skip


def faults_in(*, waits: bool) -> Bundle:
    """A server pins its mapped checkpoint, and each page of it is fetched alone: 63 MB/s."""
    page = {
        "state": "D",
        "wchan": "folio_wait_bit_common",
        "syscall": "ioctl(0x7, 0xc0384627, 0x7ffe10)",
        "kernel": (
            "folio_wait_bit_common", "filemap_fault", "__do_fault", "handle_mm_fault", "faultin_page",
            "__get_user_pages", "pin_user_pages", "os_lock_user_pages",
        ),
        "native": ("ioctl (libc.so.6)", "?? (libcuda.so.1)", "cuMemHostRegister_v2 (libcuda.so.1)"),
    }  # fmt: skip
    main = process(
        FRONT, "halogen-server", ppid=1, role=Role.FRONT, memory=31 * GB, shared=30 * GB, cpu=0.06 if waits else 0.0,
        moves=Moves(faults=154_000, read_bytes=601 << 20, memory_bytes=601 << 20) if waits else Moves(),
        files=[
            device("/dev/nvidiactl", fd=7),
            *([mapped("/models/flash/trunk.bin", "ext4", 66 * GB)] if waits else []),
        ],
        **(page if waits else {"native": ("pthread_cond_wait (libc.so.6)", "?? (halogen-server)")}),
    )  # fmt: skip
    card = gpus(
        1, name="NVIDIA GB10", architecture="121", memory_total_bytes=121 * GB, power_w=8.0, power_limit_w=140.0
    )
    return started(
        "halogen-server --checkpoint /models/flash --port 8080", main,
        log=["halogen 0.5.6", "checkpoint: trunk 65.64 GiB, pinning"], phase=Phase.WEIGHTS, quiet_s=480,
        motion=Motion.SLOW if waits else Motion.STALLED, gpus=card,
        pressure=Pressure(io_some=93.0, memory_some=0.0, memory_full=0.0, memory_free_bytes=71 * GB),
        host=host(
            container="podman", cpus=20, cpu_arch="aarch64", memory_bytes=121 * GB, memory_free_bytes=71 * GB,
            places=(place("weights", "/models/flash", needed_bytes=69 * GB), place("home", "/root")),
        ),
    )  # fmt: skip


def npu_copy(*, spins: bool) -> Bundle:
    """A copy to an NPU never starts; the thread asks for its event and yields, over and over."""
    stack = (
        "copy_ (torch/_tensor.py:90)",
        "default_weight_loader (vllm/model_executor/model_loader/weight_utils.py:1010)",
        "load_weights (vllm_omni/model_executor/models/omni_thinker.py:720)",
        "load_weights (vllm/model_executor/model_loader/default_loader.py:330)",
        "load_model (vllm_ascend/worker/model_runner_v1.py:2610)",
        *CORE_MAIN,
    )
    told = {"stack": stack, "state": "R", "cpu": 1.0} if spins else {**UNSEEN, "cpu": 0.0}
    one = core(**{"facts": BARE, "memory": 5 * GB, **told})  # type: ignore[arg-type]
    log = [
        *begun("/models/omni", "0.20.0"),
        "Loading safetensors checkpoint shards:   0% Completed | 0/15 [00:00<?, ?it/s]",
    ]
    return started(
        "vllm serve /models/omni --omni --port 8091", front(), one, helper(), log=log, phase=Phase.WEIGHTS,
        quiet_s=2400, gpus=(),
        host=host(
            cpu_arch="aarch64", driver="", cuda="", memory_bytes=192 * GB, memory_free_bytes=11 * GB,
            places=(place("weights", "/models/omni", needed_bytes=66 * GB), place("home", "/root")),
        ),
    )  # fmt: skip


def host_pool(*, pins: bool) -> Bundle:
    """TensorRT-LLM registers 300 GB of host memory for each of two ranks; its pages are made within the call."""
    stack = (
        (
            "__init__ (tensorrt_llm/runtime/kv_cache_manager_v2/_utils.py:512): "
            "_unwrap(drv.cuMemHostRegister(self._address, self._size, flags))"
        ),
        "__init__ (tensorrt_llm/runtime/kv_cache_manager_v2/_storage/_core.py:640)",
        "__init__ (tensorrt_llm/runtime/kv_cache_manager_v2/_core/_kv_cache_manager.py:120)",
        "_create_kv_cache_manager (tensorrt_llm/_torch/pyexecutor/_util.py:710)",
        "create_py_executor (tensorrt_llm/_torch/pyexecutor/py_executor_creator.py:640)",
        "worker_main (tensorrt_llm/executor/worker.py:250)",
    )
    behind = {
        "state": "D",
        "wchan": "rwsem_down_write_slowpath",
        "syscall": "ioctl(0x9, 0xc0304627, 0x7ffe10)",
        "kernel": ("rwsem_down_write_slowpath", "down_write", "os_acquire_rwlock_write", "nvidia_ioctl"),
    }
    told = {"name": "python -m mpi4py", "ppid": 4055, "threads": idle_threads(), "role": Role.WORKER}
    if pins:
        first = rank(
            0, label="rank 0", stack=stack, state="R", cpu=1.0, memory=88 * GB, shared=80 * GB,
            moves=Moves(memory_bytes=730 << 20), **told,
        )  # fmt: skip
        ranks = [first, rank(1, label="rank 1", stack=stack, memory=84 * GB, shared=76 * GB, **behind, **told)]
    else:
        ranks = [rank(n, label=f"rank {n}", memory=84 * GB, **UNSEEN, **told) for n in range(2)]
    main = process(FRONT, "trtllm-serve", ppid=1, stack=("wait (threading.py:331)",), role=Role.FRONT, facts=BARE)
    started_by = process(
        4055, "mpirun", native=("poll (libc.so.6)",), facts=BARE, syscall="poll(0x55, 0x9, 0xffffffff)"
    )
    log = [
        "[11/28/2026-09:14:07] [TRT-LLM] [RANK 0] [I] Loading checkpoint in parallel",
        "[11/28/2026-09:14:41] [TRT-LLM] [RANK 0] [I] KV cache manager v2: host cache 300.00 GiB",
    ]
    return started(
        "trtllm-serve serve /models/dense31b --tp_size 2 --extra_llm_api_options /etc/llm.yaml", main, started_by,
        ranks, log=log, phase=Phase.KV_CACHE, quiet_s=900, ranks=2, motion=Motion.SLOW if pins else Motion.STALLED,
        pressure=Pressure(memory_some=34.0, memory_full=2.0, io_some=0.0, memory_free_bytes=910 * GB),
        gpus=gpus(2, name="NVIDIA B200", architecture="100", memory_used_bytes=41 * GB),
        host=host(cpus=224, memory_bytes=2015 * GB, memory_free_bytes=910 * GB, container="docker"),
    )  # fmt: skip


def grows_in_silence() -> Bundle:
    """FlashInfer says that it loads an operator, and nothing more; the process grows."""
    one = rank(
        0, name="sglang::scheduler", label="scheduler", ppid=FRONT, cpu=0.9, state="R", memory=19 * GB,
        moves=Moves(memory_bytes=310 << 20), facts=ordinary_facts(), **UNSEEN,
    )  # fmt: skip
    log = [
        "[2026-11-28 09:14:07] server_args=ServerArgs(model_path='/models/llm', port=30000)",
        "[2026-11-28 09:14:22] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.11 GB",
        (
            "2026-11-28 09:14:24,101 - INFO - flashinfer.jit: Loading JIT ops: batch_prefill_with_kv_cache_dtype_q_"
            "bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_qk_128_head_dim_vo_128_f16qk_False"
        ),
    ]
    return started(
        SGLANG, launcher(), helper(), one, log=log, quiet_s=600, version="0.4.4",
        phase=Phase.COMPILE, motion=Motion.QUIET,
        gpus=pcie_gpus(1, "NVIDIA GeForce RTX 3090", architecture="86", memory_total_bytes=24 * GB),
    )  # fmt: skip
