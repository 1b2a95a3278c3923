"""Machines of the ninth lot: SGLang servers that die of it."""

from tests.corpus.lots.ninth.machines import (
    RUN_SCHEDULER,
    SGLANG,
    SIGQUIT,
    TRACEBACK,
    at,
    begun,
    dead,
    fallen,
    launcher,
    loaded,
)
from tests.corpus.surroundings import SCHEDULER_MAIN, scheduler

from firstlight.core.bundle import Bundle
from firstlight.core.gpu import GpuProcess
from firstlight.core.host import Coverage
from firstlight.core.look import Leftover
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import FRONT, GB, PACKAGES, ended, gpu, gpus, host, interface, place, process


def numa(*, refused: bool) -> Bundle:
    wrapped = [
        process(4100 + node, f"numactl --cpunodebind={node} --membind={node}", ppid=FRONT, role=Role.OTHER)
        for node in range(2)
    ]
    why = ["setting membind: Invalid argument"] * 2 if refused else []
    log = [
        *begun(0),
        *why,
        "Traceback (most recent call last):",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
    ]
    return dead(
        f"{SGLANG} --tp 2", 2, Phase.SPAWN, log, exits=fallen(*wrapped, code=1), host=host(container="docker"),
    )  # fmt: skip


def store_taken(*, told: bool) -> Bundle:
    ranks = [
        scheduler(number, (SCHEDULER_MAIN,), name=f"sglang::scheduler_DP{number}", label=f"DP{number}")
        for number in range(8)
    ]
    error = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 41873, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    log = [
        *begun(0),
        *(at(f"DP{number}", "Init torch distributed begin.") for number in range(8)),
        at("DP3", TRACEBACK),
        RUN_SCHEDULER,
        f'  File "{PACKAGES}torch/distributed/rendezvous.py", line 189, in _create_c10d_store',
        "    return TCPStore(",
        *([error] if told else []),
        at("", SIGQUIT),
    ]
    return dead(f"{SGLANG} --dp 8", 8, Phase.RENDEZVOUS, log, exits=fallen(*ranks))


def proxied(*, told: bool) -> Bundle:
    last = (
        [
            '    assert res.status_code == 200, f"{res=}, {res.text=}"',
            "AssertionError: res=<Response [502]>, res.text=''",
        ]
        if told
        else [
            "    raise ReadTimeout(e, request=request)",
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=30000): Read timed out.",
        ]
    )  # fmt: skip
    log = [
        *loaded(),
        at("", "INFO:     Started server process [4000]"),
        at("", "INFO:     Application startup complete."),
        at("", "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
        at("", "Initialization failed. warmup error: Traceback (most recent call last):"),
        f'  File "{PACKAGES}sglang/srt/server.py", line 579, in _wait_and_warmup',
        *last,
    ]
    proxies = {"http_proxy": "http://10.9.0.3:3128", "https_proxy": "http://10.9.0.3:3128"} if told else {}
    return dead(SGLANG, 1, Phase.WARMUP, log, environment={**proxies, "HF_HOME": "/data/hf"}, quiet_s=2)


def turing(*, uncovered: bool) -> Bundle:
    targets = ("80", "89", "90a", "100a", "120a")
    ops = Coverage(
        library=f"{PACKAGES}sgl_kernel/sm100/common_ops.abi3.so",
        machine_code=targets if uncovered else ("75", *targets),
        ptx=(),
        missing=("75",) if uncovered else (),
    )
    why = "no kernel image is available for execution on the device" if uncovered else "unspecified launch failure"
    log = [
        *loaded(),
        at("", "Compute capability below sm80. Use float16 due to lack of bfloat16 support."),
        at("", "KV Cache is allocated. #tokens: 18250, K size: 0.98 GB, V size: 0.98 GB"),
        at("", "Capture cuda graph begin. This can take up to several minutes. avail mem=1.41 GB"),
        at("", TRACEBACK),
        f"RuntimeError: GemmaRMSNorm failed with error code {why}",
        at("", SIGQUIT),
    ]
    card = gpus(
        1, name="NVIDIA GeForce RTX 2080", architecture="75", memory_total_bytes=8 * GB, memory_used_bytes=GB // 4,
        fabric="not supported", power_limit_w=225.0, power_w=24.0,
    )  # fmt: skip
    return dead(SGLANG, 1, Phase.GRAPH_CAPTURE, log, gpus=card, host=host(coverage=(ops,)))


def unequal(*, told: bool) -> Bundle:
    other = (GpuProcess(pid=2210, memory_bytes=9 * GB, here=True),)
    card = {"name": "NVIDIA RTX A5000", "architecture": "86", "memory_total_bytes": 24 * GB, "power_limit_w": 230.0}
    second = {"processes": other, "memory_used_bytes": 9 * GB} if told else {"memory_used_bytes": GB // 2}
    log = [
        *begun(2),
        at("TP0", TRACEBACK),
        RUN_SCHEDULER,
        f'  File "{PACKAGES}sglang/srt/model_executor/model_runner.py", line 224, in init_torch_distributed',
        *(
            ["ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."]
            if told
            else []
        ),
        at("", SIGQUIT),
    ]
    cards = (gpu(0, **{**card, "memory_used_bytes": GB // 2}), gpu(1, **{**card, **second}))
    return dead(f"{SGLANG} --tp 2", 2, Phase.COMM_INIT, log, gpus=cards)


def no_room(*, told: bool) -> Bundle:
    error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    log = [
        *loaded(),
        at("", "Load weight begin. avail mem=6.12 GB"),
        at("", TRACEBACK),
        RUN_SCHEDULER,
        f'  File "{PACKAGES}sglang/srt/model_executor/model_runner.py", line 640, in init_memory_pool',
        *([error] if told else []),
        at("", SIGQUIT),
    ]
    card = gpus(1, name="NVIDIA L40S", architecture="89", memory_total_bytes=48 * GB, memory_used_bytes=GB // 2)
    command = f"{SGLANG} --mem-fraction-static 0.84 --speculative-algorithm EAGLE --speculative-draft-model-path /m/d"
    return dead(command, 1, Phase.KV_CACHE, log, gpus=card, host=host(
        places=(place("weights", "/models/llm", needed_bytes=40 * GB), place("home", "/root")),
    ))  # fmt: skip


def no_nvrtc(*, told: bool) -> Bundle:
    log = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.10/runpy.py", line 196, in _run_module_as_main',
        f'  File "{PACKAGES}sglang/srt/layers/quantization/fp8_kernel.py", line 31, in <module>',
        f'  File "{PACKAGES}sgl_kernel/__init__.py", line 5, in <module>',
        "    from sgl_kernel import common_ops",
    ]
    error = "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory"
    cards = gpus(2, name="NVIDIA A10", architecture="86", memory_total_bytes=24 * GB, fabric="not supported")
    return dead(
        SGLANG, 0, Phase.IMPORT, [*log, *([error] if told else [])], exits=fallen(code=1), gpus=cards,
        host=host(driver="550.127.08", cuda="12.4"), environment={"CUDA_HOME": "/usr/local/cuda"},
    )  # fmt: skip


def unknown_option(*, told: bool) -> Bundle:
    log = [
        "INFO 03-06 10:05:08 __init__.py:190] Automatically detected platform cuda.",
        "usage: launch_server.py [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH] [--host HOST]",
        "                        [--port PORT] [--tokenizer-mode {auto,slow}] [--skip-tokenizer-init]",
        *(["launch_server.py: error: unrecognized arguments: --enable-reasoning"] if told else []),
    ]
    command = f"{SGLANG} --tp 2 --enable-reasoning --reasoning-parser deepseek-r1"
    return dead(command, 0, Phase.IMPORT, log, exits=fallen(code=2), gpus=gpus(2))


def link_local(*, told: bool) -> Bundle:
    nics = (interface("lo", "127.0.0.1", kind="loopback"), interface("bond0", "172.31.10.31"))
    dns = interface("nodelocaldns", "169.254.20.10", kind="virtual")
    rank, peer, abort = "node-b:4100:4100 [0]", "169.254.20.10<43369>", "caused connection abort"
    why = [
        f"{rank} misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {peer} failed : Software {abort}",
        f"{rank} NCCL INFO misc/socket.cc:567 -> 2",
        f"{rank} NCCL INFO bootstrap.cc:285 -> 2",
    ]
    log = [
        *begun(0),
        at("DP8 TP8 EP8", "Init torch distributed begin."),
        at("DP8 TP8 EP8", "sglang is using nccl==2.21.5"),
        f"{rank} NCCL INFO NET/IB : Using [0]ib7s400p0:1/IB/SHARP [RO]; OOB bond0:172.31.10.31<0>",
        f"{rank} NCCL INFO Using network IBext_v8",
        *(why if told else []),
        at("DP8 TP8 EP8", TRACEBACK),
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        at("", SIGQUIT),
    ]
    where = "--nnodes 2 --node-rank 1 --dist-init-addr 172.31.10.30:5757"
    command = f"{SGLANG} --tp 16 --dp 16 --enable-dp-attention {where}"
    return dead(
        command, 8, Phase.COMM_INIT, log, environment={"NCCL_DEBUG": "INFO"},
        host=host(interfaces=(*nics, dns) if told else nics, container="kubernetes"),
    )  # fmt: skip


def no_multicast(*, told: bool) -> Bundle:
    ranks = [process(4100 + at_, "sgl-omni::stage", rank=at_, role=Role.WORKER) for at_ in range(2)]
    state = "'the operation cannot be performed in the present state'"
    warn = f"gpu-a:4100:4100 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 401 {state}"
    error = (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.29.3"
    )
    last = (
        f"Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 {state}. "
        "This is usually caused by a system or configuration error in the Fabric "
        "Manager or NVSwitches. Disable NVLS (NCCL_NVLS_ENABLE=0) if you wish to avoid this error in the future."
    )
    log = [
        "gpu-a:4100:4100 [0] NCCL INFO NCCL version 2.29.3+cuda13.0",
        *([warn] if told else []),
        error,
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        *(["Last error:", last] if told else []),
    ]
    return dead(
        "sgl-omni serve --model-path /models/omni --tp-size 2", 0, Phase.COMM_INIT, log,
        exits=fallen(*ranks, code=1), gpus=gpus(2), host=host(container="docker"),
    )  # fmt: skip


def orphans(*, left: bool) -> Bundle:
    old = [2505781 + at_ for at_ in range(4)]
    cards = tuple(
        gpu(
            at_, name="NVIDIA H200", memory_total_bytes=141 * GB,
            memory_used_bytes=99 * GB if left else GB // 2,
            processes=(GpuProcess(pid=old[at_], memory_bytes=98 * GB, here=True),) if left else (),
        )
        for at_ in range(4)
    )  # fmt: skip
    holders = [
        Leftover(
            pid=old[at_], name=f"sglang::scheduler_DP{at_}_TP{at_}_EP{at_}", state="S", age_s=9400,
            holds=(f"GPU {at_}",),
        )
        for at_ in range(4)
    ]  # fmt: skip
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB."
    whose = "Process 2505781 has 98.63 GiB memory in use." if left else "This process has 139.0 GiB memory in use."
    log = [
        *begun(4),
        at("TP0", "Load weight begin. avail mem=40.31 GB" if left else "Load weight begin. avail mem=138.9 GB"),
        at("TP0", TRACEBACK),
        f"{error} GPU 0 has a total capacity of 139.80 GiB of which 102.00 MiB is free. {whose}",
        at("", SIGQUIT),
    ]
    return dead(f"{SGLANG} --tp 4", 4, Phase.WEIGHTS, log, gpus=cards, leftovers=holders if left else [])


def killed_diffusion(*, told: bool) -> Bundle:
    worker = process(4100, "sgl_diffusion::scheduler", rank=0, role=Role.WORKER, label="scheduler")
    seen = [
        "[11-28 09:14:02] Loading FluxTransformer2DModel, default_dtype: torch.bfloat16",
        "[11-28 09:14:02] Using FlashAttention (FA3 for hopper, FA4 for blackwell) backend",
    ]
    why = [
        "[11-28 09:19:14] Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "[11-28 09:19:16] Exit code: -9",
    ]
    main = ended(launcher(), code=1, ago_s=2)
    return dead(
        "sglang serve --model-path /models/flux --num-gpus 1", 0, Phase.WEIGHTS, [*seen, *(why if told else [])],
        exits=[ended(worker, ago_s=4), main] if told else [main],
        gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB),
    )  # fmt: skip
