"""Machines of the twelfth lot of which something has ended, or that say why they do not go on."""

from tests.corpus.starts import BARE, SGLANG, at, begun, core_name, detokenizer, launcher, loaded, started
from tests.corpus.surroundings import scheduler

from firstlight.core.bundle import Bundle
from firstlight.core.gpu import GpuProcess
from firstlight.core.look import Leftover, Listener
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    PACKAGES,
    ended,
    engine,
    folder,
    front,
    gpus,
    helper,
    host,
    ordinary_facts,
    place,
    process,
    rank,
    thread,
)

DIES = {"motion": Motion.MOVING, "quiet_s": 4}


def impatient(*, seen: bool) -> Bundle:
    """A pod's liveness probe began after five minutes, and ended the server while its weights were coming in."""
    gone = {"signal": 15} if seen else {}
    told = [
        "(APIServer pid=4000) Traceback (most recent call last):",
        f'(APIServer pid=4000)   File "{PACKAGES}vllm/entrypoints/openai/api_server.py", line 94, in signal_handler',
        "(APIServer pid=4000) KeyboardInterrupt: terminated",
    ]
    cards = gpus(4, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=38 * GB)
    log = [
        *begun("/models/llama70b", "0.19.1"),
        "Loading safetensors checkpoint shards:  43% Completed | 13/30 [04:02<05:17, 18.6s/it]",
        *(told if seen else []),
    ]
    return started(
        "vllm serve /models/llama70b --tensor-parallel-size 4 --port 8000", helper(ppid=1), log=log,
        phase=Phase.WEIGHTS, exits=[
            *(ended(rank(n), ago_s=2, **gone) for n in range(4)),
            ended(engine(), ago_s=2, **gone), ended(front(), ago_s=1, **({"signal": 2} if seen else {})),
        ],
        started=1_799_999_669.0, gpus=cards,
        host=host(container="kubernetes", places=(
            place("weights", "/models/llama70b", filesystem="nfs4", needed_bytes=131 * GB), place("home", "/root"),
        )), **DIES,
    )  # fmt: skip


def small_shm(*, seen: bool) -> Bundle:
    """A chart that mounts nothing at /dev/shm: NCCL finds no room for its segments, and the workers end."""
    warn = (
        "llm-0:4101:4101 [1] include/shm.h:58 NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-VzIpS6 (size 9637888): No space left on device"
    )
    error = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    log = [
        *begun("/models/llama8b", "0.9.1"),
        *([f"(VllmWorker rank=1 pid=4101) {line}" for line in (
            warn,
            "ERROR 01-30 09:14:07 [multiproc_executor.py:487] WorkerProc failed to start.",
            f"ERROR 01-30 09:14:07 [multiproc_executor.py:487] {error}",
        )] if seen else []),
    ]  # fmt: skip
    return started(
        "vllm serve /models/llama8b --tensor-parallel-size 2", helper(ppid=1), log=log, phase=Phase.COMM_INIT,
        exits=[ended(rank(n), code=1, ago_s=3) for n in range(2)]
        + [ended(engine(), code=1, ago_s=2), ended(front(), code=1, ago_s=1)],
        gpus=gpus(2, name="NVIDIA L4", architecture="89", memory_total_bytes=24 * GB, memory_used_bytes=GB),
        host=host(container="kubernetes", shm_bytes=64 << 20 if seen else 64 * GB, shm_used_bytes=58 << 20),
        **DIES,
    )  # fmt: skip


def survivor(*, seen: bool) -> Bundle:
    """The stage that had started an engine was killed for its memory; the engine lives on, and fills the GPU."""
    error = (
        "ValueError: Free memory on device (1.74/22.06 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 19.86 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    name = core_name("0.9.1")
    log = [
        *begun("/models/llama1b", "0.9.1"),
        *([f"({name} pid=4050) {line}" for line in (
            "ERROR 07-07 09:14:07 [core.py:515] EngineCore failed to start.",
            "ERROR 07-07 09:14:07 [core.py:515] Traceback (most recent call last):",
            f"ERROR 07-07 09:14:07 [core.py:515] {error}",
        )] if seen else []),
    ]  # fmt: skip
    held = ("GPU 0", "/dev/shm/psm_41c7")
    rest = Leftover(pid=3_310_447, name="VLLM::EngineCore", state="S", age_s=700, holds=held)
    used = (GpuProcess(pid=3_310_447, memory_bytes=20 * GB, here=True),)
    return started(
        "vllm serve /models/llama1b --enforce-eager", helper(ppid=1), log=log, phase=Phase.MODEL_INIT,
        exits=[ended(engine(), code=1, ago_s=3), ended(front(), code=1, ago_s=1)], leftovers=[rest] if seen else [],
        gpus=gpus(1, name="NVIDIA L4", architecture="89", memory_total_bytes=22 * GB,
                  memory_used_bytes=20 * GB if seen else GB, processes=used if seen else ()),
        host=host(memory_bytes=62 * GB, memory_free_bytes=40 * GB), **DIES,
    )  # fmt: skip


def same_port(*, seen: bool) -> Bundle:
    """Two data-parallel groups of one node both want to open the port of the rendezvous; the second cannot."""
    error = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29631, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    control = process(
        4050, "sglang::data_parallel_controller", role=Role.ENGINE, label="controller", facts=BARE, memory=GB,
        syscall="read(0x28, 0x7f3a10, 0x4)", fds=(40,),
        stack=("_recv (multiprocessing/connection.py:395)",
               "launch_tensor_parallel_group (sglang/srt/managers/data_parallel_controller.py:330)"),
    )  # fmt: skip
    store = ("_create_c10d_store (torch/distributed/rendezvous.py:189)",
             "init_process_group (torch/distributed/distributed_c10d.py:1710)",
             "init_torch_distributed (sglang/srt/model_executor/model_runner.py:690)")  # fmt: skip
    named = [{"name": f"sglang::scheduler_DP{n // 4}_TP{n % 4}", "label": f"DP{n // 4} TP{n % 4}", "ppid": 4050}
             for n in range(8)]  # fmt: skip
    ranks = [scheduler(n, store, memory=2 * GB, syscall="poll(0x7ffd10, 0x1, 0x3e8)", **named[n]) for n in range(8)]
    alive = [one for n, one in enumerate(ranks) if n != 4]
    log = [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        at("", "Launch DP0 starting at GPU #0."),
        at("", "Launch DP1 starting at GPU #4."),
        *(at(f"DP{n // 4} TP{n % 4}", "Init torch distributed begin.") for n in range(8)),
        *([
            at("DP1 TP0", "Scheduler hit an exception: Traceback (most recent call last):"),
            f'  File "{PACKAGES}sglang/srt/model_executor/model_runner.py", line 690, in init_torch_distributed',
            error,
        ] if seen else []),
    ]  # fmt: skip
    return started(
        f"{SGLANG} --tp 4 --dp 2 --nnodes 2 --node-rank 0 --dist-init-addr 10.4.0.11:29631", launcher(), control,
        detokenizer(), helper(), alive if seen else ranks, log=log, phase=Phase.RENDEZVOUS, version="0.5.6",
        exits=[ended(ranks[4], code=1, ago_s=3)] if seen else [],
        listeners=[Listener(host="0.0.0.0", port=29631, pid=4100)] if seen else [],
        gpus=gpus(8, name="NVIDIA H200", memory_total_bytes=141 * GB, memory_used_bytes=GB), **DIES,
    )  # fmt: skip


def asks_itself(*, seen: bool) -> Bundle:
    """The server listens on all addresses; its first request to itself goes to the company's proxy, which refuses."""
    variables = {"http_proxy": "http://10.9.0.8:3128", "https_proxy": "http://10.9.0.8:3128",
                 "no_proxy": "localhost,127.0.0.1"} if seen else {}  # fmt: skip
    loop = ("run_forever (asyncio/base_events.py:608)", "run (uvicorn/server.py:66)",
            "launch_server (sglang/srt/entrypoints/http_server.py:860)")  # fmt: skip
    main = launcher(
        stack=loop, syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)",
        facts=ordinary_facts(libraries=(), variables=variables),
        threads=[thread(
            ("_wait_and_warmup (sglang/srt/entrypoints/http_server.py:690)", "run (threading.py:953)"),
            name="Thread-1 (_wait_and_warmup)", syscall="clock_nanosleep(0x1, 0x1, 0x7f21c0, 0x0)",
        )],
    )  # fmt: skip
    idle = ("recv_requests (sglang/srt/managers/scheduler.py:880)",
            "event_loop_overlap (sglang/srt/managers/scheduler.py:640)",
            "run_scheduler_process (sglang/srt/managers/scheduler.py:1990)")  # fmt: skip
    ranks = [scheduler(n, idle, state="R", cpu=1.0, memory=9 * GB) for n in range(8)]
    log = [
        *loaded(8),
        at("", "INFO:     Started server process [4000]"),
        at("", "INFO:     Application startup complete."),
        at("", "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"),
    ]
    return started(
        f"{SGLANG} --tp 8 --host 0.0.0.0", main, detokenizer(), helper(), ranks, log=log, phase=Phase.HTTP_BIND,
        quiet_s=90, version="0.4.4", environment=variables,
        listeners=[Listener(host="0.0.0.0", port=30000, pid=FRONT)],
        gpus=gpus(8, memory_used_bytes=66 * GB), folders=[folder("compile_cache", "/root/.triton", files=90)],
    )  # fmt: skip
