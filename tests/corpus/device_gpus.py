"""Reports about GPUs, their drivers, kernels and graphs."""

from collections.abc import Sequence

from tests.corpus.case import Case
from tests.corpus.surroundings import (
    BROADCAST_LINE,
    IDLE_WORKER,
    SCHEDULER_MAIN,
    SYNCS,
    WORKER_MAIN,
    pcie_gpus,
    schedulers,
    sglang,
    spinning,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    GB,
    Moves,
    bundle,
    cuda_libraries,
    folder,
    gpu,
    gpus,
    host,
    line,
    ordinary_facts,
    process,
)

IN_PTX = ("?? (libnvidia-ptxjitcompiler.so.1)", "?? (libcuda.so.1)", "cuModuleLoadData (libcuda.so.1)")
NO_NVIDIA_SMI = Gap(what="GPUs", reason=GapReason.TIMED_OUT, detail="the driver did not answer within 5 s")


def _channel(kernel_log: Sequence[str]) -> Bundle:
    native = ("cuStreamSynchronize (libcuda.so.1)", "ggml_backend_cuda_synchronize (libggml-cuda.so)")
    server = process(4100, "llama-server", native=native, state="R", cpu=1.0, facts=ordinary_facts(libraries=()))
    return bundle(
        server,
        phase=Phase.SERVING,
        engine="generic",
        gpus=spinning(pcie_gpus(1, "NVIDIA GeForce RTX 5090 Laptop GPU"), 40),
        kernel_log=tuple(kernel_log),
    )


def _firmware(kernel_log: Sequence[str], cards: tuple[Gpu, ...] | Gap) -> Bundle:
    return vllm(
        workers(1, IDLE_WORKER, state="D", kernel=("rm_ioctl [nvidia]", "nvidia_unlocked_ioctl [nvidia]")),
        phase=Phase.SERVING,
        gpus=cards,
        kernel_log=tuple(kernel_log),
    )


def _driver(version: str) -> Bundle:
    stack = ("_forward_thread (lmdeploy/turbomind/turbomind.py:300)", "run (threading.py:1012)")
    server = process(4100, "python", stack=stack, native=SYNCS, state="R", cpu=1.0, rank=0)
    return bundle(
        server,
        phase=Phase.SERVING,
        engine="generic",
        host=host(driver=version, cuda="12.3", container="docker"),
        gpus=spinning(pcie_gpus(2, "NVIDIA GeForce RTX 4090", architecture="89", peers=(), power_limit_w=450.0), 120),
    )


def _no_fabric(*log: str) -> Bundle:
    stack = ("_cuda_init (torch/cuda/__init__.py:400)", "main (/srv/train/main.py:14)")
    return bundle(
        process(4100, "python", stack=stack),
        phase=Phase.IMPORT,
        engine="generic",
        gpus=gpus(8, name="NVIDIA A100-SXM4-80GB", architecture="80", fabric="not supported", nvlinks=12),
        log=[line(text, level="ERROR") for text in log],
    )


def _driver_compiles(native: Sequence[str], name: str, **more: object) -> Bundle:
    libraries = (*cuda_libraries(), Library(path="/usr/lib/libnvidia-ptxjitcompiler.so.1", kind="ptx_jit"))
    first_use = ("_lazy_init (torch/cuda/__init__.py:170)", "main (/srv/app/serve.py:8)")
    server = process(
        4100,
        name,
        stack=first_use if name == "python" else (),
        native=native,
        state="R",
        cpu=1.0,
        facts=ordinary_facts(libraries=libraries),
    )
    return bundle(
        server, engine="generic", folders=[folder("compile_cache", "/root/.nv/ComputeCache", grows=90_000)], **more
    )


def _full(used: int) -> Bundle:
    stack = (
        "alloc_extend (sglang/srt/mem_cache/allocator.py:90)",
        "capture_one_batch_size (sglang/srt/model_executor/cuda_graph_runner.py:640)",
        "capture (sglang/srt/model_executor/cuda_graph_runner.py:500)",
        SCHEDULER_MAIN,
    )
    return sglang(
        schedulers(8, stack, native=("cudaMalloc (libcudart.so.12)", "?? (libtorch_cuda.so)")),
        phase=Phase.GRAPH_CAPTURE,
        gpus=gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=used),
        options={"mem-fraction-static": "0.93", "max-running-requests": "250", "enable-flashinfer-mla": ()},
    )


def _kernel(power_w: float, memory: float) -> Bundle:
    stack = (
        "tree_speculative_sampling_target_only (sgl_kernel/speculative.py:60)",
        "eagle_sample (sglang/srt/speculative/eagle_utils.py:300)",
        "run_eagle_verify (sglang/srt/speculative/eagle_worker_common.py:210)",
        SCHEDULER_MAIN,
    )
    cards = pcie_gpus(2, "NVIDIA A2", architecture="86", power_limit_w=60.0, memory_total_bytes=16 * GB)
    return sglang(
        schedulers(2, stack, native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=spinning(cards, power_w, memory),
        options={"speculative-algorithm": "EAGLE", "tp-size": "2", "kv-cache-dtype": "fp8_e5m2"},
    )


CASES = (
    Case(
        id="llamacpp-15128",
        url="https://github.com/ggml-org/llama.cpp/issues/15128",
        cause="gpu_fault",
        lacks="the kernel's log, and that the process did not end when it was killed",
        bundle=bundle(
            process(
                4100,
                "llama-server",
                state="R",
                cpu=1.0,
                moves=Moves(memory_bytes=GB // 8),
                facts=ordinary_facts(libraries=()),
            ),
            phase=Phase.WEIGHTS,
            engine="generic",
            host=host(driver="", cuda=""),
            gpus=(gpu(0, vendor="amd", name="AMD Radeon RX 6800", architecture="gfx1030", fabric="not supported"),),
            log=[line("request: GET /health 127.0.0.1 503")],
        ),
    ),
    Case(
        id="llamacpp-27330",
        url="https://github.com/ggml-org/llama.cpp/issues/27330",
        cause="gpu_fault",
        bundle=_channel(["NVRM: Xid (PCI:0000:01:00): 8, pid=4100, name=llama-server, channel 0x00000012"]),
        shows="the kernel's log tells of Xid 8",
        twin=_channel([]),
    ),
    Case(
        id="opengpu-1111",
        url="https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1111",
        cause="gpu_fault",
        bundle=_firmware(
            ["NVRM: Xid (PCI:0000:41:00): 119, pid=4100, Timeout after 45s of waiting for RPC response from GPU0!"],
            NO_NVIDIA_SMI,
        ),
        shows="Xid 119, the driver does not answer, tasks stuck in it",
        twin=_firmware([], gpus(1)),
    ),
    Case(
        id="lmdeploy-1750",
        url="https://github.com/InternLM/lmdeploy/issues/1750",
        cause="driver_bug",
        bundle=_driver("545.29.06"),
        shows="two RTX 4090 spin with driver 545",
        twin=_driver("550.54.15"),
    ),
    Case(
        id="pytorch-35710",
        url="https://github.com/pytorch/pytorch/issues/35710",
        cause="fabric_not_ready",
        bundle=_no_fabric("RuntimeError: cuda runtime error (802) : system not yet initialized"),
        shows="CUDA reports error 802",
        twin=_no_fabric("RuntimeError: No CUDA GPUs are available"),
    ),
    Case(
        id="ptx-18359",
        url="https://github.com/pytorch/pytorch/issues/18359",
        cause="ptx_jit",
        bundle=_driver_compiles(IN_PTX, "python", phase=Phase.IMPORT),
        shows="a thread computes in the driver's PTX compiler",
        twin=_driver_compiles(("?? (libcuda.so.1)", "cuInit (libcuda.so.1)"), "python", phase=Phase.IMPORT),
    ),
    Case(
        id="tfserving-1663",
        url="https://github.com/tensorflow/serving/issues/1663",
        cause="ptx_jit",
        bundle=_driver_compiles(
            IN_PTX,
            "tensorflow_model_server",
            phase=Phase.WARMUP,
            host=host(container="docker"),
            gpus=gpus(1, name="NVIDIA A100", architecture="80"),
        ),
        shows="a thread computes in the driver's PTX compiler, in a container whose cache does not last",
        twin=_driver_compiles(("?? (libtensorflow_cc.so.2)",), "tensorflow_model_server", phase=Phase.WARMUP),
    ),
    Case(
        id="sglang-3840",
        url="https://github.com/sgl-project/sglang/issues/3840",
        cause="gpu_oom_silent",
        bundle=_full(96 * GB - GB // 4),
        shows="GPU memory is full while ranks allocate for graphs",
        twin=_full(80 * GB),
    ),
    Case(
        id="sglang-35822",
        url="https://github.com/sgl-project/sglang/issues/35822",
        cause="kernel_hang_sm",
        bundle=_kernel(25, 0),
        shows="GPUs busy at 25 W; both ranks above the same sampling kernel",
        twin=_kernel(58, 70),
    ),
    Case(
        id="vllm-42186",
        url="https://github.com/vllm-project/vllm/issues/42186",
        cause="kernel_hang_sm",
        lacks="which kernel is resident: the ranks wait for a stream, and only versions told them apart",
        bundle=vllm(
            workers(
                8,
                (
                    "synchronize (torch/cuda/streams.py:230)",
                    "get_output (vllm/v1/worker/gpu_model_runner.py:300)",
                    "execute_model (vllm/v1/worker/gpu_worker.py:600)",
                    WORKER_MAIN,
                ),
                native=SYNCS,
                state="R",
                cpu=1.0,
            ),
            phase=Phase.SERVING,
            gpus=spinning(gpus(8, name="NVIDIA B200", architecture="100", nvlinks=18, power_limit_w=1000.0), 260),
            options={"enable-expert-parallel": ()},
            log=[BROADCAST_LINE],
        ),
    ),
    Case(
        id="vllm-2770",
        url="https://github.com/vllm-project/vllm/issues/2770",
        cause="graph_replay",
        lacks="native frames (cuGraphLaunch on all ranks), or a start with --enforce-eager",
        bundle=vllm(
            workers(2, ("synchronize (torch/cuda/streams.py:230)", "execute_model (vllm/worker/worker.py:220)")),
            phase=Phase.SERVING,
            version="0.3.0",
            gpus=spinning(gpus(2), 180),
            log=[line("Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)", level="ERROR")],
        ),
    ),
)
