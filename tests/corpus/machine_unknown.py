"""Reports of which nobody knows the cause, before and after the communicators: firstlight must not guess."""

from tests.corpus.case import UNKNOWN, Case
from tests.corpus.surroundings import (
    SCHEDULER_MAIN,
    WORKER_MAIN,
    nccl_line,
    scheduler,
    schedulers,
    sglang,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import NO_PTRACE, bundle, front, gpu, gpus, helper, host, line, place, process, ranks


def _silent(*, phase: Phase, log: tuple[str, ...] = (), name: str = "python") -> Bundle:
    """A server of which only the log was looked at; its stacks may not be read."""
    return bundle(
        process(4000, name, stack=NO_PTRACE, syscall="futex(0x7f3a10, 0x80)", ppid=1),
        helper(),
        engine="generic",
        phase=phase,
        log=log,
    )


PIPELINE = (
    "recv_object (sglang/srt/distributed/parallel_state.py:1100)",
    "_pp_recv_pyobj_from_prev_stage (sglang/srt/managers/scheduler_pp_mixin.py:300)",
    "event_loop_pp (sglang/srt/managers/scheduler_pp_mixin.py:60)",
    SCHEDULER_MAIN,
)
GATHERS = (
    "all_gather_into_tensor (torch/distributed/distributed_c10d.py:4000)",
    "prepare_mlp_sync_batch (sglang/srt/managers/scheduler_dp_attn_mixin.py:120)",
    "event_loop_overlap (sglang/srt/managers/scheduler.py:1400)",
    SCHEDULER_MAIN,
)
AFTER_LOAD = (
    "process_weights_after_loading (sglang/srt/layers/quantization/fp8.py:900)",
    "load_model (sglang/srt/model_loader/loader.py:700)",
    SCHEDULER_MAIN,
)
AUTOTUNES = (
    "_profile_single_kernel (flashinfer/autotuner.py:900)",
    "choose_one (flashinfer/autotuner.py:700)",
    "flashinfer_autotune (vllm/model_executor/warmup/kernel_warmup.py:110)",
    WORKER_MAIN,
)
HASH_WEIGHTS = (
    "get_model (vllm/model_executor/model_loader/loader.py:900)",
    "load_model (vllm/worker/worker.py:180)",
    "_run_worker_process (vllm/executor/multiproc_worker_utils.py:220)",
)

CASES = (
    Case(
        id="dgxspark-7",
        url="https://github.com/mark-ramsey-ri/vllm-dgx-spark/issues/7",
        cause=UNKNOWN,
        lacks="counters of the load, the state of the loader's threads, their stacks",
        bundle=_silent(phase=Phase.WEIGHTS, log=("Still loading... (37m 36s) - this is normal for large models",)),
    ),
    Case(
        id="lmdeploy-3568",
        url="https://github.com/InternLM/lmdeploy/issues/3568",
        cause=UNKNOWN,
        lacks="native stacks of the ranks",
        bundle=bundle(
            process(4000, "lmdeploy", stack=["create_model (lmdeploy/turbomind/turbomind.py:300)"], ppid=1),
            engine="generic",
            phase=Phase.WARMUP,
            gpus=gpus(8),
            log=["[TM][DEBUG] turbomind::UnifiedAttentionLayer::Forward"],
        ),
    ),
    Case(
        id="mvp-24",
        url="https://github.com/JavaDerek/music-video-pipeline/issues/24",
        cause=UNKNOWN,
        lacks="memory of the card before the start, and the kernel's view of the wedged process",
        bundle=bundle(
            process(4000, "python", stack=["to (comfy/model_management.py:700)"], syscall="ioctl(0x1f)", ppid=1),
            engine="generic",
            phase=Phase.WEIGHTS,
            log=["Requested to load a large model", "19995MB Staged"],
        ),
    ),
    Case(
        id="openr1-617",
        url="https://github.com/huggingface/open-r1/issues/617",
        cause=UNKNOWN,
        lacks="ray status, and the GPUs that Ray sees",
        bundle=bundle(
            front(stack=NO_PTRACE, syscall="futex(0x7f3a10)"),
            phase=Phase.RENDEZVOUS,
            log=[
                "Started a local Ray instance.",
                "No current placement group found. Creating a new placement group.",
            ],
        ),
    ),
    Case(
        id="sglang-11796",
        url="https://github.com/sgl-project/sglang/issues/11796",
        cause=UNKNOWN,
        lacks="the stack of the import, old lock files, processes of earlier runs",
        bundle=_silent(phase=Phase.IMPORT),
    ),
    Case(
        id="sglang-17941",
        url="https://github.com/sgl-project/sglang/issues/17941",
        cause=UNKNOWN,
        lacks="the stacks of every stage, and native frames",
        bundle=sglang(
            *schedulers(4, PIPELINE),
            phase=Phase.WARMUP,
            version="0.5.8",
            gpus=gpus(4),
            environment={"SGL_ENABLE_JIT_DEEPGEMM": "false"},
            log=[
                line(
                    "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
                    source="PP2",
                    level="ERROR",
                )
            ],
        ),
    ),
    Case(
        id="sglang-34582",
        url="https://github.com/sgl-project/sglang/issues/34582",
        cause=UNKNOWN,
        lacks="the transport that the collective takes, and the interfaces of each node",
        bundle=sglang(
            *schedulers(8, GATHERS),
            phase=Phase.WARMUP,
            nodes=2,
            options={"enable-dp-attention": (), "dp-size": "2", "nnodes": "2", "dist-init-addr": "10.0.0.2:20000"},
            log=[line("DataParallelController watchdog timeout (soft)", level="WARNING")],
        ),
    ),
    Case(
        id="sglang-3488",
        url="https://github.com/sgl-project/sglang/issues/3488",
        cause=UNKNOWN,
        lacks="any stack at all",
        bundle=_silent(phase=Phase.SPAWN),
    ),
    Case(
        id="sglang-4270",
        url="https://github.com/sgl-project/sglang/issues/4270",
        cause=UNKNOWN,
        lacks="how the environments of the two starts differ",
        bundle=sglang(
            scheduler(0, NO_PTRACE),
            phase=Phase.WARMUP,
            log=[line("Capture cuda graph end. Time elapsed: 6.50 s.", source="TP0", number=0)],
        ),
    ),
    Case(
        id="sglang-9590",
        url="https://github.com/sgl-project/sglang/issues/9590",
        cause=UNKNOWN,
        lacks="stacks after the load, and whether anything computes",
        bundle=sglang(
            *schedulers(8, AFTER_LOAD),
            phase=Phase.WEIGHTS,
            gpus=gpus(8),
            log=[
                line(
                    "Loading safetensors checkpoint shards: 100% Completed | 163/163 [05:10<00:00,  1.9s/it]",
                    source="TP0",
                    number=0,
                )
            ],
        ),
    ),
    Case(
        id="vllm-18260",
        url="https://github.com/vllm-project/vllm/issues/18260",
        cause=UNKNOWN,
        lacks="whether all ranks reached the store, and NCCL's last phase",
        bundle=bundle(
            front(),
            ranks(8, stack=NO_PTRACE),
            phase=Phase.RENDEZVOUS,
            log=[
                "world_size=8 rank=3 local_rank=3 distributed_init_method=tcp://127.0.0.1:50001",
                "Waiting for 1 core engine proc(s) to start: {0}",
            ],
        ),
    ),
    Case(
        id="vllm-4277",
        url="https://github.com/vllm-project/vllm/issues/4277",
        cause=UNKNOWN,
        lacks="stacks, and whether the kernel is a sandbox's",
        bundle=vllm(*workers(4, NO_PTRACE), phase=Phase.WARMUP, log=[nccl_line("Channel 09/24 : 0 1")]),
    ),
    Case(
        id="vllm-58031",
        url="https://github.com/vllm-project/vllm/issues/58031",
        cause=UNKNOWN,
        lacks="power and clocks of the GPU, and whether the tactic index moves on",
        bundle=vllm(
            *workers(2, AUTOTUNES),
            phase=Phase.WARMUP,
            gpus=(
                gpu(0, utilisation=100.0, power_w=400.0, memory_activity=20.0),
                gpu(1, utilisation=100.0, power_w=400.0, memory_activity=20.0),
            ),
            log=[line("Running FlashInfer autotune", source="Worker_TP0", number=0)],
        ),
    ),
    Case(
        id="vllm-6636",
        url="https://github.com/vllm-project/vllm/issues/6636",
        cause=UNKNOWN,
        lacks="native stacks: a collective, a file lock or storage",
        bundle=vllm(
            *workers(2, HASH_WEIGHTS),
            phase=Phase.WEIGHTS,
            host=host(places=(place("weights", "/models/llm", needed_bytes=14 << 30),)),
            log=[
                nccl_line("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"),
                line("Using model weights format ['*.safetensors']", source="Worker_TP0", number=0),
            ],
        ),
    ),
    Case(
        id="vllm-7303",
        url="https://github.com/vllm-project/vllm/issues/7303",
        cause=UNKNOWN,
        lacks="the stack after the load",
        bundle=vllm(
            *workers(1, NO_PTRACE),
            phase=Phase.KV_CACHE,
            motion=Motion.QUIET,
            gpus=(
                gpu(0, name="Tesla T4", architecture="75", memory_total_bytes=15 << 30, memory_used_bytes=14 << 30),
            ),
            log=[line("Loading model weights took 7.1 GB", source="Worker_TP0", number=0)],
        ),
    ),
)
