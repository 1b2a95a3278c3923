"""Machines of the ninth lot: starts of other servers than SGLang and vLLM that wait or crawl."""

from msgspec.structs import replace
from tests.corpus.lots.ninth.machines import started
from tests.corpus.lots.ninth.others import BARE, TGI, tgi
from tests.corpus.surroundings import idle_threads

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock, OpenFile
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    ended,
    file,
    folder,
    gpus,
    helper,
    host,
    ordinary_cgroup,
    ordinary_facts,
    place,
    process,
    rank,
    socket,
    thread,
)

CARGO = ("__futex_abstimed_wait_common (libc.so.6)", "std::thread::park (text-generation-launcher)")
BATON_WAIT = (
    "wait (torch/utils/file_baton.py:42)",
    "_jit_compile (torch/utils/cpp_extension.py:1522)",
    "load (torch/utils/cpp_extension.py:1284)",
    "jit_load (deepspeed/ops/op_builder/builder.py:480)",
    "load (deepspeed/ops/op_builder/builder.py:449)",
    "__init__ (deepspeed/runtime/engine.py:377)",
    "initialize (deepspeed/__init__.py:156)",
    "main (/home/ml/chat/main.py:273)",
)


def no_bytes(*, moves: bool) -> Bundle:
    """The download of the second file gets nothing over connections that are all there."""
    web = [socket(f"172.17.0.2:{41200 + at}", "18.164.174.17:443", fd=20 + at) for at in range(8)]
    counted = [
        replace(one, socket=replace(one.socket, received_bytes=812 << 20, sent_bytes=4211))
        for one in web
        if one.socket
    ]
    part = "/data/models--llm/blobs/9c1f.incomplete"
    loads = process(
        4100, "text-generation-server download-weights", cpu=0.4 if moves else 0.0,
        stack=(
            "http_get (huggingface_hub/file_download.py:480)",
            "hf_hub_download (huggingface_hub/file_download.py:1457)",
            "download_file (text_generation_server/utils/hub.py:160)",
            "download_weights (text_generation_server/cli.py:180)",
        ),
        native=("__futex_abstimed_wait_common (libc.so.6)", "tokio::runtime::park::block_on (hf_transfer.abi3.so)"),
        threads=[
            thread(name=f"tokio-runtime-{at}", syscall="epoll_wait(0x5, 0x7f22, 0x400, 0xffffffff)", fds=(20 + at,))
            for at in range(4)
        ],
        files=[*counted, file(part, fd=40, access="w", size=6871947674)],
        moves=Moves(read_bytes=400 << 20, written_bytes=400 << 20) if moves else Moves(), facts=BARE,
    )  # fmt: skip
    main = process(FRONT, "text-generation-launcher", ppid=1, role=Role.FRONT, native=CARGO, facts=BARE)
    log = [
        tgi("Starting download process.", who="download: "),
        tgi("Download file: model-00001-of-00007.safetensors", who="download: "),
        tgi("Downloaded /data/models--llm/snapshots/5b94/model-00001-of-00007.safetensors.", who="download: "),
        tgi("Download: [1/7] -- ETA: 0:04:06", who="download: "),
        tgi("Download file: model-00002-of-00007.safetensors", who="download: "),
    ]
    grown = folder("download", "/data/models--llm/blobs", bytes_=6871947674, files=1, grows=400 << 20 if moves else 0)
    return started(
        TGI, main, loads, log=log, phase=Phase.WEIGHTS, quiet_s=1500, folders=[grown],
        motion=Motion.MOVING if moves else Motion.STALLED, environment={"HF_HUB_ENABLE_HF_TRANSFER": "1"},
        host=host(container="docker"),
    )  # fmt: skip


def old_baton(*, left: bool) -> Bundle:
    path = "/home/ml/.cache/torch_extensions/py311_cu117/utils/lock"
    imports = ("_import_module_from_library (torch/utils/cpp_extension.py:1914)", *BATON_WAIT[1:])
    stack = BATON_WAIT if left else imports
    trains = process(
        4100, "python", stack=stack, threads=idle_threads(), rank=0, role=Role.WORKER, cpu=0.0,
        syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10)" if left else "read(0x2c, 0x7f3a10, 0x340)",
        cmdline=("/home/ml/env/bin/python", "-u", "main.py", "--local_rank=0", "--deepspeed"),
    )  # fmt: skip
    main = process(
        FRONT, "deepspeed", ppid=1, stack=("sleep (deepspeed/launcher/launch.py:350)",), facts=BARE,
        syscall="clock_nanosleep(0x0, 0x0, 0x7ffd20)", role=Role.FRONT,
    )  # fmt: skip
    kept = folder(
        "extensions", "/home/ml/.cache/torch_extensions", bytes_=9100, files=4 if left else 5, newest_ago_s=412_000
    )
    lock = Lock(kind="file", path=path, holder=0, age_s=412_000, filesystem="ext4")
    return started(
        "deepspeed --num_gpus 1 main.py --model_name_or_path facebook/opt-1.3b --zero_stage 0 --deepspeed", main,
        trains,
        log=["Using /home/ml/.cache/torch_extensions/py311_cu117 as PyTorch extensions root..."],
        phase=Phase.IMPORT, locks=[lock] if left else [], folders=[kept], quiet_s=1200,
        gpus=gpus(2, name="NVIDIA GeForce RTX 3090", architecture="86", memory_total_bytes=24 * GB),
        host=host(places=(place("extensions", "/home/ml/.cache/torch_extensions"), place("home", "/home/ml"))),
    )  # fmt: skip


def stub(*, killed: bool) -> Bundle:
    """Triton waits for a word of the Python process of a model, which the kernel has killed for want of memory."""
    group = ordinary_cgroup(memory_max_bytes=16 * GB, oom_kills=1 if killed else 0)
    main = process(
        FRONT, "tritonserver", ppid=1, role=Role.FRONT, facts=ordinary_facts(libraries=(), cgroup=group),
        native=("pthread_join (libc.so.6)", "triton::core::ModelLifeCycle::AsyncLoad (libtritonserver.so)"),
        threads=[
            thread(
                name="tritonserver", syscall="futex(0x7f9c, 0x189, 0x0)",
                native=(
                    "syscall (libc.so.6)",
                    "boost::interprocess::interprocess_condition::wait (libtriton_python.so)",
                    "triton::backend::python::StubLauncher::ModelInstanceStubProcess (libtriton_python.so)",
                ),
            )
        ],
    )  # fmt: skip
    child = process(
        4300, "triton_python_backend_stub", role=Role.OTHER, facts=ordinary_facts(libraries=(), cgroup=group),
        stack=("load (torch/serialization.py:1040)", "initialize (/models/big/1/model.py:22)"), memory=15 * GB,
    )  # fmt: skip
    kernel = [
        "Memory cgroup out of memory: Killed process 4300 (triton_python_b) total-vm:31457280kB, anon-rss:16106127kB",
    ]
    log = [
        'I1128 09:14:07.2028 1 model_lifecycle.cc:459] "loading: big:1"',
        'I1128 09:14:08.9579 1 python_be.cc:1856] "TRITONBACKEND_ModelInstanceInitialize: big_0 (CPU device 0)"',
    ]
    return started(
        "tritonserver --model-repository=/models", main, [] if killed else [child], log=log, phase=Phase.MODEL_INIT,
        exits=[ended(child, signal=9, oom=True, ago_s=320)] if killed else [], kernel_log=kernel if killed else [],
        host=host(container="docker", cgroup=group),
    )  # fmt: skip


def prefetch(*, apart: bool) -> Bundle:
    """Two ranks prefetch and meet at a barrier after it; the others had less memory free, and do not."""
    loader = "tensorrt_llm/_torch/models/checkpoints/hf/weight_loader.py"
    barrier = ("local_mpi_barrier (tensorrt_llm/_utils.py:655)", f"load_weights ({loader}:71)")
    asks = ("_get_local_available_host_memory (" + loader + ":38)", f"load_weights ({loader}:55)")
    outer = (
        "load (tensorrt_llm/_torch/pyexecutor/model_loader.py:290)",
        "create_py_executor (tensorrt_llm/_torch/pyexecutor/py_executor_creator.py:360)",
        "worker_main (tensorrt_llm/executor/worker.py:250)",
    )
    ranks = [
        rank(
            number, name="python -m mpi4py", label=f"rank {number}", ppid=4050, state="R", cpu=1.0,
            threads=idle_threads(),
            stack=(*(asks if apart and number in {0, 2} else barrier), *outer), memory=40 * GB,
        )
        for number in range(4)
    ]  # fmt: skip
    main = process(FRONT, "trtllm-serve", ppid=1, stack=("wait (threading.py:331)",), role=Role.FRONT, facts=BARE)
    orted = process(4050, "mpirun", native=("poll (libc.so.6)", "event_base_loop (libevent_core-2.1.so.7)"))
    log = [
        "[11/28/2026-09:14:07] [TRT-LLM] [RANK 1] [I] Prefetching 805.21GB checkpoint files.",
        "[11/28/2026-09:14:07] [TRT-LLM] [RANK 3] [I] Prefetching 805.21GB checkpoint files.",
    ]
    return started(
        "trtllm-serve serve /models/llm --tp_size 4 --ep_size 4 --port 8000", main, orted, ranks, log=log,
        phase=Phase.WEIGHTS, quiet_s=900, ranks=4,
        gpus=gpus(4, name="NVIDIA GB300", architecture="103", memory_used_bytes=200 * GB),
    )  # fmt: skip


def no_accelerator(*, told: bool) -> Bundle:
    main = process(
        FRONT, "serve run", ppid=1, role=Role.FRONT, facts=BARE, syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10)",
        stack=("_wait_for_application_running (ray/serve/_private/client.py:234)", "run (ray/serve/api.py:540)"),
    )  # fmt: skip
    controller = process(
        4060, "ray::ServeController", stack=("select (selectors.py:468)", "main_loop (ray/_private/worker.py:880)"),
        syscall="epoll_wait(0x7)", facts=BARE,
    )  # fmt: skip
    raylet = process(4061, "raylet", syscall="epoll_wait(0x9)", native=("epoll_wait (libc.so.6)",), facts=BARE)
    warns = (
        "(ServeController pid=4060) WARNING 2026-11-28 09:14:37,398 controller 4060 deployment_state.py:2152 - "
        "Deployment 'VLLMDeployment:llm' in application 'ray-llm' has 1 replicas that have taken more than 30s to be "
        "scheduled. This "
        "may be due to waiting for the cluster to auto-scale or for a runtime environment to be installed. Resources "
        'required for each replica: [{"CPU": 1.0, "accelerator_type_a10": 0.01}, {"GPU": 0.1}], total resources '
        "available: {}. Use `ray status` for more details."
    )
    joins = "INFO worker.py:1724 -- Connecting to existing Ray cluster at address: 10.0.0.2:6379..."
    log = [joins, *([warns] if told else [])]
    return started(
        "serve run serve_configs/amazon--LightGPT.yaml", main, controller, raylet, log=log, phase=Phase.SPAWN,
        quiet_s=400, gpus=gpus(1, name="Tesla T4", architecture="75", memory_total_bytes=16 * GB),
    )  # fmt: skip


def hard_disk(*, waits: bool) -> Bundle:
    stack = (
        "get_mmap_tensor (ktransformers/util/custom_gguf.py:301)",
        "load_gguf_tensor (ktransformers/util/custom_gguf.py:345)",
        "load_weights (ktransformers/operators/experts.py:255)",
        "optimize_and_load_gguf (ktransformers/optimize/optimize.py:130)",
        "local_chat (ktransformers/local_chat.py:122)",
    )
    blob = OpenFile(
        fd=-2,
        kind="file",
        target="/data/gguf/r1-q4_k_m-00007-of-00009.gguf",
        access="r",
        size=46 * GB,
        filesystem="ext4",
    )
    main = process(
        FRONT, "python", ppid=1, stack=stack, state="D" if waits else "S", cpu=0.2 if waits else 0.0,
        wchan="folio_wait_bit_common" if waits else "", memory=363 * GB, shared=358 * GB,
        syscall="none: it blocks outside of any system call" if waits else "futex(0x7f3a10, 0x80, 0x0)",
        kernel=("folio_wait_bit_common", "filemap_fault", "__do_fault", "handle_mm_fault") if waits else (),
        moves=Moves(faults=9100, read_bytes=1_100 << 20, memory_bytes=1_100 << 20) if waits else Moves(),
        files=[blob] if waits else [],
    )  # fmt: skip
    log = [f"loading blk.49.{name}.weight to cuda:0" for name in ("attn_kv_b", "attn_norm", "ffn_norm")]
    return started(
        "python ./ktransformers/local_chat.py --gguf_path /data/gguf --model_path /data/r1 --cpu_infer 100", main,
        helper(), log=log, phase=Phase.WEIGHTS, motion=Motion.SLOW if waits else Motion.STALLED, quiet_s=70,
        gpus=gpus(1, name="NVIDIA GeForce RTX 3090", architecture="86", memory_total_bytes=24 * GB),
        host=host(
            memory_bytes=504 * GB, memory_free_bytes=130 * GB,
            places=(place("weights", "/data/gguf", needed_bytes=377 * GB, free_bytes=2100 * GB), place("home",
            "/root")),
        ),
    )  # fmt: skip


def runner_given_up(*, killed: bool) -> Bundle:
    main = process(FRONT, "ollama serve", ppid=1, role=Role.FRONT, syscall="epoll_wait(0x4)", facts=BARE)
    reads = process(
        4100, "ollama runner", role=Role.WORKER, state="D", wchan="folio_wait_bit_common", memory=11 * GB,
        syscall="read(0x9, 0x7f2200, 0x100000)",
        kernel=("folio_wait_bit_common", "filemap_read", "ext4_file_read_iter"),
        native=("read (libc.so.6)", "llama_model_loader::load_all_data (libllama.so)"),
        moves=Moves(read_bytes=700 << 20, memory_bytes=700 << 20), facts=BARE,
    )  # fmt: skip
    when = "time=2026-11-28T09:14:07.120+08:00"
    loads = 'msg="waiting for server to become available" status="llm server loading model"'
    late = 'msg="error loading llama server" error="timed out waiting for llama runner to start - progress 0.00 - "'
    log = [
        f"{when} level=INFO source=server.go:594 {loads}",
        *([f"{when} level=ERROR source=sched.go:455 {late}"] if killed else []),
    ]
    return started(
        "ollama serve", main, [] if killed else [reads], log=log, phase=Phase.WEIGHTS, motion=Motion.MOVING,
        quiet_s=2,
        exits=[ended(reads, ago_s=1)] if killed else [], gpus=gpus(1, name="NVIDIA A40", architecture="86"),
        environment={"OLLAMA_LOAD_TIMEOUT": "5m0s"},
    )  # fmt: skip
