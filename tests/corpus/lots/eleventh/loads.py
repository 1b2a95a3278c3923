"""Machines of the eleventh lot that fetch, read or allocate: they crawl, or wait for what does not come."""

from tests.corpus.lots.eleventh.machines import gb10, sends, spark
from tests.corpus.starts import (
    BARE,
    FOR_A_PAGE,
    SCHEDULER_MAIN,
    UNSEEN,
    WORKER_MAIN,
    at,
    base,
    begun,
    detokenizer,
    launcher,
    mapped,
    opened,
    raylet,
    started,
    v,
)
from tests.corpus.surroundings import scheduler, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Lock, Pressure
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    interface,
    place,
    process,
    socket,
    thread,
)

NO_LOCKS = Gap(what="locks", reason=GapReason.NO_PERMISSION, detail="/proc/locks may not be read")
SLEEPS = "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"


def capstor(*, waits: bool) -> Bundle:
    """Four ranks of SGLang read a model of 438 GB, each all of it, from a Lustre that others use as well."""
    where, kind = ("/capstor/store/hf/moe235b", "lustre") if waits else ("/scratch/moe235b", "xfs")
    stack = (
        "get_tensor (sglang/srt/model_loader/weight_utils.py:690)",
        "safetensors_weights_iterator (sglang/srt/model_loader/weight_utils.py:640)",
        "load_weights (sglang/srt/models/qwen3_moe.py:910)",
        "load_model (sglang/srt/model_executor/model_runner.py:1330)",
        SCHEDULER_MAIN,
    )
    told = {
        **FOR_A_PAGE, "cpu": 0.05, "moves": Moves(faults=9100, read_bytes=412 << 20, memory_bytes=412 << 20),
        "files": [mapped(f"{where}/model-00037-of-00118.safetensors", kind)],
    } if waits else {}  # fmt: skip
    ranks = [
        scheduler(n, stack, memory=31 * GB, shared=20 * GB, **told)
        if waits
        else scheduler(n, memory=31 * GB, **UNSEEN)
        for n in range(4)
    ]
    log = [
        *opened(4),
        *(at(f"TP{n}", "Load weight begin. avail mem=93.12 GB") for n in range(4)),
        "Loading safetensors checkpoint shards:  31% Completed | 36/118 [11:02<27:40, 20.2s/it]",
    ]
    return started(
        f"python -m sglang.launch_server --model-path {where} --tp 4", launcher(), detokenizer(), helper(), ranks,
        log=log, phase=Phase.WEIGHTS, quiet_s=25, motion=Motion.SLOW if waits else Motion.STALLED, version="0.5.9",
        gpus=gpus(4, name="NVIDIA GH200 120GB", memory_total_bytes=96 * GB, memory_used_bytes=37 * GB),
        host=host(cpus=288, cpu_arch="aarch64", memory_bytes=854 * GB, container="podman", places=(
            place("weights", where, filesystem=kind, needed_bytes=438 * GB), place("home", "/users/u7"),
        )),
    )  # fmt: skip


def cached_bucket(*, waits: bool) -> Bundle:
    """A bucket is mounted by a client that keeps what it reads on the system's disk, which is full again."""
    where, kind = ("/bucket/moe235b", "fuse.s3fs") if waits else ("/models/moe235b", "ext4")
    stack = (
        "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:720)",
        "load_weights (vllm/model_executor/models/qwen3_moe.py:700)",
        "load_weights (vllm/model_executor/model_loader/default_loader.py:291)",
        "load_model (vllm/v1/worker/gpu_model_runner.py:3300)",
        WORKER_MAIN,
    )
    told = {
        **FOR_A_PAGE, "cpu": 0.01, "moves": Moves(faults=1400, read_bytes=62 << 20, memory_bytes=62 << 20),
        "files": [mapped(f"{where}/model-00061-of-00118.safetensors", kind)],
    } if waits else {"syscall": "futex(0x7f3a10, 0x80, 0x0)"}  # fmt: skip
    ranks = workers(8, stack, memory=14 * GB, shared=9 * GB, **told)
    log = [*begun(where, "0.12.0"),
           "Loading safetensors checkpoint shards:  52% Completed | 61/118 [41:10<1:09:11, 72.8s/it]"]  # fmt: skip
    return started(
        f"python -m vllm.entrypoints.openai.api_server --model {where} --tensor-parallel-size 8", base(), ranks,
        log=log, phase=Phase.WEIGHTS, quiet_s=90, motion=Motion.SLOW if waits else Motion.STALLED,
        gpus=gpus(8, name="NVIDIA H20", memory_total_bytes=96 * GB, memory_used_bytes=33 * GB),
        host=host(container="kubernetes", places=(
            place("weights", where, filesystem=kind, needed_bytes=438 * GB),
            place("tmp", "/tmp", filesystem="overlay", free_bytes=GB // 8, total_bytes=200 * GB),
        )),
    )  # fmt: skip


def fragments(*, seen: bool) -> Bundle:
    """The second of two Sparks: pages of the checkpoint fill the memory, and the driver finds none in one piece."""
    stack = (
        "empty (torch/nn/parameter.py:40)",
        "create_weights (vllm/model_executor/layers/quantization/exl3.py:210)",
        "load_model (vllm/v1/worker/gpu_model_runner.py:4710)",
        WORKER_MAIN,
    )
    told = {
        "state": "R", "cpu": 0.97, "moves": Moves(faults=210, read_bytes=2 << 20), "memory": 9 * GB,
    }  # fmt: skip
    one = worker(1, stack, **told) if seen else worker(1, memory=9 * GB, **UNSEEN)
    said = [("NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from "
            "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359")]  # fmt: skip
    tight = Pressure(memory_some=91.0, memory_full=84.0, io_some=12.0, cpu_some=9.0, memory_free_bytes=6 * GB,
                     swapped_in=91_000, swapped_out=1_240_000)  # fmt: skip
    return started(
        "vllm serve /models/v41-flash --headless --tensor-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr "
        "192.168.177.10",
        base(), one, phase=Phase.WEIGHTS, quiet_s=700, pressure=tight if seen else Pressure(),
        log=[*begun("/models/v41-flash", "0.28.0"),
             "Loading safetensors checkpoint shards:  64% Completed | 27/42 [03:40<02:02,  8.1s/it]"],
        kernel_log=said if seen else [], gpus=gb10(74),
        host=spark(memory_free_bytes=(6 if seen else 31) * GB, swap_bytes=16 * GB, kernel="7.0.0-1019", places=(
            place("weights", "/models/v41-flash", needed_bytes=91 * GB), place("home", "/root"),
        )),
    )  # fmt: skip


def far_backend(*, seen: bool) -> Bundle:
    """llama.cpp hands its tensors to a machine behind a slow line."""
    peer = socket("10.0.0.5:41234", "198.51.100.7:50052", fd=9, unsent=2_621_440)
    native = ("__send (libc.so.6)", "send_data (libggml-rpc.so)",
              "ggml_backend_rpc_buffer_set_tensor (libggml-rpc.so)",
              "llama_model_loader::load_all_data (libllama.so)")  # fmt: skip
    told = {"native": native, "syscall": "sendto(0x9, 0x7f3c00, 0x400000, 0x0)", "fds": (9,), "files": [
        peer, file("/models/tiny.gguf", fd=8, size=668 << 20)], "wchan": "sk_stream_wait_memory"}  # fmt: skip
    main = process(
        FRONT, "llama-server", ppid=1, role=Role.FRONT, facts=BARE, memory=GB, cpu=0.02 if seen else 0.0,
        moves=Moves(read_bytes=11 << 20) if seen else Moves(), **(told if seen else UNSEEN),
    )  # fmt: skip
    made = started(
        "llama-server -m /models/tiny.gguf --rpc 198.51.100.7:50052 -ngl 99", main, phase=Phase.WEIGHTS, quiet_s=40,
        log=["llama_model_loader: loaded meta data with 23 key-value pairs and 201 tensors from /models/tiny.gguf",
             "llm_load_tensors: offloaded 23/23 layers to GPU",
             "llm_load_tensors: RPC[198.51.100.7:50052] buffer size =   601.02 MiB"],
        motion=Motion.SLOW if seen else Motion.QUIET, gpus=(),
        host=host(cpus=8, memory_bytes=16 * GB, driver="", cuda="", places=(
            place("weights", "/models", needed_bytes=668 << 20), place("home", "/home/ml"),
        ), interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eno1", "10.0.0.5"))),
    )  # fmt: skip
    return sends(made, 9, 11 << 20, 214 << 20) if seen else made


def two_downloads(*, seen: bool) -> Bundle:
    """A download waits, file by file, for a lock that another process of the same user has held since yesterday."""
    path = "/home/ml/.cache/huggingface/hub/.locks/models--org--diffusion-1-4/ac3d1bff.lock"
    stack = (
        "sleep (filelock/_api.py:342)",
        "acquire (filelock/_api.py:342)",
        "WeakFileLock (huggingface_hub/utils/_fixes.py:98)",
        "_hf_hub_download_to_cache_dir (huggingface_hub/file_download.py:1250)",
        "_inner_hf_hub_download (huggingface_hub/_snapshot_download.py:290)",
    )
    pool = [thread(stack[1:], name=f"ThreadPoolExecutor-0_{n}", syscall=SLEEPS) for n in range(2)]
    main = process(
        FRONT, "huggingface-cli download", ppid=1, role=Role.FRONT, facts=BARE, memory=GB // 4,
        **({"stack": ("wait (threading.py:324)", "snapshot_download (huggingface_hub/_snapshot_download.py:310)"),
            "threads": pool, "files": [file(path, fd=8, access="rw")]} if seen else UNSEEN),
    )  # fmt: skip
    lock = Lock(kind="flock", path=path, holder=2207, holder_name="huggingface-cli", waiters=(FRONT,), age_s=90_100,
                filesystem="ext4")  # fmt: skip
    return started(
        "huggingface-cli download org/diffusion-1-4 --local-dir /data/d14", main, phase=Phase.WEIGHTS, quiet_s=12,
        log=["Fetching 33 files:   0%|          | 0/33 [00:00<?, ?it/s]",
             *[f"still waiting to acquire lock on {path}"] * (6 if seen else 0)],
        motion=Motion.QUIET, locks=[lock] if seen else NO_LOCKS, environment={"HF_ENDPOINT": "https://hf-mirror.com"},
        folders=[folder("download", "/home/ml/.cache/huggingface/hub", bytes_=2 * GB, files=1, newest_ago_s=88_000)],
        gpus=gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80"),
    )  # fmt: skip


def other_hub(*, seen: bool) -> Bundle:
    """A model from ModelScope: all the same the configuration is asked for at Hugging Face, which is cut off here."""
    stack = (
        "create_connection (urllib3/util/connection.py:73)",
        "_new_conn (urllib3/connection.py:198)",
        "send (requests/adapters.py:644)",
        "get_safetensors_metadata (huggingface_hub/hf_api.py:6010)",
        "with_retry (vllm/transformers_utils/config.py:117)",
        "try_get_safetensors_metadata (vllm/transformers_utils/config.py:1010)",
        "create_model_config (vllm/engine/arg_utils.py:1010)",
        "run_server (vllm/entrypoints/openai/api_server.py:1850)",
    )
    hub = [socket("10.31.7.4:51022", "3.170.185.25:443", state="SYN_SENT", fd=14)]
    told = {"stack": stack, "syscall": "poll(0x7ffd10, 0x1, 0x2710)", "fds": (14,), "files": hub} if seen else UNSEEN
    main = front(**{"label": "", "memory": GB // 2, **told})
    error = (
        "Error retrieving safetensors: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max "
    )
    log = [
        *begun("openai-mirror/oss-20b", "0.10.1")[:2],
        *([v("APIServer", f"{error}retries exceeded with url: /openai-mirror/oss-20b\"), retrying 1 of 2",
             "config.py:124", "ERROR")] if seen else []),
    ]  # fmt: skip
    return started(
        "vllm serve openai-mirror/oss-20b", main, log=log, phase=Phase.CONFIG, quiet_s=75,
        environment={"VLLM_USE_MODELSCOPE": "true"}, motion=Motion.QUIET,
        gpus=gpus(1, name="NVIDIA A10", architecture="86", memory_total_bytes=24 * GB),
    )  # fmt: skip


def nearly_done(*, seen: bool) -> Bundle:
    """GPUStack fetches a model over xet; at 99 % nothing more comes, though the connections stand."""
    path = "/var/lib/gpustack/cache/huggingface/org/gemma-27b/.cache/gemma-27b-q4_0.gguf.incomplete"
    cdn = [socket(f"10.128.0.9:5{n}144", "18.244.20.51:443", fd=30 + n) for n in range(3)]
    stack = (
        "xet_get (huggingface_hub/file_download.py:590)",
        "_download_to_tmp_and_move (huggingface_hub/file_download.py:1720)",
        "hf_hub_download (huggingface_hub/file_download.py:1010)",
        "download (gpustack/worker/downloaders.py:130)",
        "_run_bootstrap (multiprocessing/process.py:314)",
    )
    native = ("pthread_cond_wait (libc.so.6)", "tokio::runtime::park::Inner::park (hf_xet.abi3.so)")
    one = process(4050, "gpustack: download", memory=GB, **(
        {"stack": stack, "native": native, "files": [*cdn, file(path, fd=12, access="w", size=16 * GB)]} if seen
        else UNSEEN))  # fmt: skip
    main = process(FRONT, "gpustack", ppid=1, role=Role.FRONT, facts=BARE, syscall="epoll_wait(0x9, 0x7f3a10, 0x400)",
                   stack=("run_forever (asyncio/base_events.py:608)",))  # fmt: skip
    return started(
        "gpustack start --server-url http://gpustack-main --token-file /etc/gpustack/token", main, one,
        phase=Phase.WEIGHTS, quiet_s=2600, environment={"HF_XET_HIGH_PERFORMANCE": "1"},
        log=["2025-07-25T09:14:07+00:00 - gpustack.worker.model_file_manager - INFO - Downloading gemma-27b",
             "gemma-27b-q4_0.gguf:  99%|#########9| 17.1G/17.2G [06:12<00:02, 45.9MB/s]"],
        folders=[folder("download", path.rpartition("/")[0], bytes_=17 * GB, files=1, newest_ago_s=2590)]
        if seen else [],
        gpus=gpus(2, name="NVIDIA L40S", architecture="89", memory_total_bytes=45 * GB),
        host=host(container="kubernetes", places=(place("hub_cache", "/var/lib/gpustack/cache"),)),
    )  # fmt: skip


def no_node(*, told: bool) -> Bundle:
    """All sixteen GPUs are alive in Ray, and no node has the address that the first bundle asks for."""
    stack = (
        "wait (ray/_private/worker.py:3010)",
        "_wait_until_pg_ready (vllm/executor/ray_utils.py:196)",
        "initialize_ray_cluster (vllm/executor/ray_utils.py:310)",
        "__init__ (vllm/executor/executor_base.py:53)",
        "run_mp_engine (vllm/engine/multiprocessing/engine.py:366)",
    )
    one = process(4050, "python", role=Role.ENGINE, facts=BARE, native=("absl::CondVar::WaitCommon (_raylet.so)",),
                  stack=stack, syscall="futex(0x7f3a10, 0x189, 0x0)")  # fmt: skip
    spec = "specs=[{'node:10.61.0.27': 0.001, 'GPU': 1.0}, {'GPU': 1.0}, {'GPU': 1.0}, {'GPU': 1.0}]"
    lack = "Error: No available node types can fulfill resource request {'node:10.61.0.27': 0.001, 'GPU': 1.0}."
    log = [
        "INFO 02-16 07:16:02 api_server.py:840] vLLM API server version 0.7.2",
        "2025-02-16 07:16:20,120 INFO worker.py:1841 -- Connected to Ray cluster.",
        *([line for s in (10, 30, 70) for line in (
            (f"INFO 02-16 07:17:3{s % 7} ray_utils.py:180] Waiting for creating a placement group of specs for {s} "
            f"seconds. {spec}. Check `ray status` to see if you have enough resources."),
            f"(autoscaler +{s}s) {lack} Add suitable node types to this cluster to resolve this issue.",
        )] if told else []),
    ]  # fmt: skip
    return started(
        "vllm serve /models/r1 --tensor-parallel-size 16 --trust-remote-code",
        front(stack=("wait (vllm/engine/multiprocessing/client.py:150)",)), one, raylet(), log=log, phase=Phase.SPAWN,
        version="0.7.2", quiet_s=60, motion=Motion.QUIET, gpus=gpus(8),
        environment={"VLLM_HOST_IP": "10.61.0.27"}, host=host(container="kubernetes", interfaces=(
            interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.244.9.4", kind="virtual"),
        )),
    )  # fmt: skip
