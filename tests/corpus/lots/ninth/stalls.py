"""Machines of the ninth lot: SGLang servers that crawl, wait, or stand still for a reason that nobody found."""

from tests.corpus.lots.ninth.machines import SGLANG, at, begun, launcher, loaded, started
from tests.corpus.surroundings import SCHEDULER_MAIN, idle_threads, scheduler, schedulers

from firstlight.core.bundle import Bundle
from firstlight.core.look import OpenFile, ThreadLook
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import GB, Made, Moves, compiler, folder, gpus, helper, host, place, process, thread

INIT = (
    "load_model (sglang/srt/model_executor/model_runner.py:1330)",
    "initialize (sglang/srt/model_executor/model_runner.py:560)",
    "__init__ (sglang/srt/managers/tp_worker.py:240)",
    "__init__ (sglang/srt/managers/scheduler.py:420)",
    SCHEDULER_MAIN,
)
LOADS = (
    "do_load_weights (sglang/srt/models/deepseek_common/deepseek_weight_loader.py:420)",
    "load_weights (sglang/srt/models/deepseek_v2.py:3010)",
    "load_weights_and_postprocess (sglang/srt/model_loader/loader.py:690)",
    *INIT,
)
POOL_WAIT = ("wait (threading.py:331)", "as_completed (concurrent/futures/_base.py:243)", *LOADS)
LOADER = (
    "copy_ (torch/_tensor.py:90)",
    "weight_loader (sglang/srt/layers/moe/fused_moe_triton/layer.py:610)",
    "run (concurrent/futures/thread.py:58)",
    "_worker (concurrent/futures/thread.py:83)",
)
AFTER_LOAD = (
    "monitored_barrier (torch/distributed/distributed_c10d.py:5160)",
    "dist_barrier_after_load (sglang/srt/model_executor/model_runner.py:1372)",
    *INIT,
)
GLOO_WAIT = (
    "pthread_cond_wait (libc.so.6)",
    "gloo::transport::tcp::UnboundBuffer::waitRecv (libtorch_cpu.so)",
    "c10d::ProcessGroupGloo::monitoredBarrier (libtorch_cpu.so)",
)


def detokenizer() -> Made:
    return process(
        4030, "sglang::detokenizer", role=Role.HELPER, syscall="poll(0x7f3e00, 0x1, 0xffffffff)",
        stack=("recv (zmq/sugar/socket.py:1120)", "event_loop (sglang/srt/managers/detokenizer_manager.py:110)"),
    )  # fmt: skip


def _mapped(path: str, filesystem: str) -> OpenFile:
    """A weight file that a thread waits for a page of."""
    return OpenFile(fd=-2, kind="file", target=path, access="r", size=5 * GB, filesystem=filesystem)


def _loaders(count: int, *, waits: str) -> list[ThreadLook]:
    """Threads of a loader's pool; `waits` is the kernel function that they wait in for a page, if they do."""
    for_page = {
        "state": "D",
        "wchan": waits,
        "syscall": "none: it blocks outside of any system call",
        "kernel": (waits, "filemap_fault", "__do_fault", "do_fault", "handle_mm_fault", "exc_page_fault"),
        "native": ("__memmove_evex_unaligned_erms (libc.so.6)", "at::native::copy_impl (libtorch_cpu.so)"),
    }
    return [
        thread(LOADER, name=f"ThreadPoolExecutor-0_{number}", **(for_page if waits else {}))  # type: ignore[arg-type]
        for number in range(count)
    ]


def lustre(*, waits: bool) -> Bundle:
    """Eight ranks fault in pages of a checkpoint on Lustre, thousands a second and a little each."""
    where, kind = ("/lustre/models/llm", "lustre") if waits else ("/models/llm", "ext4")
    shard = _mapped(f"{where}/model-00013-of-00141.safetensors", kind)
    moves = Moves(faults=184_000, read_bytes=35 << 20) if waits else Moves()
    ranks = schedulers(
        8, POOL_WAIT, threads=(*idle_threads(), *_loaders(6, waits="folio_wait_bit_common" if waits else "")),
        files=[shard] if waits else [], cpu=1.7 if waits else 0.0, moves=moves, memory=30 * GB,
    )  # fmt: skip
    log = [
        *begun(8)[:3],
        at("TP0", "Load weight begin. avail mem=138.9 GB"),
        "Multi-thread loading shards:   9% Completed | 12/141 [02:10<23:18, 10.84s/it]",
    ]
    return started(
        f"python -m sglang.launch_server --model-path {where} --tp 8", launcher(), detokenizer(), helper(), ranks,
        log=log,
        phase=Phase.WEIGHTS, motion=Motion.SLOW if waits else Motion.STALLED, quiet_s=11 if waits else 300,
        gpus=gpus(8, name="NVIDIA H20", memory_used_bytes=20 * GB),
        host=host(places=(place("weights", where, filesystem=kind, needed_bytes=704 * GB), place("home", "/root"))),
    )  # fmt: skip


def driver_lock(*, waits: bool) -> Bundle:
    """In every rank one loader thread copies within CUDA, from pages of NFS; the others wait for its lock."""
    where, kind = ("/mnt/nfs/llm", "nfs4") if waits else ("/models/llm", "ext4")
    page = {
        "state": "D",
        "wchan": "folio_wait_bit_common",
        "syscall": "none: it blocks outside of any system call",
        "kernel": ("folio_wait_bit_common", "filemap_fault", "__do_fault", "handle_mm_fault", "do_page_fault"),
        "native": ("?? (libcuda.so.590.48.01)", "cuMemcpyHtoDAsync_v2 (libcuda.so.590.48.01)"),
    }
    told = page if waits else {"state": "R"}
    inside = thread(LOADER, name="ThreadPoolExecutor-0_0", **told)
    behind = [
        thread(
            LOADER, name=f"ThreadPoolExecutor-0_{number}", syscall="futex(0x7f2a40, 0x189, 0x2, 0x0)",
            native=("pthread_rwlock_wrlock (libc.so.6)", "?? (libcuda.so.590.48.01)"),
        )
        for number in range(1, 8)
    ]  # fmt: skip
    ranks = [
        scheduler(
            number, POOL_WAIT, name=f"sglang::scheduler_DP{number}_TP{number}_EP{number}",
            label=f"DP{number} TP{number} EP{number}", threads=(*idle_threads(), inside, *behind),
            files=[_mapped(f"{where}/model-00041-of-00064.safetensors", kind)] if waits else [],
            moves=Moves(faults=900, read_bytes=40 << 20) if waits else Moves(),
            cpu=0.03 if waits else 1.0, memory=26 * GB,
        )
        for number in range(4)
    ]  # fmt: skip
    log = [
        *begun(0),
        *(at(f"DP{n} TP{n} EP{n}", "Load weight begin. avail mem=274.1 GB") for n in range(4)),
        "Multi-thread loading shards:  64% Completed | 41/64 [03:58<02:13,  5.81s/it]",
    ]
    return started(
        f"python -m sglang.launch_server --model-path {where} --tp 4 --dp 4 --ep 4 --enable-dp-attention",
        launcher(), detokenizer(), helper(), ranks, log=log, phase=Phase.WEIGHTS, quiet_s=140,
        motion=Motion.SLOW if waits else Motion.STALLED,
        gpus=gpus(4, name="NVIDIA GB300", architecture="103", memory_used_bytes=90 * GB),
        host=host(
            cpus=144, cpu_arch="aarch64", driver="590.48.01", memory_bytes=956 * GB,
            places=(place("weights", where, filesystem=kind, needed_bytes=806 * GB), place("home", "/root")),
        ),
    )  # fmt: skip


def deep_gemm(*, compiles: bool) -> Bundle:
    """DeepGEMM builds its kernels anew at every start of the container."""
    stack = (
        "fp8_gemm_nt (deep_gemm/__init__.py:96)",
        "execute (sglang/srt/layers/deep_gemm_wrapper/compile_utils.py:262)",
        "_compile_deep_gemm_one_type_all (sglang/srt/layers/deep_gemm_wrapper/compile_utils.py:190)",
        "_maybe_compile_deep_gemm_one_type_all (sglang/srt/layers/deep_gemm_wrapper/compile_utils.py:151)",
        "run_once (sglang/srt/model_executor/cuda_graph_runner.py:760)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:801)",
        *INIT[1:],
    )
    rank = scheduler(
        0, stack, name="sglang::scheduler", label="scheduler", cpu=0.1 if compiles else 0.0,
        syscall="read(0x4a, 0x7f3a10, 0x1000)",
        native=("read (libc.so.6)", "deep_gemm::call_external_command (_C.so)",
        "deep_gemm::NVCCCompiler::compile (_C.so)"),
    )  # fmt: skip
    made = "/root/.cache/deep_gemm/tmp/6a1f/kernel.cu"
    building = (
        compiler("nvcc", 0, state="S", cpu=0.0, cmdline=("/usr/local/cuda/bin/nvcc", made, "-cubin", "-std=c++20")),
        compiler("cicc", 1, cmdline=("cicc", "--c++20", made), ppid=4900),
    )
    log = [
        *loaded(),
        at("", "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 879872, K size: 13.43 GB"),
        at("", "Capture cuda graph begin. This can take up to several minutes. avail mem=11.08 GB"),
        at("", "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)"),
        at("", "Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=5120, K=6144, num_groups=1 with all Ms."),
        "DeepGEMM warmup:  31%|###1      | 5088/16384 [06:41<14:50, 12.68it/s]",
    ]
    grown = 2 << 20 if compiles else 0
    cache = [folder("compile_cache", "/root/.cache/deep_gemm", bytes_=41 << 20, files=380, grows=grown)]
    return started(
        SGLANG, launcher(), detokenizer(), helper(), rank, *(building if compiles else ()), log=log, folders=cache,
        phase=Phase.GRAPH_CAPTURE, motion=Motion.MOVING if compiles else Motion.STALLED,
        quiet_s=6 if compiles else 300, gpus=gpus(1, memory_used_bytes=68 * GB), host=host(container="docker"),
    )  # fmt: skip


def uneven_experts(*, uneven: bool) -> Bundle:
    """Two ranks still rework their heavier share of the weights; the others wait for them at a barrier."""
    works = (
        "_pack_scales (sglang/srt/layers/quantization/mxfp4.py:505)",
        "post_load_weights (sglang/srt/models/deepseek_v4.py:2410)",
        *LOADS[1:],
    )
    ranks = [
        scheduler(number, works, state="R", cpu=1.0, memory=80 * GB)
        if not uneven or number in {0, 7}
        else scheduler(number, AFTER_LOAD, native=GLOO_WAIT, memory=60 * GB)
        for number in range(8)
    ]
    log = [
        *begun(8)[:3],
        "Multi-thread loading shards: 100% Completed | 66/66 [04:31<00:00,  4.11s/it]",
        *(at(f"TP{n}", "Load weight end. elapsed=301.2 s, type=DeepseekV4") for n in range(1, 7) if uneven),
    ]
    cards = gpus(
        8, name="AMD Instinct MI355X", vendor="amd", architecture="gfx950", memory_total_bytes=288 * GB,
        memory_used_bytes=140 * GB, power_limit_w=1400.0, power_w=260.0, fabric="not supported",
    )  # fmt: skip
    return started(
        f"{SGLANG} --tp 8 --speculative-algorithm DSPARK", launcher(), detokenizer(), helper(), ranks, log=log,
        phase=Phase.WEIGHTS, motion=Motion.SLOW, quiet_s=240, gpus=cards,
        host=host(driver="amdgpu 6.16.13", cuda="", devices=("/dev/kfd",)),
    )  # fmt: skip
