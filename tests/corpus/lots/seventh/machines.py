"""Machines of the seventh lot: what such a stall would have left to be seen, with and without what decides."""

from msgspec.structs import replace
from tests.corpus.machine_builds import BATON
from tests.corpus.surroundings import IDLE_WORKER, vllm, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved, Topology
from firstlight.core.look import Lock
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    Moves,
    bundle,
    compiler,
    ended,
    file,
    folder,
    front,
    gpus,
    helper,
    host,
    interface,
    line,
    ordinary_facts,
    process,
    rank,
    socket,
    thread,
)

NICS = (
    interface("lo", "127.0.0.1", kind="loopback"),
    interface("eth0", "10.108.0.184"),
    interface("docker0", "172.17.0.1", kind="bridge"),
)
GLOO_INIT = (
    "_new_process_group_helper (torch/distributed/distributed_c10d.py:1950)",
    "new_group (torch/distributed/distributed_c10d.py:4700)",
    "init_distributed (app/parallel.py:88)",
)
JOINS = (
    "_create_c10d_store (torch/distributed/rendezvous.py:189)",
    "init_process_group (torch/distributed/distributed_c10d.py:1700)",
)
WAITS_FOR_RUNNER = ("select (selectors.py:468)", "run_forever (asyncio/base_events.py:608)")
OVER_HTTP = {"engine": "generic", "phase": Phase.SERVING}


def alone(name: str = "python", *, told: dict[str, object], **more: object) -> Bundle:
    """One process and its helper, of no engine that is known by name."""
    return bundle(process(FRONT, name, ppid=1, **more), helper(), **{"engine": "generic", **told})  # type: ignore[arg-type]


def ray(*, refused: bool) -> Bundle:
    said = "gcs_rpc_client.h:179: Failed to connect to GCS at address 10.108.0.184:6379 within 5 seconds."
    told = {"phase": Phase.SPAWN, "host": host(interfaces=NICS, container="docker"), "listeners": ()}
    told |= {"options": {"address": "127.0.0.1:6379"}, "environment": {"MASTER_ADDR": "127.0.0.1"}}
    log = [line(said, level="ERROR")] if refused else [line("Ray runtime started.")]
    return alone("ray", stack=NO_PTRACE, syscall="futex(0x7f3a10, 0x80)", told={**told, "log": log})


def supervisor(*, blocked: bool) -> Bundle:
    made = socket("172.29.163.178:40112", "192.168.3.30:9997", state="ESTABLISHED", fd=14)
    knock = socket("172.29.163.178:40120", "172.21.200.37:34567", state="SYN_SENT", fd=15)
    log = [line("cannot connect to supervisor", level="ERROR")] if blocked else []
    files = [made, *([knock] if blocked else [])]
    return alone(
        "xinference-work", stack=WAITS_FOR_RUNNER, syscall="epoll_wait(0x9)", files=files,
        told={"phase": Phase.SPAWN, "log": log, "options": {"endpoint": "http://192.168.3.30:9997"}},
    )  # fmt: skip


def bond(*, told: bool) -> Bundle:
    error = "[enforce fail at gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: bond1"
    gone = rank(0, name="python")
    return bundle(
        helper(), engine="generic", phase=Phase.RENDEZVOUS, host=host(interfaces=NICS), exits=[ended(gone, code=1)],
        log=[line(error, level="ERROR", ago_s=41)] if told else [],
        environment={"GLOO_SOCKET_IFNAME": "bond1"} if told else {},
    )  # fmt: skip


def mesh(*, loopback: bool) -> Bundle:
    listens = socket("127.0.1.1:41877" if loopback else "10.108.0.184:41877", state="LISTEN", fd=31)
    name = Resolved(name="gpu-a", addresses=("127.0.1.1",) if loopback else ("10.108.0.184",))
    error = "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
    return bundle(
        worker(0, GLOO_INIT, files=[listens], native=["epoll_wait (libc.so.6)"]), engine="sglang", nodes=2,
        phase=Phase.COMM_INIT, host=host(interfaces=NICS, resolved=(name,)), log=[line(error, level="ERROR")],
    )  # fmt: skip


def xet(*, grows: bool) -> Bundle:
    stack = (
        "xet_get (huggingface_hub/file_download.py:600)",
        "_snapshot_download (huggingface_hub/_snapshot_download.py:300)",
        "download_weights_from_hf (vllm/model_executor/model_loader/weight_utils.py:480)",
    )
    part = [folder("download", "/cache/hub/models--llm/blobs", bytes_=65 << 20, grows=GB if grows else 0)]
    rust = thread(name="hf-xet-0", syscall="futex(0x7f)", native=["tokio::park (hf_xet.abi3.so)"])
    return vllm(
        worker(0, stack, threads=[rust]), phase=Phase.WEIGHTS, folders=part, host=host(container="kubernetes")
    )


def runner(*, event: bool) -> Bundle:
    kernel = [
        "NVRM: Xid (PCI:0000:01:00): 62, pid=4100, name=llama-server, 32338a5a 00006a2c",
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ]
    runner = process(4100, "llama-server", native=["ioctl (libc.so.6)", "?? (libcuda.so.1)"], ppid=FRONT)
    log = [line("failure during llama-server GPU discovery", level="WARNING")]
    return bundle(
        process(FRONT, "ollama", ppid=1, syscall="epoll_wait(0x4)"), runner, kernel_log=kernel if event else [],
        log=log, **OVER_HTTP,
    )  # fmt: skip


def no_fabric(*, refused: bool) -> Bundle:
    log = [line("CUDA initialization: Error 802: system not yet initialized", level="ERROR")] if refused else []
    stack = (
        "_cuda_init (torch/cuda/__init__.py:330)",
        "_lazy_init (torch/cuda/__init__.py:340)",
        "main (serve.py:9)",
    )
    cards = gpus(8, fabric="in progress" if refused else "completed")
    return alone(
        stack=stack, native=["cuInit (libcuda.so.1)"], told={"phase": Phase.SPAWN, "gpus": cards, "log": log}
    )


def probed(*, killed: bool) -> Bundle:
    server = process(FRONT, "tritonserver", ppid=1, state="R", cpu=1.0, facts=ordinary_facts(libraries=()))
    return bundle(
        [] if killed else [server], helper(), engine="generic", phase=Phase.WEIGHTS, motion=Motion.MOVING, quiet_s=2,
        host=host(container="kubernetes"), exits=[ended(server, signal=15, ago_s=1)] if killed else [],
    )  # fmt: skip


def paged(*, faults: int, filesystem: str, stack: tuple[str, ...] = (), path: str) -> Bundle:
    native = () if stack else ("__memcpy_avx (libc.so.6)", "llama_model_loader::load_all_data (libllama.so)")
    return alone(
        "python" if stack else "llama-server", stack=stack, native=native, files=[file(path, filesystem=filesystem)],
        moves=Moves(faults=faults, read_bytes=faults << 14), cpu=0.05, state="D" if faults else "S",
        wchan="folio_wait_bit_common" if faults else "", told={"phase": Phase.WEIGHTS},
    )  # fmt: skip


def baton(package: str, path: str, *, left: bool) -> Bundle:
    lock = Lock(kind="file", path=path, holder=0, age_s=90_000, filesystem="ext4")
    stack = (*BATON, package) if left else ("load (torch/utils/cpp_extension.py:1680)", package)
    sleeps = "clock_nanosleep(0x0, 0x0, 0x7ffd10)"
    return alone(stack=stack, syscall=sleeps, told={"phase": Phase.IMPORT, "locks": [lock] if left else []})


def vocabulary(*, blocked: bool) -> Bundle:
    stack = (
        "load_harmony_encoding (openai_harmony/__init__.py:690)",
        "get_encoding (vllm/entrypoints/harmony_utils.py:60)",
        "__init__ (vllm/entrypoints/openai/serving_chat.py:120)",
    )
    web = [socket("10.108.0.184:50012", "20.60.241.37:443", state="SYN_SENT", fd=33)] if blocked else []
    return vllm(workers(1, IDLE_WORKER), front(stack=stack, files=web, syscall="poll(0x1)"), phase=Phase.HTTP_BIND)


def tiny_shm(*, small: bool, log: str, bus: bool = False) -> Bundle:
    memory = host(shm_bytes=(64 << 20) if small else 64 * GB, shm_used_bytes=60 << 20, container="docker")
    gone = process(4300, "python", role=Role.OTHER)
    return bundle(
        workers(2, ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "main (run.py:7)")), engine="generic",
        phase=Phase.COMM_INIT, host=memory, exits=[ended(gone, signal=7)] if bus else [],
        log=[line(log, level="ERROR")] if small else [],
    )  # fmt: skip


def bisheng(*, works: bool) -> Bundle:
    waits = (
        "communicate (subprocess.py:1209)",
        "linalg_to_bin_enable_npu_compile (triton/backends/ascend/compiler.py:300)",
        "compile (triton/compiler/compiler.py:320)",
        "execute_model (vllm_ascend/worker/model_runner_v1.py:2000)",
    )
    cache = [folder("compile_cache", "/root/.triton/cache", bytes_=GB, grows=4096 if works else 0)]
    child = process(4901, "bisheng-compile", ppid=4100, state="R", cpu=0.9) if works else helper(4)
    more = [compiler("clang-17", cpu=0.8)] if works else []
    return vllm(workers(2, waits, syscall="poll(0x7f, 0x2)"), child, *more, phase=Phase.SERVING, folders=cache)


def ray_rank(*, died: bool) -> Bundle:
    there = workers(8, IDLE_WORKER)
    log = [line("RayWorkerProc rank=[0] died unexpectedly, shutting down executor.", level="ERROR", ago_s=39)]
    more = {"exits": [ended(there[0])], "log": log} if died else {}
    return vllm(there[1:] if died else there, phase=Phase.SERVING, question="no token within 60 s", ranks=8, **more)


def pinned(*, grows: bool) -> Bundle:
    native = [
        "ioctl (libc.so.6)",
        "cuMemHostAlloc (libcuda.so.1)",
        "PinnedAllocator::allocateImpl (libtensorrt_llm.so)",
    ]
    moves = Moves(memory_bytes=10 * GB if grows else 0)
    return bundle(
        front(), rank(0, native=native if grows else ["poll (libc.so.6)"], moves=moves, state="R", cpu=1.0),
        engine="tensorrt-llm", phase=Phase.KV_CACHE, gpus=gpus(1),
    )  # fmt: skip


def tensor_table(*, holds: bool) -> Bundle:
    loop = thread(
        name="horovod", syscall="futex(0x7f)", native=["take_gil (python3.9)", "PyGILState_Ensure (python3.9)"]
    )
    one = rank(
        1, name="python", stack=("synchronize (horovod/torch/mpi_ops.py:880)", "train (train.py:60)"), threads=[loop],
        native=["usleep (libc.so.6)", "HandleManager::PollHandle (mpi_lib_v2.so)"], syscall="clock_nanosleep(0x0)",
    )  # fmt: skip
    main, *others = one.look.threads
    made = one._replace(look=replace(one.look, threads=(replace(main, owns_gil=holds), *others)))
    return bundle(made, rank(0, name="python", native=["PMPI_Allgather (libmpi.so.40)"]), **OVER_HTTP)


def nixl(*, absent: bool) -> Bundle:
    stack = (
        "recv (zmq/sugar/socket.py:1120)",
        "_nixl_handshake (vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py:800)",
        "start_load_kv (vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py:1500)",
    )
    waiting = thread(stack if absent else ("wait (threading.py:331)",), name="nixl-handshake", syscall="poll(0x1)")
    log = [line("NIXL handshake with localhost:5600 timed out", source="Worker_TP0", level="ERROR")] if absent else []
    return vllm(worker(0, IDLE_WORKER, threads=[waiting]), phase=Phase.SERVING, log=log, listeners=())


NO_PEERS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
BLIND = host(topology=Topology(iommu=NO_PEERS, acs=NO_PEERS, bar1_bytes=0))
SHM = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-9Pr (size 9637888), No space left on device"
BUS = "RuntimeError: DataLoader worker (pid 4300) is killed by signal: Bus error. It is out of shared memory."
TORCH_LOAD = ("load_file (safetensors/torch.py:315)", "load_torch_file (comfy/utils.py:13)")
STATE = (
    "copy_ (torch/_tensor.py:90)",
    "load_state_dict (torch/nn/modules/module.py:2500)",
    "load (fairseq2/loader.py:88)",
)
ORT, PACK = (
    "_load_extensions (onnxruntime/training/ortmodule.py:9)",
    "try_load (colbert/indexing/codecs/residual.py:70)",
)
ORT_LOCK, PACK_LOCK = "/opt/ort/torch_inline_extensions/aten/lock", "/root/.cache/torch_extensions/packbits_cpp/lock"
