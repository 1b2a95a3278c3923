"""Machines of the tenth lot of which something has ended, or that say why they do not go on."""

from tests.corpus.starts import (
    BARE,
    SGLANG,
    UNSEEN,
    at,
    begun,
    detokenizer,
    launcher,
    listens,
    opened,
    serves,
    started,
    v,
)
from tests.corpus.surroundings import WORKER_MAIN, idle_threads, scheduler

from firstlight.core.bundle import Bundle
from firstlight.core.look import Leftover, Listener, Lock
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    PACKAGES,
    Moves,
    ended,
    engine,
    folder,
    front,
    gpus,
    helper,
    host,
    place,
    process,
    rank,
    socket,
)

DIES = {"motion": Motion.MOVING, "quiet_s": 4}


def too_patient(*, given_up: bool) -> Bundle:
    """An API server has given its engines up after ten minutes; they warm their kernels up all the same."""
    warms = (
        "fp8_gemm_nt (vllm/utils/deep_gemm.py:240)",
        "_deepgemm_fp8_gemm_nt_warmup (vllm/model_executor/warmup/deep_gemm_warmup.py:190)",
        "deep_gemm_warmup (vllm/model_executor/warmup/deep_gemm_warmup.py:350)",
        "compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:420)",
        WORKER_MAIN,
    )
    names = [f"Worker_DP0_TP{n}_EP{n}" for n in range(2)]
    ranks = [
        rank(n, name=f"VLLM::{names[n]}", label=names[n], stack=warms, state="R", cpu=1.0, memory=12 * GB,
             threads=idle_threads())
        for n in range(2)
    ]  # fmt: skip
    late = (
        "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
        "loading for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S)."
    )
    log = [
        *begun("/models/v32", "0.14.0"),
        v(names[0], "Model loading took 78.11 GiB memory and 211.42 seconds", "gpu_model_runner.py:3800"),
        "DeepGEMM warmup:  61%|######1   | 9993/16384 [07:31<04:48, 22.1it/s]",
        *([f"(APIServer pid=4000) {line}" for line in (
            "Traceback (most recent call last):",
            f'  File "{PACKAGES}vllm/v1/engine/core_client.py", line 548, in __init__',
            late,
        )] if given_up else []),
    ]  # fmt: skip
    gone = ended(front(), code=1, ago_s=20) if given_up else ended(front(), ago_s=20)
    return started(
        "vllm serve /models/v32 -tp 2 -dp 16 --data-parallel-size-local 1 --enable-expert-parallel",
        engine(label="EngineCore_DP0", ppid=1), helper(ppid=1), ranks, log=log, phase=Phase.WARMUP, quiet_s=18,
        exits=[gone], motion=Motion.MOVING if given_up else Motion.SLOW,
        gpus=gpus(2, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=91 * GB),
        folders=[folder("compile_cache", "/root/.cache/vllm/deep_gemm", bytes_=38 << 20, files=400, grows=90_000)],
    )  # fmt: skip


def probed(*, killed: bool) -> Bundle:
    """A pod's liveness probe ran out while the model was on its way from the hub."""
    one = process(4050, "python", role=Role.ENGINE, label="MQLLMEngine")
    log = [
        "INFO 02-28 16:59:51 api_server.py:838] vLLM API server version 0.7.1",
        "INFO 02-28 17:00:10 weight_utils.py:251] Using model weights format ['*.safetensors']",
        "model-00001-of-000002.safetensors:  64%|######4   | 5.57G/8.67G [02:31<01:24, 36.8MB/s]",
        *(["INFO 02-28 17:02:44 launcher.py:59] Shutting down FastAPI HTTP server."] if killed else []),
    ]
    gone = {"signal": 15} if killed else {}
    return started(
        "vllm serve org/distill-8b --host 0.0.0.0 --port 8000 --max-model-len 12288", helper(ppid=1), log=log,
        phase=Phase.WEIGHTS, exits=[ended(one, ago_s=3, **gone), ended(front(), ago_s=2, **gone)],
        started=1_799_999_820.0,
        gpus=gpus(1, name="NVIDIA L4", architecture="89", memory_total_bytes=24 * GB, memory_used_bytes=GB),
        folders=[folder("download", "/root/.cache/huggingface/hub", bytes_=6 * GB, files=2, grows=360 << 20)],
        host=host(container="kubernetes"), **DIES,
    )  # fmt: skip


def hub_down(*, told: bool) -> Bundle:
    """A worker asks the hub of a model that it has on its volume, and the hub is down."""
    error = (
        "huggingface_hub.utils._errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: "
        "https://huggingface.co/api/models/org/capybara-34b-gptq"
    )
    log = [
        "engine.py           :73   2024-02-10 09:14:07,120 Initialized vLLM engine arguments",
        "Traceback (most recent call last):",
        '  File "/src/handler.py", line 5, in <module>',
        "    vllm_engine = vLLMEngine()",
        '  File "/opt/venv/vllm/model_executor/weight_utils.py", line 96, in prepare_hf_weights',
        *([error] if told else []),
    ]
    main = process(FRONT, "python3", ppid=1, role=Role.FRONT, facts=BARE)
    return started(
        "python3 -u /src/handler.py", helper(ppid=1), log=log, phase=Phase.CONFIG, exits=[ended(main, code=1,
        ago_s=2)],
        environment={"MODEL_NAME": "org/capybara-34b-gptq", "HF_HOME": "/runpod-volume/hf"},
        gpus=gpus(1, name="NVIDIA A100 80GB PCIe", architecture="80"),
        host=host(container="docker", places=(
            place("hub_cache", "/runpod-volume/hf", filesystem="fuse.mfs", needed_bytes=18 * GB), place("home",
            "/root"),
        )), **DIES,
    )  # fmt: skip


def second_launch(*, left: bool) -> Bundle:
    """A scheduler of an earlier test was never told to end, and has the port that the next one plans with."""
    error = "ValueError: rpc_port at 21313 is used by a process already. It is used by a process already"
    log = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/runpy.py", line 198, in _run_module_as_main',
        f'  File "{PACKAGES}sglang/srt/server_args.py", line 7120, in init_new',
        *([error] if left else []),
    ]
    main = ended(launcher(), code=1, ago_s=2)
    old = Leftover(
        pid=2_204_118, name="sglang::scheduler_DP0_TP0", state="S", age_s=3900,
        holds=("port 21313", "GPU 0", "/dev/shm/psm_9ab1"),
    )  # fmt: skip
    return started(
        f"{SGLANG} --tp 4 --dp 4 --enable-dp-attention --port 21000", log=log, version="0.5.14", phase=Phase.CONFIG,
        exits=[main],
        leftovers=[old] if left else [], listeners=[Listener(host="127.0.0.1", port=21313,
        pid=2_204_118)] if left else [],
        gpus=gpus(4, name="NVIDIA GB300", architecture="103", memory_used_bytes=2 * GB),
        host=host(cpu_arch="aarch64", container="docker"), **DIES,
    )  # fmt: skip


def unequal_halves(*, told: bool) -> Bundle:
    """A prefill server says that it cannot hand its states to a decoder of another size; its client only waits."""
    loop = (
        "event_loop_overlap_disagg_prefill (sglang/srt/disaggregation/prefill.py:520)",
        "run_scheduler_process (sglang/srt/managers/scheduler.py:4656)",
    )
    error = (
        "RuntimeError: PD Disaggregation does NOT support PD different TP sizes for hybrid-attention models yet "
        "(prefill TP 1, decode TP 4)."
    )
    log = [
        *serves(1),
        at("", "Prefill batch, #new-seq: 1, #new-token: 812, #cached-token: 0, token usage: 0.00, #running-req: 0"),
        *([
            at("", "Unexpected transfer worker error for room 1788380104266545413"),
            "Traceback (most recent call last):",
            f'  File "{PACKAGES}sglang/srt/disaggregation/nixl/conn.py", line 1153, in transfer_worker',
            error,
        ] if told else []),
    ]  # fmt: skip
    one = scheduler(
        0, loop, name="sglang::scheduler", label="scheduler", syscall="poll(0x7f3e00, 0x1, 0x0)", cpu=0.4,
        files=[socket("10.4.1.7:8998", "10.4.1.19:51312", fd=91)],
    )  # fmt: skip
    return started(
        f"{SGLANG} --disaggregation-mode prefill --disaggregation-transfer-backend nixl --tp 1", listens(),
        detokenizer(),
        helper(), one, log=log, phase=Phase.SERVING, quiet_s=120, gpus=gpus(1, name="NVIDIA H200"),
        question="no token within 60 s", host=host(container="kubernetes"),
        listeners=[Listener(host="0.0.0.0", port=8998, pid=FRONT), Listener(host="0.0.0.0", port=30000, pid=FRONT)],
    )  # fmt: skip


def crashed_job(*, left: bool) -> Bundle:
    """A Dynamo worker gives up at once: an earlier job left a lock in the model cache on Lustre."""
    blob = "/lustre/hf/models--org--v3/blobs/0a7d.lock"
    log = [
        "2026-04-14T09:14:07.120Z  INFO main.parse_args: Fetching model org/v3",
        "Traceback (most recent call last):",
        '  File "/usr/local/lib/python3.12/dist-packages/dynamo/sglang/args.py", line 340, in parse_args',
        *([f"Exception: Failed to fetch model 'org/v3': Lock acquisition failed: {blob}"] if left else []),
    ]
    main = process(FRONT, "python3 -m dynamo.sglang", ppid=1, role=Role.FRONT, facts=BARE)
    lock = Lock(kind="file", path=blob, holder=0, age_s=47_000, filesystem="lustre")
    return started(
        "python3 -m dynamo.sglang --model-path org/v3 --disaggregation-mode decode --tp 8", log=log,
        phase=Phase.CONFIG, exits=[ended(main, code=1, ago_s=2)], locks=[lock] if left else [],
        gpus=gpus(8, name="NVIDIA H200"), environment={"HF_HOME": "/lustre/hf"},
        host=host(places=(place("hub_cache", "/lustre/hf", filesystem="lustre", needed_bytes=688 * GB),)), **DIES,
    )  # fmt: skip


def silent_load() -> Bundle:
    """A scheduler begins to load, and for an hour says no more; the main process waits for its pipe."""
    one = scheduler(0, memory=2 * GB, name="sglang::scheduler", label="scheduler", moves=Moves(), **UNSEEN)
    main = launcher(
        stack=("_recv (multiprocessing/connection.py:395)", "recv (multiprocessing/connection.py:250)",
               "launch_engine (sglang/srt/server.py:460)"),
        syscall="read(0x1f, 0x7f3a10, 0x4)",
    )  # fmt: skip
    return started(
        "python3 -m sglang.launch_server --model-path org/guard-7b --tokenizer-path org/llava-7b-hf --port 10000",
        main,
        detokenizer(), helper(), one, log=[*opened(1), at("", "Load weight begin. avail mem=23.16 GB")],
        phase=Phase.WEIGHTS, quiet_s=3700, version="0.4.2",
        gpus=gpus(1, name="NVIDIA GeForce RTX 4090", architecture="89", memory_total_bytes=24 * GB,
        memory_used_bytes=GB),
    )  # fmt: skip
