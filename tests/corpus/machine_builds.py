"""Reports about builds of kernels and their locks."""

from msgspec.structs import replace
from tests.corpus.case import Case
from tests.corpus.surroundings import WORKER_MAIN, scheduler, schedulers, sglang, vllm, worker

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Motion, Phase
from firstlight.testing.bundles import (
    FIRST_RANK,
    bundle,
    compiler,
    ended,
    file,
    folder,
    line,
    process,
)

IN_ALL_REDUCE = (
    "all_reduce (vllm/distributed/device_communicators/pynccl.py:168)",
    "forward (vllm/model_executor/layers/linear.py:1400)",
    "profile_run (vllm/v1/worker/gpu_model_runner.py:4100)",
    WORKER_MAIN,
)
BATON = (
    "wait (torch/utils/file_baton.py:49): time.sleep(self.wait_seconds)",
    "_jit_compile (torch/utils/cpp_extension.py:2140)",
    "load (torch/utils/cpp_extension.py:1680)",
)
FILELOCK = (
    "acquire (filelock/_api.py:340): time.sleep(poll_interval)",
    "__enter__ (filelock/_api.py:390)",
    "build_and_load (flashinfer/jit/core.py:230)",
)
COMPILING = (
    "make_cubin (triton/backends/nvidia/compiler.py:430)",
    "compile (triton/compiler/compiler.py:300)",
    "_dummy_run (vllm/v1/worker/gpu_model_runner.py:4000)",
    WORKER_MAIN,
)


def lock_file(path: str, *, age_s: float = 90_000.0, **more: object) -> Lock:
    return Lock(kind="file", path=path, holder=0, age_s=age_s, **more)  # type: ignore[arg-type]


def _extension(*, locked: bool) -> Bundle:
    path = "/root/.cache/torch_extensions/py311_cu128/fused_ops/lock"
    return bundle(
        process(
            4000, "python", stack=[*BATON, "main (/srv/train.py:30)"], syscall="clock_nanosleep(0x1, 0x0)", ppid=1
        ),
        engine="generic",
        phase=Phase.IMPORT,
        locks=[lock_file(path)] if locked else [],
    )


def _diffusion(*, locked: bool) -> Bundle:
    path = "/var/cache/runner/torch_extensions/rasterizer/lock"
    stack = [
        *BATON,
        "get_renderer (sglang/multimodal_gen/runtime/models/shape.py:60)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)",
    ]
    return sglang(
        scheduler(0, stack, syscall="clock_nanosleep(0x1, 0x0)"),
        phase=Phase.WARMUP,
        locks=[lock_file(path, age_s=700_000.0)] if locked else [],
        log=[line("Warming up the pipeline", source="TP0", number=0)],
    )


def _on_nfs(filesystem: str) -> Bundle:
    lock = "/home/eva/.cache/flashinfer/0.2.5/90/batch_prefill.lock"
    return vllm(
        worker(
            0,
            [*FILELOCK, *IN_ALL_REDUCE[1:]],
            syscall="clock_nanosleep(0x1, 0x0)",
            files=[file(lock, filesystem=filesystem)],
        ),
        worker(
            1,
            [*FILELOCK, *IN_ALL_REDUCE[1:]],
            syscall="clock_nanosleep(0x1, 0x0)",
            files=[file(lock, filesystem=filesystem)],
        ),
        phase=Phase.COMPILE,
        log=[line("flashinfer.jit: Loading JIT ops: batch_prefill", source="Worker_TP0", number=0)],
    )


def _held_in_meeting(*, known: bool) -> Bundle:
    lock = "/root/.cache/flashinfer/0.6.8/90a/cached_ops/gdn_prefill/gdn_prefill.lock"
    held = [Lock(kind="flock", path=lock, holder=FIRST_RANK + 2, holder_name="VLLM::Worker_TP2")] if known else []
    stuck = worker(5, [*FILELOCK, *IN_ALL_REDUCE[1:]], syscall="clock_nanosleep(0x1, 0x0)", files=[file(lock)])
    others = [
        worker(number, IN_ALL_REDUCE, files=[file(lock)] if number == 2 else []) for number in (0, 1, 2, 3, 4, 6, 7)
    ]
    return vllm(*others, stuck, phase=Phase.COMPILE, locks=held)


def _failing_build(*, lasting: bool) -> Bundle:
    waiting = [
        "communicate (subprocess.py:2100)",
        "run (subprocess.py:550)",
        "run_ninja (flashinfer/jit/cpp_ext.py:320)",
        "build (flashinfer/jit/core.py:200)",
        WORKER_MAIN,
    ]
    attempts = [ended(compiler("ptxas", number), signal=11, ago_s=200 - 20 * number) for number in range(5)]
    made = vllm(
        worker(0, waiting, syscall="wait4(0xffffffff)"),
        worker(1, [*FILELOCK, WORKER_MAIN], syscall="clock_nanosleep(0x1, 0x0)"),
        [compiler("ptxas", 9)],
        phase=Phase.COMPILE,
        exits=() if lasting else tuple(attempts),
        log=[] if lasting else [
            line("ninja: build stopped: subcommand failed.", source="Worker_TP0", number=0, level="ERROR", ago_s=90),
            line("flashinfer.jit: Loading JIT ops: fused_moe_120", source="Worker_TP0", number=0, ago_s=60),
        ],
    )  # fmt: skip
    if lasting:
        return made
    first, last = made.looks
    renamed = tuple(
        replace(one, process=replace(one.process, id=replace(one.process.id, pid=4988, started=4988)))
        if one.process.name == "ptxas"
        else one
        for one in first.processes
    )
    return replace(made, looks=(replace(first, processes=renamed), last))


def _busy_compiler(name: str, *, cpu: float, phase: Phase, said: str = "") -> Bundle:
    waits = [
        "wait (subprocess.py:1264)",
        "run (subprocess.py:550)",
        "build (flashinfer/jit/core.py:200)",
        "forward (flashinfer/cascade.py:90)",
        "run_batch (sglang/srt/managers/scheduler.py:2300)",
    ]
    compilers = [compiler(name, cpu=cpu)] if cpu else []
    return sglang(
        scheduler(0, waits, syscall="wait4(0x1324)" if cpu else "futex(0x7f3a10)"),
        compilers,
        phase=phase,
        log=[line(said, source="TP0", number=0)] if said else [],
    )


def _in_process(*, grows: int, busy: bool, count: int = 2) -> Bundle:
    return vllm(
        *(worker(n, COMPILING, state="R" if busy else "S", cpu=1.0 if busy else 0.0) for n in range(count)),
        phase=Phase.COMPILE,
        motion=Motion.SLOW if busy else Motion.STALLED,
        folders=[
            folder("compile_cache", "/cache/vllm/torch_compile_cache/5d0c", bytes_=90 << 20, files=300, grows=grows)
        ],
    )


def _precompile(*, busy: bool) -> Bundle:
    stack = [
        "_compile_gemm (deep_gemm/jit/compiler.py:120)",
        "build (deep_gemm/jit/compiler.py:80)",
        "warmup (sglang/srt/layers/deep_gemm_wrapper/compile_utils.py:210)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)",
    ]
    return sglang(
        *schedulers(8, stack, state="R" if busy else "S", cpu=0.9 if busy else 0.0),
        phase=Phase.WARMUP,
        folders=[
            folder(
                "engine_cache",
                "/root/.cache/sglang/deep_gemm",
                bytes_=20 << 20,
                files=80,
                grows=500_000 if busy else 0,
            )
        ],
        log=[line("Entering DeepGEMM JIT Pre-Compile session. It may take a long time", source="TP0", number=0)],
    )


CASES = (
    Case(
        id="pytorch-189245",
        url="https://github.com/pytorch/pytorch/issues/189245",
        cause="stale_jit_lock",
        shows="the main thread polls in FileBaton; the lock file is older than the start, and nobody builds",
        bundle=_extension(locked=True),
        twin=_extension(locked=False),
    ),
    Case(
        id="sglang-35989",
        url="https://github.com/sgl-project/sglang/pull/35989",
        cause="stale_jit_lock",
        shows="the scheduler polls in FileBaton; the lock file is days old, and nobody builds",
        bundle=_diffusion(locked=True),
        twin=_diffusion(locked=False),
    ),
    Case(
        id="sglang-38408",
        url="https://github.com/sgl-project/sglang/issues/38408",
        cause="stale_jit_lock",
        lacks="stacks, and the age of lock files",
        bundle=bundle(
            process(4000, "pytest", stack=[], syscall="futex(0x7f3a10)", ppid=1),
            engine="generic",
            phase=Phase.COMPILE,
        ),
    ),
    Case(
        id="flashinfer-993",
        url="https://github.com/flashinfer-ai/flashinfer/pull/993",
        cause="stale_jit_lock",
        shows="both ranks poll a file lock that lies on NFS, which nobody on the machine holds; no compiler is there",
        bundle=_on_nfs("nfs4"),
        twin=_on_nfs("ext4"),
    ),
    Case(
        id="vllm-41865",
        url="https://github.com/vllm-project/vllm/issues/41865",
        cause="stale_jit_lock",
        shows="one rank polls the build lock that another holds, which waits in a collective; nobody builds",
        bundle=_held_in_meeting(known=True),
        twin=_held_in_meeting(known=False),
        companions=frozenset({"rank_elsewhere"}),
    ),
    Case(
        id="xinference-5130",
        url="https://github.com/xorbitsai/inference/pull/5130",
        cause="jit_build_failure",
        shows="one ptxas after another dies of a signal, and the log says that ninja stopped",
        bundle=_failing_build(lasting=False),
        twin=_failing_build(lasting=True),
        companions=frozenset({"slow_jit"}),
    ),
    Case(
        id="sglang-7339",
        url="https://github.com/sgl-project/sglang/issues/7339",
        cause="slow_jit",
        shows="a cicc of the server's computes while the scheduler waits for it",
        bundle=_busy_compiler("cicc", cpu=1.0, phase=Phase.SERVING),
        twin=_busy_compiler("cicc", cpu=0.0, phase=Phase.SERVING),
    ),
    Case(
        id="radixark-3158",
        url="https://github.com/radixark/miles/issues/3158",
        cause="slow_jit",
        shows="ptxas children compute",
        bundle=_busy_compiler("ptxas", cpu=0.8, phase=Phase.COMPILE),
        twin=_busy_compiler("ptxas", cpu=0.0, phase=Phase.COMPILE),
    ),
    Case(
        id="dynamo-10695",
        url="https://github.com/ai-dynamo/dynamo/issues/10695",
        cause="slow_jit",
        shows="workers compute in Triton's compiler, and a new folder of the compile cache grows",
        bundle=_in_process(grows=3_000_000, busy=True),
        twin=_in_process(grows=0, busy=False),
    ),
    Case(
        id="sglang-5580",
        url="https://github.com/sgl-project/sglang/pull/5580",
        cause="slow_jit",
        shows="all ranks compute in DeepGEMM's compiler, and its cache grows",
        bundle=_precompile(busy=True),
        twin=_precompile(busy=False),
    ),
    Case(
        id="sglang-3752",
        url="https://github.com/sgl-project/sglang/issues/3752",
        cause="slow_jit",
        lacks="what the lagging ranks compute; only that it works without --enable-torch-compile is known",
        bundle=sglang(
            *schedulers(
                8,
                [
                    "synchronize (torch/cuda/streams.py:108)",
                    "warmup (sglang/srt/model_executor/cuda_graph_runner.py:500)",
                    "run_scheduler_process (sglang/srt/managers/scheduler.py:3100)",
                ],
            ),
            phase=Phase.COMPILE,
            nodes=4,
            options={"enable-torch-compile": (), "tp": "32", "nnodes": "4"},
            log=[line("Watchdog timeout (self.watchdog_timeout=300)", source="TP3", number=3, level="ERROR")],
        ),
    ),
)
