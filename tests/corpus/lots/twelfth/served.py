"""Machines of the twelfth lot that run SGLang: ranks that died or disagree, or build one after the other."""

from tests.corpus.starts import (
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    detokenizer,
    launcher,
    listens,
    opened,
    serves,
    started,
)
from tests.corpus.surroundings import scheduler, spinning

from firstlight.core.bundle import Bundle
from firstlight.core.collective import CollectiveCall
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import GB, compiler, ended, folder, gpus, helper, host, interface

LOOP = ("event_loop_overlap (sglang/srt/managers/scheduler.py:1340)", SCHEDULER_MAIN)
REDUCES = (
    "synchronize (torch/cuda/streams.py:231)",
    "resolve_last_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:170)",
    "process_batch_result_decode (sglang/srt/managers/scheduler_output_processor_mixin.py:190)",
    *LOOP,
)


def aborted(*, seen: bool) -> Bundle:
    """NCCL's watchdog has aborted one scheduler; the main process did not notice, and takes requests."""
    ranks = [scheduler(n, REDUCES, state="R", cpu=1.0, memory=14 * GB) for n in range(4)]
    alive = [one for n, one in enumerate(ranks) if not seen or n != 2]
    abort = (
        "[rank2]:[E207 09:14:07.120114 ProcessGroupNCCL.cpp:683] [Rank 2] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=88213, OpType=ALLREDUCE, NumelIn=131072, NumelOut=131072, Timeout(ms)=600000) "
        "ran for 600008 milliseconds before timing out."
    )
    log = [
        *serves(4),
        at("TP0", "Decode batch, #running-req: 18, #token: 40110, gen throughput (token/s): 902.11, #queue-req: 0"),
        *([abort] if seen else []),
    ]
    return started(
        f"{SGLANG} --tp 4", listens(), detokenizer(), helper(), alive,
        log=log, phase=Phase.SERVING, quiet_s=45, version="0.5.8", question="no token within 60 s",
        exits=[ended(ranks[2], signal=6, ago_s=40)] if seen else [],
        gpus=spinning(gpus(4, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=120 * GB), 134.0),
    )  # fmt: skip


def other_sizes(*, seen: bool) -> Bundle:
    """All ranks are in the same call of the same group, and not all with the same number of tokens."""
    stack = (
        "all_reduce (torch/distributed/distributed_c10d.py:3007)",
        "all_reduce (sglang/srt/distributed/parallel_state.py:640)",
        "forward (sglang/srt/layers/vocab_parallel_embedding.py:490)",
        "forward_extend (sglang/srt/model_executor/model_runner.py:2710)",
        "run_batch (sglang/srt/managers/scheduler.py:2410)",
        *LOOP,
    )
    ranks = [scheduler(n, stack, state="R", cpu=1.0, memory=16 * GB) for n in range(8)]
    calls = [
        CollectiveCall(
            rank=n, group="tp", sequence=1_320_347, operation="nccl:all_reduce", state="started", dtype="BFloat16",
            input_sizes=((1140 if n == 5 else 628, 7168),), output_sizes=((1140 if n == 5 else 628, 7168),),
            where=stack[2],
        )
        for n in range(8)
    ]  # fmt: skip
    log = [
        *serves(8),
        at("TP0", "Prefill batch, #new-seq: 3, #new-token: 628, #cached-token: 40960, token usage: 0.61"),
        at("", "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."),
    ]
    return started(
        f"{SGLANG} --tp 8 --chunked-prefill-size 8192 --trust-remote-code", listens(), detokenizer(), helper(), ranks,
        log=log, phase=Phase.SERVING, quiet_s=430, version="0.5.19", question="no token within 60 s",
        collectives=calls if seen else [], environment={"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        gpus=spinning(gpus(8, name="NVIDIA B200", architecture="100", memory_used_bytes=169 * GB), 228.0),
    )  # fmt: skip


def stage_by_stage(*, seen: bool) -> Bundle:
    """The warm-up request goes through four stages, each of which builds its own kernels when its turn comes."""
    builds = (
        "wait (subprocess.py:1264)",
        "build (deep_gemm/jit/compiler.py:150)",
        "fp8_gemm_nt (sglang/srt/layers/deep_gemm_wrapper/entrypoint.py:60)",
        "forward (sglang/srt/models/deepseek_v4.py:1210)",
        "forward_batch_generation (sglang/srt/managers/tp_worker.py:470)",
        "event_loop_pp (sglang/srt/managers/scheduler_pp_mixin.py:140)",
        SCHEDULER_MAIN,
    )
    receives = (
        "recv_object (sglang/srt/distributed/parallel_state.py:1010)",
        "recv_tensor_dict (sglang/srt/distributed/parallel_state.py:1130)",
        "_pp_recv_proxy_tensors (sglang/srt/managers/scheduler_pp_mixin.py:610)",
        "event_loop_pp (sglang/srt/managers/scheduler_pp_mixin.py:120)",
        SCHEDULER_MAIN,
    )
    gloo = ("pthread_cond_wait (libc.so.6)", "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)")
    names = [{"name": f"sglang::scheduler_PP{n}", "label": f"PP{n}", "memory": 9 * GB} for n in range(4)]
    ranks = [
        scheduler(n, builds, syscall="wait4(0x1324, 0x7ffd10, 0x0, 0x0)", **names[n])
        if n == 1
        else scheduler(n, receives, native=gloo, **names[n])
        for n in range(4)
    ]
    tools = [
        compiler("nvcc", 0, ppid=4101, cpu=0.0, state="S", memory=GB // 16, cmdline=("nvcc", "-cubin", "kernel.cu")),
        compiler("cicc", 1, ppid=4900, memory=GB, cmdline=("cicc", "--arch", "compute_90a", "kernel.cu")),
    ]
    log = [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        *(at(f"PP{n}", "Load weight end. elapsed=88.1 s, type=DeepseekV4ForCausalLM") for n in range(4)),
        at("", "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
        at("PP0", "Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #queue-req: 0"),
    ]
    return started(
        f"{SGLANG} --pp 4", listens(), detokenizer(), helper(),
        ranks if seen else [scheduler(n, **{**names[n], **UNSEEN}) for n in range(4)], tools if seen else [], log=log,
        phase=Phase.WARMUP, quiet_s=140, motion=Motion.QUIET, version="0.5.12",
        folders=[folder("compile_cache", "/root/.cache/deep_gemm", bytes_=12 << 20, files=210,
                        grows=310_000 if seen else 0)],
        gpus=gpus(4, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=88 * GB),
    )  # fmt: skip


def after_init() -> Bundle:
    """One of two nodes: NCCL says that it is complete, and then nobody says anything; the other was not seen."""
    ranks = [scheduler(n, state="R", cpu=1.0, memory=4 * GB, **{**UNSEEN, "syscall": "running"}) for n in range(8)]
    log = [
        *opened(8),
        *(f"node01:{4100 + n}:{4100 + n} [{n}] NCCL INFO ncclCommInitRank comm 0x55f5be32f460 rank {n} nranks 16 "
          f"cudaDev {n} busId {n}a000 commId 0x4e2671c9674e940d - Init COMPLETE" for n in range(8)),
        *(at(f"TP{n}", "Custom allreduce is disabled because this process group spans across nodes.")
          for n in range(8)),
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.3.0.1:5000 --trust-remote-code", launcher(),
        detokenizer(), helper(), ranks, log=log, phase=Phase.COMM_INIT, quiet_s=1300, version="0.4.4",
        environment={"NCCL_DEBUG": "INFO"},
        gpus=spinning(gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=3 * GB), 148.0),
        host=host(devices=("/dev/infiniband",), interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("bond0", "10.3.0.1"),
        )),
    )  # fmt: skip
