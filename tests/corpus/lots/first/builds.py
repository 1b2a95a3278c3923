"""Machines of the first lot: compilers, and those who wait for a build."""

from tests.corpus.surroundings import (
    SCHEDULER_MAIN,
    SYNCS,
    scheduler,
    sglang,
)

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    folder,
    gpus,
    line,
    ordinary_cgroup,
    ordinary_facts,
    process,
)

BATON = (
    "wait (torch/utils/file_baton.py:50): time.sleep(self.wait_seconds)",
    "_jit_compile (torch/utils/cpp_extension.py:2156)",
)
EXTENSION = "/root/.cache/torch_extensions/py312_cu129/c_dlpack"


def dlpack(*, left: bool) -> Bundle:
    stack = (
        *BATON,
        "load_inline (torch/utils/cpp_extension.py:2057)",
        "load_torch_c_dlpack_extension (tvm_ffi/_optional_torch_c_dlpack.py:540)",
        "<module> (tvm_ffi/_optional_torch_c_dlpack.py:566)",
        "<module> (flashinfer/jit/core.py:9)",
    )
    main = process(
        FRONT, "python3", stack=stack if left else stack[3:], syscall="clock_nanosleep(0x0, 0x0)",
        role=Role.FRONT, ppid=1,
    )  # fmt: skip
    found = Lock(kind="file", path=f"{EXTENSION}/lock", holder=0, waiters=(FRONT,), age_s=90_000)
    still = folder("extensions", EXTENSION, bytes_=GB // 256)
    return bundle(main, phase=Phase.IMPORT, engine="sglang", locks=[found] if left else [], folders=[still])


def equivariance(*, left: bool) -> Bundle:
    where = "/home/u/.cache/torch_extensions/py311_cu128/libtorch_tp_jit"
    stack = (
        *BATON,
        "load (torch/utils/cpp_extension.py:1681)",
        "<module> (openequivariance/extlib/__init__.py:105)",
    )
    facts = ordinary_facts(cgroup=ordinary_cgroup(pids=31, pids_max=100, pids_refused=4))
    main = process(FRONT, "nequip-compile", stack=stack, syscall="clock_nanosleep(0x0, 0x0)", ppid=1, facts=facts)
    found = Lock(kind="file", path=f"{where}/lock", holder=0, waiters=(FRONT,), age_s=7_400)
    return bundle(main, phase=Phase.IMPORT, engine="generic", locks=[found] if left else [])


def gemm_warmup(*, compiles: bool) -> Bundle:
    stack = (
        "compile (deep_gemm/jit/compiler.py:150)",
        "_compile_one (sglang/srt/layers/quantization/deep_gemm_wrapper/compile_utils.py:210)",
        "_compile_deep_gemm_one_type_all (sglang/srt/layers/quantization/deep_gemm_wrapper/compile_utils.py:160)",
        "warmup (sglang/srt/model_executor/model_runner.py:1700)",
        SCHEDULER_MAIN,
    )
    waits = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", *stack[3:])
    native = ("nvvmCompileProgram (libnvrtc.so.12)", "nvrtcCompileProgram (libnvrtc.so.12)")
    slow = scheduler(0, stack, native=native, state="R", cpu=1.0) if compiles else scheduler(0, waits, native=SYNCS)
    return sglang(
        slow,
        [scheduler(n, waits, native=SYNCS, state="R", cpu=1.0) for n in (1, 2, 3)],
        phase=Phase.WARMUP,
        gpus=gpus(4),
        folders=[folder("engine_cache", "/root/.deep_gemm", bytes_=GB // 50, files=90, grows=200_000 * compiles)],
        log=[line("Entering DeepGEMM JIT Pre-Compile session.", source="TP0", number=0, ago_s=900)],
    )
