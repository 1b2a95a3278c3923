"""Machines of the first lot: downloads, proxies and interfaces."""

from tests.corpus.surroundings import (
    WORKER_MAIN,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.look import Listener, Lock
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    folder,
    host,
    interface,
    line,
    process,
    socket,
    thread,
)


def xet(*, pulls: bool) -> Bundle:
    stack = (
        "xet_get (huggingface_hub/file_download.py:560)",
        "_download_to_tmp_and_move (huggingface_hub/file_download.py:1740)",
        "_hf_hub_download_to_local_dir (huggingface_hub/file_download.py:1300)",
        "_worker (concurrent/futures/thread.py:90)",
    )
    fetches = thread(
        stack if pulls else stack[3:], name="ThreadPoolExecutor-0_0", syscall="futex(0x7f3a10, 0x80, 0x0)"
    )
    main = process(
        FRONT,
        "python3",
        stack=[
            "wait (threading.py:355)",
            "result (concurrent/futures/_base.py:451)",
            *(["snapshot_download (huggingface_hub/_snapshot_download.py:420)"] if pulls else []),
            "main (fetch.py:12)",
        ],
        threads=[fetches, thread(name="hf-xet-0", syscall="epoll_wait(0x9, 0x7f, 0x400, 0xffffffff)", fds=(61, 62))],
        files=[socket(f"10.0.0.2:4410{n}", "18.164.174.118:443", fd=60 + n) for n in ((1, 2) if pulls else ())],
        ppid=1,
        memory=2 * GB,
    )
    still = folder("download", "/models/.cache/huggingface/download", files=3, bytes_=2 * GB)
    return bundle(main, phase=Phase.WEIGHTS, engine="generic", folders=[still] if pulls else [], quiet_s=1500)


def soft_lock(*, left: bool) -> Bundle:
    where = "/model_dir/.cache/huggingface/.gitignore.lock"
    waits = thread(
        [
            "acquire (filelock/_api.py:344)",
            "WeakFileLock (huggingface_hub/utils/_fixes.py:95)",
            "_create_cache_dir (huggingface_hub/_local_folder.py:210)",
            "_worker (concurrent/futures/thread.py:83)",
        ],
        name="ThreadPoolExecutor-1_0",
        syscall="clock_nanosleep(0x0, 0x0)",
    )
    said = f"FileSystem does not appear to support flock. Falling back to SoftFileLock for {where}"
    main = process(
        FRONT,
        "python",
        stack=["wait (threading.py:320)", "snapshot_download (huggingface_hub/_snapshot_download.py:290)"],
        threads=[waits],
        ppid=1,
    )
    found = Lock(kind="file", path=where, holder=0, waiters=(FRONT,), age_s=5400, filesystem="fuse.gcsfuse")
    log = [line(said, level="WARNING")] if left else []
    return bundle(main, phase=Phase.WEIGHTS, engine="generic", locks=[found] if left else [], log=log)


def studio(*, proxied: bool) -> Bundle:
    parent = process(
        FRONT,
        "unsloth",
        stack=[
            "read (httpcore/_backends/sync.py:128)",
            "get (httpx/_api.py:195)",
            "_wait_for_health (studio/backend/core/inference/llama_cpp.py:5313)",
        ],
        syscall="recvfrom(0xd, 0x7f3a10, 0x10000)",
        fds=(13,),
        files=[socket("10.0.0.2:51020", "10.8.0.1:8888" if proxied else "127.0.0.1:8090", fd=13)],
        role=Role.FRONT,
        ppid=1,
    )
    server = process(
        4100, "llama-server", role=Role.WORKER, syscall="poll(0x7f, 0x1, 0xffffffff)", ppid=FRONT,
        files=[socket("127.0.0.1:8090", state="LISTEN", fd=5)],
    )  # fmt: skip
    variables = {"HTTP_PROXY": "http://10.8.0.1:8888"} if proxied else {}
    return bundle(
        parent, server, engine="generic", phase=Phase.HTTP_BIND, environment=variables,
        options={"host": "127.0.0.1", "port": "8090"}, listeners=[Listener(host="127.0.0.1", port=8090, pid=4100)],
        log=["main: server is listening on http://127.0.0.1:8090", "srv  update_slots: all slots are idle"],
    )  # fmt: skip


def loopback(*, refused: bool) -> Bundle:
    stack = (
        "new_group (torch/distributed/distributed_c10d.py:5071)",
        "__init__ (vllm/distributed/parallel_state.py:240)",
        "init_world_group (vllm/distributed/parallel_state.py:1060)",
        WORKER_MAIN,
    )
    said = (
        "[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback "
        "address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME."
    )
    nics = (
        interface("lo", "127.0.0.1", kind="loopback"),
        interface("ens32", "10.0.14.9"),
        interface("docker0", "172.17.0.1", kind="bridge"),
    )
    peer = "127.0.0.1:14215" if refused else "10.0.14.8:14215"
    state = "SYN_SENT" if refused else "ESTABLISHED"
    return vllm(
        workers(2, stack, syscall="epoll_wait(0x9)", files=[socket("127.0.0.1:39000", peer, state=state, fd=44)]),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        node=1,
        host=host(interfaces=nics, container="kubernetes"),
        log=[line(said, source="Worker_TP0", number=0, level="WARNING", ago_s=200)] if refused else [],
    )
