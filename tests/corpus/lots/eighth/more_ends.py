"""More servers of the eighth lot that ended by themselves."""

from tests.corpus.lots.eighth.ends import BOTH, FRONT_SAYS, core_failed, over, trace, workers_failed

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    GB,
    bundle,
    compiler,
    ended,
    engine,
    front,
    host,
    interface,
    place,
    rank,
)


def no_nvcc(*, told: bool) -> Bundle:
    frames = (
        "vllm/v1/sample/ops/topk_topp_sampler.py:294 flashinfer_sample",
        "flashinfer/sampling.py:50 get_sampling_module",
        "flashinfer/jit/core.py:120 build_and_load",
        "flashinfer/jit/cpp_ext.py:210 run_ninja | raise RuntimeError(msg) from e",
    )
    error = [
        "RuntimeError: Ninja build failed. Ninja output:",
        "ninja: Entering directory `/root/.cache/flashinfer/86/cached_ops/sampling'",
        "FAILED: sampling.cuda.o ",
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
        "ninja: build stopped: subcommand failed.",
    ]
    return core_failed(
        frames if told else frames[:1], *(error if told else []), version="0.10.0", phase=Phase.KV_CACHE
    )


def neuron_compile(*, failed: bool) -> Bundle:
    prefix = "ERROR {} [v1/executor/multiproc_executor.py:962] "
    first = ["RuntimeError: neuronx-cc compilation failed with 70. Check compiler logs."] * failed
    barrier = ("vllm_neuron/parallel/neuron_parallel_state.py:1318 tp_barrier",)
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.61.7]:22947"
    said = [
        *[prefix + one for one in first],
        *trace(prefix, barrier, lost),
        "(EngineCore pid=4050) ERROR {} [v1/engine/core.py:1140] EngineCore failed to start.",
        *FRONT_SAYS,
    ]
    gone = [
        *[ended(compiler("neuronx-cc"), code=70, ago_s=8)] * failed,
        *(ended(rank(n), ago_s=4) for n in range(64)),
    ]
    return over(said, exits=(*gone, *BOTH), version="0.21.0", phase=Phase.COMPILE, ranks=64, host=host(driver="2.31"))


def unwritable(*, failed: bool) -> Bundle:
    where = host(container="kubernetes", places=(
        place("weights", "/model-cache/llm", needed_bytes=16 * GB),
        place("compile_cache", "/.cache/vllm", filesystem="ext4"),
        place("home", "/", filesystem="overlay", writable=False),
    ))  # fmt: skip
    if not failed:
        compiles = (
            "compile (triton/compiler/compiler.py:320)",
            "compile_fx_inner (torch/_inductor/compile_fx.py:780)",
        )
        return bundle(
            front(), engine(stack=compiles, state="R", cpu=1.0), phase=Phase.COMPILE, host=where, version="0.19.1"
        )
    frames = (
        "vllm/v1/worker/gpu_worker.py:390 determine_available_memory",
        "triton/runtime/cache.py:60 __init__ | os.makedirs(self.cache_dir, exist_ok=True)",
    )
    error = "torch._inductor.exc.InductorError: PermissionError: [Errno 13] Permission denied: '/.triton'"
    return core_failed(frames, error, version="0.19.1", tag="EngineCore", phase=Phase.COMPILE, host=where)


def tiny_shm(*, small: bool) -> Bundle:
    lines = [
        (
            "(RayWorker pid=4101) node7:4101:4101 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend "
            "/dev/shm/nccl-kT8Zq1 to 9637892 bytes"
        ),
        (
            "(RayWorker pid=4101) node7:4101:4101 [1] misc/shmutils.cc:113 NCCL WARN Error while creating "
            "shared memory segment /dev/shm/nccl-kT8Zq1 (size 9637888)"
        ),
    ]
    last = (
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, unhandled system error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.18.1"
    )
    where = host(container="docker", shm_bytes=(64 << 20) if small else 32 * GB, shm_used_bytes=1 << 20)
    frames = ("vllm/engine/llm_engine.py:720 _run_workers", "torch/distributed/distributed_c10d.py:1702 all_reduce")
    return over(
        [*lines * small, *trace("", frames, last)], exits=BOTH[1:], version="0.2.1", phase=Phase.COMM_INIT, host=where
    )


def refused_options(version: str, said: str, **more: object) -> Bundle:
    usage = "usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ..."
    gone = [ended(front(), code=2, ago_s=1)]
    where = host(container="docker")
    return over([usage, *[said] * bool(said)], exits=gone, version=version, phase=Phase.SPAWN, host=where, **more)


def too_large(*, told: bool) -> Bundle:
    frames = (
        "vllm/v1/worker/gpu_model_runner.py:4100 load_model",
        "vllm/model_executor/layers/linear.py:200 create_weights",
        "torch/utils/_device.py:103 __torch_function__",
    )
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 272.00 MiB. GPU 0 has a total "
        "capacity of 11.63 GiB "
        "of which 145.56 MiB is free. Including non-PyTorch memory, this process has 11.33 GiB memory in use."
    )
    weights = place("weights", "/models/bundle/model", needed_bytes=(19 if told else 7) * GB)
    return core_failed(
        frames,
        *[error] * told,
        version="0.17.0",
        phase=Phase.MODEL_INIT,
        host=host(container="docker", places=(weights,)),
    )


def shim_crashes(*, mapped: bool) -> Bundle:
    said = [
        "(Worker pid=4100) INFO {} [pynccl.py:111] vLLM is using nccl==2.28.9",
        (
            "[HAMI-core ERROR (pid:4100 thread=133445224001088 multiprocess_memory_limit.c:1255)]: Illegal "
            "device id: 31069"
        ),
        "!!!!!!! Segfault encountered !!!!!!!",
        '  File "/libvgpu/src/multiprocess/multiprocess_memory_limit.c", line 469, in add_gpu_device_memory_usage',
        '  File "/libvgpu/src/cuda/memory.c", line 690, in cuMemCreate',
        '  File "misc/cudawrap.cc", line 92, in ncclCuMemHostEnable()',
        '  File "/nccl/src/init.cc", line 1852, in ncclCommInitRank',
    ]
    last = (
        "(EngineCore pid=4050) ERROR {} [multiproc_executor.py:273] Worker proc VllmWorker-0 died "
        "unexpectedly, shutting down executor."
    )
    where = host(container="kubernetes", preload=("/usr/local/vgpu/libvgpu.so",) if mapped else ())
    gone = [ended(rank(n), signal=11, ago_s=5 - n) for n in range(2)]
    shown = said if mapped else said[:1]
    return over(
        [*shown, last, *FRONT_SAYS],
        exits=(*gone, *BOTH),
        version="0.19.0",
        phase=Phase.COMM_INIT,
        host=where,
        ranks=2,
    )


def memory_taken(*, told: bool) -> Bundle:
    """A new server beside the workers that a killed one left; it gives up before anybody looks."""
    frames = (
        "vllm/v1/worker/gpu_worker.py:330 init_device",
        "vllm/v1/worker/utils.py:412 request_memory | raise ValueError(",
    )
    said = (
        "ValueError: Free memory on device cuda:0 (2.61/15.93 GiB) on startup is less than desired GPU "
        "memory utilization "
        "(0.8, 12.74 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    return workers_failed(
        2, frames if told else frames[:1], *[said] * told, version="0.28.0", phase=Phase.RENDEZVOUS,
        options={"gpu_memory_utilization": "0.80", "tensor_parallel_size": "2", "port": "18000"}, port=18000,
    )  # fmt: skip


def multicast(*, told: bool) -> Bundle:
    warn = [
        "node004:4101:4101 [1] NCCL INFO NVLS multicast support is available on dev 1",
        "",
        (
            "[2025-07-21 19:05:29] node004:4101:4101 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the "
            "operation cannot be performed in the present state'"
        ),
        "node004:4101:4101 [1] NCCL INFO transport/nvls.cc:409 -> 1",
        "node004:4101:4101 [1] NCCL INFO init.cc:1478 -> 1",
    ]
    frames = (
        "vllm/distributed/device_communicators/pynccl_wrapper.py:300 ncclCommInitRank",
        "vllm/distributed/device_communicators/pynccl_wrapper.py:277 NCCL_CHECK",
    )
    error = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
    return workers_failed(
        8, frames, error, version="0.9.2", before=warn if told else (), environment={"NCCL_DEBUG": "INFO"},
        host=host(driver="575.51.03", cuda="12.9"),
    )  # fmt: skip


def more_than_there_is(*, told: bool) -> Bundle:
    frames = (
        "vllm/engine/async_llm_engine.py:440 from_engine_args",
        "vllm/executor/ray_utils.py:121 initialize_ray_cluster | raise ValueError(",
    )
    error = "ValueError: The number of required GPUs exceeds the total number of available GPUs in the cluster."
    return over(
        trace("", frames, *[error] * told), exits=BOTH[1:], version="0.5.3.post1", phase=Phase.CONFIG, ranks=8,
        options={"tensor_parallel_size": "8", "port": "9010"},
        host=host(devices=tuple(f"/dev/nvidia{n}" for n in range(4))),
    )  # fmt: skip


def no_mount(*, there: bool) -> Bundle:
    path = "/data/kubernetes-data/models/bge-m3"
    frames = (
        "vllm/transformers_utils/config.py:380 get_config",
        "huggingface_hub/utils/_validators.py:154 validate_repo_id | raise HFValidationError(",
    )
    error = (
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        f"'{path}'. Use `repo_type` argument if needed."
    )
    weights = place(
        "weights", path, filesystem="ext4" if there else "overlay", there=there, needed_bytes=2 * GB if there else 0
    )
    return over(
        trace("(APIServer pid=4000) ", frames, *[error] * (not there)), exits=BOTH[1:], version="0.11.0",
        phase=Phase.CONFIG, host=host(container="docker", places=(weights,)),
    )  # fmt: skip


def ipv6_alone(*, told: bool) -> Bundle:
    frames = (
        "vllm/engine/llm_engine.py:190 _init_workers_ray | driver_ip = get_ip()",
        'vllm/utils.py:166 get_ip | s.connect(("8.8.8.8", 80))  # Doesn\'t need to be reachable',
    )
    nics = (
        interface("lo", "127.0.0.1", "::1", kind="loopback"),
        interface("eth0", *["fd00:10:244::2f"] if told else ["10.244.0.47"], kind="virtual"),
    )
    said = trace("", frames if told else frames[:1], *["OSError: [Errno 101] Network is unreachable"] * told)
    return over(
        said,
        exits=BOTH[1:],
        version="0.3.0",
        phase=Phase.RENDEZVOUS,
        host=host(container="kubernetes", interfaces=nics),
    )
