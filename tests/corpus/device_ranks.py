"""Reports of ranks that went different ways: collectives, drafters, autotuning."""

from collections.abc import Sequence

from msgspec.structs import replace
from tests.corpus.case import Case
from tests.corpus.surroundings import (
    BROADCAST_LINE,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    scheduler,
    schedulers,
    sglang,
    spinning,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    gpus,
    line,
)

FORWARD = "forward_batch_generation (sglang/srt/managers/tp_worker.py:400)"
IN_SEND = (
    "send (torch/distributed/distributed_c10d.py:2500)",
    "send_object (sglang/srt/distributed/parallel_state.py:900)",
    "send_tensor_dict (sglang/srt/distributed/parallel_state.py:1010)",
    "event_loop_pp_disagg_prefill (sglang/srt/disaggregation/prefill.py:700)",
    SCHEDULER_MAIN,
)
IN_RECV = ("recv (torch/distributed/distributed_c10d.py:2560)", *IN_SEND[1:])
ABORTED = ("all_reduce (sglang/srt/distributed/parallel_state.py:600)", FORWARD, SCHEDULER_MAIN)
PREPARES = (
    "all_gather_into_tensor (sglang/srt/distributed/parallel_state.py:700)",
    "prepare_mlp_sync_batch (sglang/srt/managers/scheduler.py:2500)",
    SCHEDULER_MAIN,
)
DRAFTS = (
    "ncclCommInitRank (sglang/srt/distributed/device_communicators/pynccl_wrapper.py:360)",
    "all_gather_into_tensor (sglang/srt/distributed/parallel_state.py:700)",
    "forward_draft_extend (sglang/srt/speculative/eagle_worker.py:900)",
    SCHEDULER_MAIN,
)
VERIFIES = ("all_reduce (sglang/srt/distributed/parallel_state.py:600)", FORWARD, SCHEDULER_MAIN)
LOADS_DRAFT = (
    "synchronize (torch/cuda/__init__.py:1090)",
    "init_attention_backend (sglang/srt/speculative/eagle_worker.py:240)",
    "__init__ (sglang/srt/speculative/eagle_worker.py:150)",
    SCHEDULER_MAIN,
)
TUNES = (
    "all_reduce (torch/distributed/distributed_c10d.py:2900)",
    "_profile_single_kernel (flashinfer/autotuner.py:700)",
    "choose_one (flashinfer/autotuner.py:510)",
    "flashinfer_autotune (vllm/model_executor/warmup/kernel_warmup.py:90)",
    WORKER_MAIN,
)
PAST_TUNING = (
    "all_gather (vllm/distributed/parallel_state.py:560)",
    "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)",
    "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:420)",
    WORKER_MAIN,
)
FUSED = (
    "allreduce_fusion (flashinfer/comm/trtllm_ar.py:800)",
    "call_trtllm_fused_allreduce_norm (vllm/compilation/collective_fusion.py:500)",
    "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4300)",
    WORKER_MAIN,
)


def _call(number: int, operation: str, sizes: tuple[int, ...], where: str, sequence: int = 812) -> CollectiveCall:
    return CollectiveCall(
        rank=number,
        group="tp",
        sequence=sequence,
        operation=operation,
        state="started",
        input_sizes=(sizes,),
        output_sizes=(sizes,),
        dtype="BFloat16",
        where=where,
    )


def _done(number: int) -> tuple[CollectiveCall, ...]:
    calls = (_call(number, "nccl:all_reduce", (64, 4096), "", sequence) for sequence in (810, 811))
    return tuple(replace(call, state="completed") for call in calls)


def _vision(second: CollectiveCall) -> Bundle:
    first = _call(0, "nccl:all_reduce", (1369, 1280), "forward (vision.py:310)")
    encodes = (
        "synchronize (torch/cuda/__init__.py:1090)",
        "forward (sglang/srt/models/vision.py:310)",
        FORWARD,
        SCHEDULER_MAIN,
    )
    return sglang(
        scheduler(0, encodes, native=SYNCS, state="R", cpu=1.0),
        scheduler(1, encodes if second.operation == first.operation else PREPARES, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.WARMUP,
        gpus=spinning(gpus(2), 150),
        collectives=(*_done(0), first, *_done(1), second),
        options={"dp-size": "2", "enable-dp-attention": ()},
    )


def _overload(last: Sequence[str]) -> Bundle:
    return sglang(
        schedulers(5, PREPARES),
        [scheduler(number, last) for number in (5, 6, 7)],
        phase=Phase.SERVING,
        gpus=spinning(gpus(8), 190),
        environment={"SGLANG_REQ_WAITING_TIMEOUT": "10"},
        log=[line("Abort request req-1f, waited too long", source="TP5", number=5)],
    )


def _drafting(others: Sequence[str], **options: object) -> Bundle:
    return sglang(
        schedulers(3, DRAFTS),
        [scheduler(number, others) for number in range(3, 8)],
        phase=Phase.SERVING,
        gpus=gpus(8),
        options={"dp-size": "8", "tp-size": "8", "enable-dp-attention": (), **options},
        log=[line("Scheduler watchdog timeout (self.watchdog_timeout=300.0)", source="TP0", level="ERROR", ago_s=5)],
    )


def _next_n(version: str) -> Bundle:
    return sglang(
        schedulers(8, LOADS_DRAFT),
        phase=Phase.DRAFT_INIT,
        nodes=2,
        version=version,
        gpus=gpus(8, name="NVIDIA H20"),
        options={"enable-dp-attention": (), "speculative-algorithm": "EAGLE", "tp": "16", "dp": "8"},
    )


def _stages(stack: Sequence[str], stages: str) -> Bundle:
    return vllm(
        workers(4, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.GRAPH_CAPTURE,
        gpus=spinning(gpus(4, name="NVIDIA GB200", nvlinks=18, power_limit_w=1200.0), 280),
        options={"pipeline-parallel-size": stages, "tensor-parallel-size": "2"},
    )


def _tuning(others: Sequence[str], *log: str) -> Bundle:
    hits = [line(text, source="Worker_TP0", number=0) for text in log]
    return vllm(
        worker(0, others),
        [worker(number, TUNES) for number in (1, 2, 3)],
        phase=Phase.WARMUP,
        gpus=gpus(4),
        log=[line("JIT kernel warmup starting.", source="Worker_TP0", number=0), *hits, BROADCAST_LINE],
    )


def _one_tunes(second: Sequence[str]) -> Bundle:
    return vllm(
        worker(0, ("synchronize (torch/cuda/streams.py:108)", *TUNES[1:]), wchan="futex_do_wait", cpu=0.05),
        worker(1, second, wchan="futex_do_wait", cpu=0.02),
        phase=Phase.WARMUP,
        nodes=3,
        gpus=gpus(2, name="NVIDIA GB10", architecture="121", fabric="not supported"),
        log=[line("Tuning mxfp8_gemm: 0%|          | 0/16", source="Worker_TP0", number=0), BROADCAST_LINE],
    )


CASES = (
    Case(
        id="sglang-12121",
        url="https://github.com/sgl-project/sglang/issues/12121",
        cause="mismatched_collective",
        bundle=sglang(
            schedulers(4, IN_SEND),
            phase=Phase.WARMUP,
            gpus=gpus(4, name="NVIDIA H20"),
            options={"disaggregation-mode": "prefill", "pp-size": "4", "enable-dp-attention": ()},
        ),
        shows="every pipeline stage sends, none receives",
        twin=sglang(schedulers(3, IN_SEND), scheduler(3, IN_RECV), phase=Phase.WARMUP, gpus=gpus(4)),
    ),
    Case(
        id="sglang-27221",
        url="https://github.com/sgl-project/sglang/issues/27221",
        cause="mismatched_collective",
        bundle=_overload(ABORTED),
        shows="all eight ranks wait in collectives, three of them in another one",
        twin=_overload(PREPARES),
    ),
    Case(
        id="sglang-36802",
        url="https://github.com/sgl-project/sglang/issues/36802",
        cause="mismatched_collective",
        bundle=_vision(_call(1, "nccl:_all_gather_base", (6,), "prepare_mlp_sync_batch (scheduler.py:2500)")),
        shows="call 812 of one group is an all-reduce of the vision tower on rank 0, an all-gather on rank 1",
        twin=_vision(_call(1, "nccl:all_reduce", (1369, 1280), "forward (vision.py:310)")),
    ),
    Case(
        id="vllm-43616",
        url="https://github.com/vllm-project/vllm/pull/43616",
        cause="mismatched_collective",
        bundle=_stages(FUSED, "2"),
        shows="GPUs spin in a fused all-reduce while two pipeline stages warm it up at once",
        twin=_stages(FUSED, "1"),
    ),
    Case(
        id="sglang-29144",
        url="https://github.com/sgl-project/sglang/issues/29144",
        cause="draft_comm_init",
        bundle=_drafting(VERIFIES, **{"speculative-algorithm": "EAGLE"}),
        shows="some ranks make a communicator within the drafter, the others are not in it",
        twin=_drafting(DRAFTS, **{"speculative-algorithm": "EAGLE"}),
        companions=frozenset({"mismatched_collective"}),
    ),
    Case(
        id="sglang-6296",
        url="https://github.com/sgl-project/sglang/issues/6296",
        cause="unsupported_combo",
        bundle=_next_n("0.4.6.post4"),
        shows="speculation with data-parallel attention in a version before 0.4.7",
        twin=_next_n("0.4.8"),
    ),
    Case(
        id="vllm-52291",
        url="https://github.com/vllm-project/vllm/issues/52291",
        cause="autotune",
        bundle=_one_tunes(PAST_TUNING),
        shows="one rank of a pair tunes, the other does not, nothing moves",
        twin=_one_tunes(("synchronize (torch/cuda/streams.py:108)", *TUNES[1:])),
    ),
    Case(
        id="vllm-57423",
        url="https://github.com/vllm-project/vllm/issues/57423",
        cause="autotune",
        bundle=_tuning(PAST_TUNING, "FlashInfer autotune: 14 config cache hits"),
        shows="ranks 1 to 3 meet in the tuner; rank 0, which alone had cached results, is past it",
        twin=_tuning(PAST_TUNING),
    ),
)
