"""The same mechanism in other engines, libraries and drivers, and with part of the evidence out of sight: each beside
the same stall without what decides."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    ENGINE,
    FRONT,
    GB,
    NO_PTRACE,
    Moves,
    bundle,
    ended,
    file,
    folder,
    gpus,
    line,
    ordinary_facts,
    process,
    rank,
    socket,
    thread,
)

HEAD, WEB = "10.8.0.2:6379", "104.18.7.40:443"
LLAMA = ("llama_model_loader::load_all_data(ggml_context*) (libllama.so)", "main (llama-server)")


def _one(name="python", *, told=None, **more: object) -> Bundle:
    about = {"engine": "generic", "phase": Phase.RENDEZVOUS, **(told or {})}
    return bundle(process(FRONT, name, ppid=1, **more), **about)


def _knocks(*, answered=False, to=HEAD, stack=(), native=(), **told: object) -> Bundle:
    state = "ESTABLISHED" if answered else "SYN_SENT"
    files = [socket("10.8.0.3:41022", to, state=state, fd=17)]
    return _one(stack=stack, native=native, syscall="epoll_wait(0x9)", files=files, told=told)


def _refused(*, answered=False, **more: object) -> Bundle:
    files = [socket("10.8.0.3:41022", "10.8.0.2:2379", state="ESTABLISHED", fd=17)] if answered else []
    said = [line("Error: transport: dial tcp 10.8.0.2:2379: connect: connection refused", level="ERROR")]
    told = {"environment": {"ETCD_ENDPOINTS": "http://10.8.0.2:2379"}, "log": said}
    return _one(syscall="clock_nanosleep(0x1)", files=files, told=told, **more)


def _fetches(name="python", *, grows=False, stack=(), native=()) -> Bundle:
    worker = thread(stack, native=native, name="tokio", syscall="epoll_wait(0x9)")
    told = {
        "phase": Phase.WEIGHTS,
        "folders": [folder("download", "/cache/hub", bytes_=GB, grows=GB if grows else 0)],
    }
    return _one(name, threads=[worker], told=told)


def _compiles(native: str, *, computes=True) -> Bundle:
    told = {"phase": Phase.WARMUP, "folders": [folder("compile_cache", "/cache/k", bytes_=GB, grows=9)]}
    return _one(native=[native], state="R" if computes else "S", cpu=1.0 if computes else 0.0, told=told)


def _pins(*, within="pin_user_pages_fast") -> Bundle:
    moves = Moves(memory_bytes=4 * GB)
    kernel = [within, "nvidia_ioctl"]
    return _one(native=NO_PTRACE, stack=NO_PTRACE, kernel=kernel, state="R", cpu=0.9, moves=moves)


def _polls(*, held=True) -> Bundle:
    stack = (
        "_lock (portalocker/portalocker.py:118)",
        "acquire (portalocker/utils.py:300)",
        "build (kernels/build.py:40)",
    )
    lock = Lock(
        path="/shared/build/lock", kind="flock", holder=ENGINE if held else FRONT, waiters=(), filesystem="ext4"
    )
    polling = process(FRONT, "python", stack=stack, syscall="clock_nanosleep(0x1)", ppid=1)
    return bundle(polling, process(ENGINE, "python"), engine="generic", phase=Phase.IMPORT, locks=[lock])


def _reads(*, faults=4000) -> Bundle:
    weights = file("/mnt/w/model.gguf", fd=8, filesystem="orangefs")
    moves = Moves(faults=faults, read_bytes=faults << 12)
    told = {"engine": "llama.cpp", "phase": Phase.WEIGHTS}
    return _one("llama-server", native=LLAMA, files=[weights], moves=moves, told=told)


def _kernel(text: str) -> Bundle:
    return _one(told={"phase": Phase.SERVING, "kernel_log": [text], "gpus": gpus(1)})


def _says(text: str, **told: object) -> Bundle:
    return _one(told={"phase": Phase.SPAWN, "log": [line(text, level="ERROR")], **told})


def _serves(ranks: int) -> Bundle:
    """One rank is there, and one ended before the server served; `ranks` are wanted."""
    gone = [ended(rank(1), signal=6, ago_s=400)]
    return bundle(rank(0), phase=Phase.SERVING, ranks=ranks, exits=gone, question="no token within 60 s")


def _asks(to=WEB, *, fds=(11,)) -> Bundle:
    stack = ("create_connection (socket.py:845)", "read_file (tiktoken/load.py:18)", "load (model/tokenizer.py:9)")
    web = socket("10.8.0.3:50012", to, state="SYN_SENT", fd=11)
    return _one(stack=stack, fds=fds, files=[web], syscall="connect(0xb)", told={"phase": Phase.CONFIG})


RAY = {"environment": {"RAY_ADDRESS": HEAD}}
RPC = {"options": {"rpc": "10.8.0.2:50052,10.8.0.4:50052"}, "engine": "llama.cpp", "phase": Phase.SPAWN}
ELASTIC = {"options": {"rdzv-endpoint": "10.8.0.2:29400"}}
SHAKES = ("recv (zmq/sugar/socket.py:9)", "_nixl_handshake (vllm/kv_connector/v1/nixl_connector.py:800)")
GLOO = ("gloo::transport::tcp::Pair::connect() (libtorch_cpu.so)",)

WAYS = {
    "the head of a Ray cluster": ("rendezvous_unreachable", _knocks(**RAY), _knocks(answered=True, **RAY)),
    "a server that computes for llama.cpp": (
        "rendezvous_unreachable",
        _knocks(to="10.8.0.4:50052", **RPC),
        _knocks(to="10.8.0.4:50052", answered=True, **RPC),
    ),
    "torchrun's endpoint": (
        "rendezvous_unreachable",
        _knocks(to="10.8.0.2:29400", **ELASTIC),
        _knocks(to="10.8.0.2:29400", answered=True, **ELASTIC),
    ),
    "native frames of gloo only": (
        "rendezvous_unreachable",
        _knocks(to="10.8.0.2:40131", native=GLOO),
        _knocks(to="10.8.0.2:40131", native=GLOO, answered=True),
    ),
    "no stack at all, on two nodes": (
        "rendezvous_unreachable",
        _knocks(to="10.8.0.2:40131", stack=NO_PTRACE, native=NO_PTRACE, nodes=2),
        _knocks(to="10.8.0.2:40131", stack=NO_PTRACE, native=NO_PTRACE),
    ),
    "a registry that refuses": ("rendezvous_unreachable", _refused(), _refused(answered=True)),
    "a head that its log names": (
        "rendezvous_unreachable",
        _says("Failed to connect to GCS at address 10.8.0.2:6379 within 5 seconds."),
        _knocks(answered=True, log=[line("Failed to connect to GCS at address 10.8.0.2:6379 within 5 seconds.")]),
    ),
    "a supervisor's other address": (
        "rendezvous_unreachable",
        _knocks(to="10.8.0.2:34567", log=[line("cannot connect to supervisor")]),
        _knocks(to="10.8.0.2:34567"),
    ),
    "a rank that ended before the others served": ("rank_died", _serves(ranks=2), _serves(ranks=1)),
    "a handshake of another library": (
        "pd_handshake",
        _knocks(to="10.8.0.2:5600", stack=SHAKES, phase=Phase.SERVING),
        _knocks(to="10.8.0.2:5600", stack=SHAKES, phase=Phase.SERVING, answered=True),
    ),
    "a vocabulary from the web": ("hub_network", _asks(), _asks(to="10.8.0.2:40131", fds=())),
    "a download in Rust": (
        "download_stuck",
        _fetches(native=["hf_xet::download (hf_xet.abi3.so)"]),
        _fetches(native=["hf_xet::download (hf_xet.abi3.so)"], grows=True),
    ),
    "a download by a program": ("download_stuck", _fetches("aria2c"), _fetches("python")),
    "ROCm's compiler": (
        "slow_jit",
        _compiles("amd_comgr_do_action (libamd_comgr.so.2)"),
        _compiles("amd_comgr_do_action (libamd_comgr.so.2)", computes=False),
    ),
    "TensorRT's builder": (
        "slow_jit",
        _compiles("nvinfer1::builder::buildEngine (libnvinfer.so.10)"),
        _compiles("nvinfer1::execute (libnvinfer.so.10)"),
    ),
    "pinning, seen in the kernel": ("host_memory_pin", _pins(), _pins(within="nv_poll")),
    "another library's lock": ("stale_jit_lock", _polls(), _polls(held=False)),
    "llama.cpp on another file system": ("slow_storage", _reads(), _reads(faults=0)),
    "a GPU of AMD": (
        "gpu_fault",
        _kernel("amdgpu 0000:c3:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE"),
        _kernel("amdgpu 0000:c3:00.0: amdgpu: SMU is initialized successfully!"),
    ),
    "a GPU of Intel": (
        "gpu_fault",
        _kernel("xe 0000:03:00.0: [drm] device wedged, needs recovery"),
        _kernel("xe 0000:03:00.0: [drm] GuC firmware is loaded"),
    ),
    "a batch system's queue": (
        "resource_wait",
        _says("srun: job 88 queued and waiting for resources"),
        _says("srun: job 88 has been allocated resources"),
    ),
    "a port, in llama.cpp's words": (
        "port_in_use",
        _says("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"),
        _says("cannot bind socket: cannot assign requested address, port: 8080"),
    ),
    "a port, in Rust": (
        "port_in_use",
        _says("Error: Os { code: 98, kind: AddrInUse }"),
        _says("Error: Os { code: 99, kind: AddrNotAvailable }"),
    ),
}


@pytest.mark.parametrize(("cause", "seen", "twin"), WAYS.values(), ids=WAYS)
def test_a_cause_is_named_however_it_shows(judge, cause, seen, twin):
    assert judge(seen, cause).word in {"established", "supported"}
    assert judge(twin, cause).word not in {"established", "supported"}


@pytest.mark.parametrize(
    "text",
    ["Not enough GPU memory for this batch", "could not bind to NUMA node 0", "cannot bind address to interface"],
)
def test_words_that_only_sound_alike_name_nothing(judge, text):
    assert judge(_says(text), "resource_wait").finding is None
    assert judge(_says(text), "port_in_use").finding is None


def test_a_refusal_of_old_says_nothing_where_connections_cannot_be_seen(judge):
    hidden = ordinary_facts(variables=NO_PTRACE)
    assert judge(_refused(facts=hidden), "rendezvous_unreachable").word not in {"established", "supported"}
