"""Machines of the eighth lot with several GPUs that do not come further."""

from tests.corpus.lots.eighth.machines import heard
from tests.corpus.surroundings import pcie_gpus, spinning, vllm, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import GB, gpu, gpus, host

V100 = {"architecture": "70", "power_w": 47.0, "power_limit_w": 250.0}


def after_xid() -> Bundle:
    """A server on GPUs of which the kernel told Xid 145 before it was started, which is not looked back for."""
    told = {"name": "NVIDIA B300 SXM6 AC", "architecture": "103", "power_limit_w": 1100.0, "power_w": 240.0}
    stack = (
        "synchronize (torch/cuda/streams.py:108)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:151)",
        "initialize_model_parallel (vllm/distributed/parallel_state.py:1610)",
        "init_device (vllm/v1/worker/gpu_worker.py:265)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:860)",
    )
    native = ["cuStreamSynchronize (libcuda.so.1)", "cudaStreamSynchronize (libcudart.so.13)"]
    cards = (*spinning(gpus(2, **told), 240), *(gpu(n, **told) for n in range(2, 8)))
    pair = workers(2, stack, native=native, state="R", cpu=1.0)
    made = vllm(pair, phase=Phase.COMM_INIT, gpus=cards, version="0.28.0", ranks=2, host=host(driver="595.71.05"))
    return heard(made, ["(Worker_TP0 pid=4100) INFO {} [pynccl.py:113] vLLM is using nccl==2.28.9"])


def custom_reduce(*, used: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:1083)",
        "warmup_kernels (vllm/v1/worker/gpu/warmup.py:210)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:640)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:880)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:760)",
    )
    native = ["cuCtxSynchronize (libcuda.so.1)", "cudaDeviceSynchronize (libcudart.so.12)"]
    backends = "['CUSTOM', 'PYNCCL']" if used else "['PYNCCL']"
    cards = pcie_gpus(2, "Tesla V100-PCIE-32GB", memory_used_bytes=27 * GB, bar1_bytes=32 * GB, **V100)
    made = vllm(
        workers(2, stack, native=native, state="R", cpu=1.0), phase=Phase.WARMUP, version="0.28.0",
        gpus=spinning(cards, 47), ranks=2, options={"tensor_parallel_size": "2"} if used else
        {"tensor_parallel_size": "2", "disable_custom_all_reduce": ()},
    )  # fmt: skip
    return heard(made, [
        (
            f"(Worker_TP0 pid=4100) INFO {{}} [cuda_communicator.py:245] Using {backends} all-reduce backends (in "
            "dispatch order) for group 'tp:0' (world_size=2)."
        ),
        "(Worker_TP0 pid=4100) INFO {} [pynccl.py:113] vLLM is using nccl==2.27.5",
        "(Worker_TP0 pid=4100) INFO {} [monitor.py:48] torch.compile took 41.20 s in total",
        (
            "(EngineCore pid=4050) INFO {} [shm_broadcast.py:705] No available shared memory broadcast block "
            "found in 60 seconds."
        ),
    ])  # fmt: skip


def amd_pair() -> Bundle:
    stack = (
        "synchronize (torch/cuda/__init__.py:1083)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5480)",
        "determine_available_memory (vllm/v1/worker/gpu_worker.py:390)",
        "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:900)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:770)",
    )
    native = [
        "rocr::core::InterruptSignal::WaitRelaxed (libhsa-runtime64.so.1)",
        "hipDeviceSynchronize (libamdhip64.so.7)",
    ]
    cards = [
        gpu(n, name="AMD Radeon AI PRO R9700", vendor="amd", architecture="gfx1201", fabric="not supported",
            utilisation=100.0, power_w=92.0, power_limit_w=300.0, memory_used_bytes=19 * GB,
            memory_total_bytes=32 * GB)
        for n in range(2)
    ]  # fmt: skip
    made = vllm(
        workers(2, stack, native=native, state="R", cpu=1.0), phase=Phase.KV_CACHE, version="0.21.0",
        gpus=tuple(cards),
        host=host(driver="amdgpu 6.16.6", cuda=Gap(what="CUDA", reason=GapReason.NOT_SUPPORTED, detail="AMD")),
    )  # fmt: skip
    return heard(made, [
        (
            "(Worker_TP0 pid=4100) INFO {} [gpu_model_runner.py:5200] Model loading took 17.91 GiB memory and "
            "31.2 seconds"
        ),
        (
            "(EngineCore pid=4050) INFO {} [shm_broadcast.py:698] No available shared memory broadcast block "
            "found in 60 seconds."
        ),
    ])  # fmt: skip


def baton_left(*, left: bool) -> Bundle:
    path = "/tmp/aiter_configs/tuned_fmoe.csv.lock"
    builds = (
        "mp_lock (aiter/jit/core.py:150)",
        "get_2stage_cfgs (aiter/fused_moe.py:610)",
        "fused_moe (aiter/fused_moe.py:120)",
        "profile_run (vllm/v1/worker/gpu_model_runner.py:5010)",
        "worker_main (vllm/v1/executor/multiproc_executor.py:850)",
    )
    reduces = ("all_reduce (torch/distributed/distributed_c10d.py:3010)", *builds[3:])
    polls = ("wait (aiter/jit/utils/file_baton.py:60)", *builds) if left else builds
    ranks_ = [
        *workers(2, reduces, native=["hipStreamSynchronize (libamdhip64.so.7)"], state="R", cpu=1.0),
        *(worker(n, polls, syscall="clock_nanosleep(0x0, 0x0, 0x7ffe10)") for n in (2, 3)),
    ]
    lock = Lock(kind="file", path=path, holder=0, age_s=1500, filesystem="overlay")
    cards = tuple(
        gpu(n, name="AMD Instinct MI355X", vendor="amd", architecture="gfx950", fabric="not supported", power_w=240.0)
        for n in range(4)
    )
    raw = [f"(Worker_TP{n}_EP{n} pid={4100 + n}) [aiter] waiting for baton release at {path}" for n in (2, 3)]
    made = vllm(
        ranks_,
        phase=Phase.KV_CACHE,
        version="0.20.2",
        gpus=cards,
        ranks=4,
        locks=[lock] if left else [],
        quiet_s=1500,
    )
    return heard(made, raw if left else [], ago_s=1490)
