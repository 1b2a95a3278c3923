"""Reports about the hub, proxies, meeting places, addresses."""

from collections.abc import Iterable

from tests.corpus.case import Case
from tests.corpus.surroundings import WORKER_MAIN, scheduler, sglang, vllm, worker, workers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.log import LogLine
from firstlight.core.look import Listener, Lock, OpenFile
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    engine,
    file,
    front,
    helper,
    host,
    interface,
    line,
    process,
    rank,
    socket,
)

ASKS_HUB = (
    "read (ssl.py:1166)",
    "_receive_event (httpcore/_sync/http11.py:210)",
    "get_hf_file_metadata (huggingface_hub/file_download.py:1470)",
    "cached_file (transformers/utils/hub.py:310)",
)
MEETS = (
    "_create_c10d_store (torch/distributed/rendezvous.py:190)",
    "init_process_group (torch/distributed/distributed_c10d.py:1760)",
    "init_distributed_environment (vllm/distributed/parallel_state.py:1300)",
    WORKER_MAIN,
)
HUB_LOCK = "/data/hub/.locks/models--org--big-model/8f1d0c3b.lock"
SERVED = (
    "_sslobj_read (http/client.py:280)",
    "request (requests/sessions.py:590)",
    "_execute_server_warmup (sglang/srt/entrypoints/http_server.py:1600)",
)


def _asks(
    *, state: str, alone: bool = True, stack: Iterable[str] = (), files: Iterable[OpenFile] = (), **more: object
) -> Bundle:
    """A server of one process that has one connection to a web port."""
    web = socket("10.0.0.2:41822", "18.155.173.9:443", state=state, fd=9)
    return bundle(
        process(
            FRONT,
            "python",
            stack=tuple(stack),
            syscall="poll(0x7f3a10, 0x1, 0x2710)",
            fds=(9,) if alone else (),
            files=[web, *files],
            ppid=1,
            memory=300 << 20,
        ),
        helper(),
        engine="generic",
        phase=Phase.CONFIG,
        **more,
    )


def _offline(*, asks: bool) -> Bundle:
    web = [socket("10.0.0.2:41822", "18.155.173.9:443", state="SYN_SENT", fd=9)] if asks else []
    stack = (
        [*ASKS_HUB, "create_model_config (vllm/engine/arg_utils.py:1300)"]
        if asks
        else ["create_model_config (vllm/engine/arg_utils.py:1300)"]
    )
    return bundle(
        front(stack=stack, syscall="poll(0x7f3a10, 0x1, 0x2710)", files=web),
        phase=Phase.CONFIG,
        environment={"HF_HUB_OFFLINE": "1"},
    )


def _download_lock(*, said: bool, held: bool) -> Bundle:
    log = [line(f"still waiting to acquire lock on {HUB_LOCK} (elapsed: {at}s)", ago_s=200 - at) for at in (10, 20)]
    stack = [
        "acquire (filelock/_api.py:340): time.sleep(poll_interval)",
        "WeakFileLock (huggingface_hub/utils/_fixes.py:90)",
        "_hf_hub_download_to_cache_dir (huggingface_hub/file_download.py:1180)",
    ]
    locks = [Lock(kind="flock", path=HUB_LOCK, holder=777, holder_name="python")] if held else []
    return vllm(
        worker(
            0,
            [*stack, WORKER_MAIN],
            syscall="clock_nanosleep(0x1, 0x0)",
            files=[file(HUB_LOCK, access="rw")] if held else [],
        ),
        phase=Phase.WEIGHTS,
        locks=locks,
        log=log if said else [],
    )


def _foreign_lock(*, said: bool) -> Bundle:
    refused = line(f"PermissionError: [Errno 13] Permission denied: '{HUB_LOCK}'", level="ERROR", ago_s=30)
    return bundle(
        front(stack=["select (selectors.py:468)"]),
        phase=Phase.WEIGHTS,
        log=[refused] if said else ["Resolving the model"],
    )


def _proxied(*, no_proxy: str, answered: str = "", to_proxy: bool = False, told: str = "127.0.0.1") -> Bundle:
    proxy = [socket("10.0.0.2:50110", "10.9.9.9:3128", fd=12)] if to_proxy else []
    main = front(
        stack=SERVED,
        syscall="recvfrom(0xc, 0x7f3a10, 0x2000)",
        files=[socket(f"{told}:30000", state="LISTEN", fd=7), *proxy],
        label="",
    )
    return bundle(
        main,
        helper(),
        [rank(n, stack=["recv_requests (sglang/srt/managers/scheduler.py:1100)"]) for n in range(2)],
        engine="sglang",
        phase=Phase.WARMUP,
        environment={"http_proxy": "http://10.9.9.9:3128", "no_proxy": no_proxy},
        options={"host": told, "port": "30000"},
        listeners=[Listener(host=told, port=30000, pid=FRONT)],
        log=[line(answered, ago_s=20, level="ERROR")] if answered else [],
    )


def _knocks(
    *, peer: str, state: str, log: Iterable[LogLine] = (), told: dict[str, str] | None = None, nodes: int = 2
) -> Bundle:
    return vllm(
        worker(0, MEETS, syscall="connect(0x20)", files=[socket("10.0.0.2:39310", peer, state=state, fd=32)]),
        phase=Phase.RENDEZVOUS,
        nodes=nodes,
        node=1 if nodes > 1 else 0,
        environment=told or {},
        log=log,
    )


def _unresolved(*, known: bool) -> Bundle:
    gap = Gap(what="addresses of a name", reason=GapReason.FAILED, detail="Name or service not known")
    name = Resolved(name="__internal_head__", addresses=("10.0.0.2",) if known else gap)
    said = "[c10d] The IPv6 network addresses of (__internal_head__, 41255) cannot be retrieved (gai error: -2)"
    return vllm(
        *workers(2, MEETS, syscall="clock_nanosleep(0x1, 0x0)"),
        phase=Phase.RENDEZVOUS,
        host=host(resolved=(name,)),
        log=[line(said, source="Worker_TP0", number=0, level="WARNING", ago_s=60)],
    )


VPN = interface("utun4", "100.80.3.7", kind="tunnel")
LAN = (interface("lo", "127.0.0.1", kind="loopback"), interface("en0", "192.168.1.20"))


def _over_vpn(*, up: bool) -> Bundle:
    bound = "100.80.3.7:54021" if up else "127.0.0.1:54021"
    said = "[c10d] The server socket on [::ffff:100.80.3.7]:54021 has timed out, will retry."
    return vllm(
        worker(0, MEETS, syscall="poll(0x7f3a10, 0x1, 0x3e8)", files=[socket(bound, state="LISTEN", fd=31)]),
        phase=Phase.RENDEZVOUS,
        host=host(interfaces=(*LAN, VPN) if up else LAN),
        options={"host": "127.0.0.1"},
        log=[line(said, source="Worker_TP0", number=0, level="WARNING", ago_s=10)] if up else [],
    )


def _mpi(*, bridge: bool) -> Bundle:
    docker = (interface("docker0", "172.17.0.1", kind="bridge"),) if bridge else ()
    return bundle(
        process(
            FRONT,
            "python",
            stack=["<module> (mpi4py/MPI.py:1)", "<module> (tensorrt_llm/_utils.py:30)"],
            native=[
                "opal_progress (libopen-pal.so.40)",
                "ompi_mpi_init (libmpi.so.40)",
                "PMPI_Init_thread (libmpi.so.40)",
            ],
            syscall="epoll_wait(0x9)",
            ppid=1,
        ),
        engine="generic",
        phase=Phase.IMPORT,
        host=host(interfaces=(*LAN, *docker)),
    )


def _ipv6(*, listens: str) -> Bundle:
    return bundle(
        front(stack=["poll (zmq/sugar/poll.py:106)", "_perform_handshakes (vllm/v1/engine/core.py:900)"]),
        engine(files=[socket(listens, state="LISTEN", fd=40)]),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        options={"data-parallel-address": "fd00:10::5", "data-parallel-rpc-port": "29550"},
        log=[line("vLLM message queue communication handle: Handle(remote_addr_ipv6=False)", source="EngineCore")],
    )


TIMED_OUT = "[c10d] The client socket has timed out after 1800s while trying to connect to (172.18.0.3, 43019)."
REFUSED_403 = 'http://10.9.9.9:3128 "GET http://0.0.0.0:30000/get_model_info HTTP/1.1" 403'
REFUSED_502 = "Initialization failed. warmup error: AssertionError: res=<Response [502]>"

CASES = (
    Case(
        id="rapidmlx-1865",
        url="https://github.com/raullenchai/Rapid-MLX/issues/1865",
        cause="hub_network",
        shows="the main thread waits for one connection to port 443 that is not answered; no weights are open",
        bundle=_asks(state="SYN_SENT"),
        twin=_asks(state="ESTABLISHED", alone=False),
    ),
    Case(
        id="hfhub-1893",
        url="https://github.com/huggingface/huggingface_hub/issues/1893",
        cause="hub_network",
        shows="the main thread waits in the hub's code for the answer to a question about a file it has",
        bundle=_asks(state="ESTABLISHED", stack=ASKS_HUB),
        twin=_asks(state="ESTABLISHED", alone=False, stack=["load (app/model.py:20)"]),
    ),
    Case(
        id="vllm-22492",
        url="https://github.com/vllm-project/vllm/issues/22492",
        cause="hub_network",
        shows="a connection to the hub is not answered, from the hub's code, although it was told not to ask",
        bundle=_offline(asks=True),
        twin=_offline(asks=False),
    ),
    Case(
        id="hfhub-2543",
        url="https://github.com/huggingface/huggingface_hub/issues/2543",
        cause="download_lock",
        shows="a rank stands where the hub's lock is taken, and another process holds that lock",
        bundle=_download_lock(said=True, held=True),
        twin=_download_lock(said=False, held=False),
    ),
    Case(
        id="hfhub-3714",
        url="https://github.com/huggingface/huggingface_hub/pull/3714",
        cause="download_lock",
        shows="the error names a lock of the cache that may not be opened",
        bundle=_foreign_lock(said=True),
        twin=_foreign_lock(said=False),
    ),
    Case(
        id="sglang-7341",
        url="https://github.com/sgl-project/sglang/pull/7341",
        cause="http_proxy",
        shows="a proxy without an exception for loopback, a server that listens, and 502 to its own request",
        bundle=_proxied(no_proxy="", answered=REFUSED_502),
        twin=_proxied(no_proxy="localhost,127.0.0.1", answered=REFUSED_502),
    ),
    Case(
        id="sglang-9155",
        url="https://github.com/sgl-project/sglang/issues/9155",
        cause="http_proxy",
        shows="the server listens and talks to the proxy, which answers its own request with 403",
        bundle=_proxied(no_proxy="", answered=REFUSED_403, to_proxy=True, told="0.0.0.0"),
        twin=_proxied(no_proxy="0.0.0.0,127.0.0.1", told="0.0.0.0"),
    ),
    Case(
        id="sglang-9814",
        url="https://github.com/sgl-project/sglang/issues/9814",
        cause="http_proxy",
        shows="no_proxy names loopback and not 0.0.0.0, which it asks; 502 to its own request",
        bundle=_proxied(no_proxy="localhost,127.0.0.1", answered=REFUSED_502, told="0.0.0.0"),
        twin=_proxied(no_proxy="localhost,127.0.0.1", told="0.0.0.0"),
    ),
    Case(
        id="vllm-3644",
        url="https://github.com/vllm-project/vllm/issues/3644",
        cause="rendezvous_unreachable",
        shows="a connection to the address that the log complains about stays unanswered",
        bundle=_knocks(
            peer="172.18.0.3:43019",
            state="SYN_SENT",
            nodes=1,
            log=[line(TIMED_OUT, source="Worker_TP0", number=0, level="WARNING")],
        ),
        twin=_knocks(
            peer="172.18.0.3:43019",
            state="ESTABLISHED",
            nodes=1,
            log=[line(TIMED_OUT, source="Worker_TP0", number=0, level="WARNING")],
        ),
    ),
    Case(
        id="pytorch-52848",
        url="https://github.com/pytorch/pytorch/issues/52848",
        cause="rendezvous_unreachable",
        shows="the second node's connection to MASTER_ADDR stays unanswered",
        bundle=_knocks(
            peer="203.0.113.7:29500", state="SYN_SENT", told={"MASTER_ADDR": "203.0.113.7", "MASTER_PORT": "29500"}
        ),
        twin=_knocks(
            peer="203.0.113.7:29500", state="ESTABLISHED", told={"MASTER_ADDR": "203.0.113.7", "MASTER_PORT": "29500"}
        ),
    ),
    Case(
        id="vllm-570",
        url="https://github.com/vllm-project/vllm/issues/570",
        cause="unresolvable_host",
        shows="the name that the log complains about does not resolve",
        bundle=_unresolved(known=False),
        twin=_unresolved(known=True),
    ),
    Case(
        id="vllm-metal-625",
        url="https://github.com/vllm-project/vllm-metal/issues/625",
        cause="wrong_interface",
        shows="the socket at which the ranks should meet is bound to a VPN's address, and times out",
        bundle=_over_vpn(up=True),
        twin=_over_vpn(up=False),
    ),
    Case(
        id="tensorrt-4501",
        url="https://github.com/NVIDIA/TensorRT/issues/4501",
        cause="wrong_interface",
        shows="MPI starts amid a bridge that leads nowhere, and was not told which interface to take",
        bundle=_mpi(bridge=True),
        twin=_mpi(bridge=False),
    ),
    Case(
        id="miai-3",
        url="https://github.com/MiaAI-Lab/Qwen3.8-Flash-Next-Dual-DGX-Sparks/issues/3",
        cause="wrong_interface",
        lacks="NCCL's log of both nodes, and a test of the link without the engine",
        bundle=sglang(
            scheduler(
                1, ["init_torch_distributed (sglang/srt/model_executor/model_runner.py:700)"], wchan="futex_do_wait"
            ),
            phase=Phase.COMM_INIT,
            nodes=2,
            node=1,
            options={"tp": "2", "nnodes": "2", "dist-init-addr": "10.0.0.1:20000"},
            log=[
                line(
                    "CustomAllreduce is disabled because this process group spans across nodes.",
                    source="TP1",
                    number=1,
                    level="WARNING",
                )
            ],
        ),
    ),
    Case(
        id="vllm-18986",
        url="https://github.com/vllm-project/vllm/issues/18986",
        cause="ipv6",
        shows="the head's address is IPv6, and its port listens to IPv4 only",
        bundle=_ipv6(listens="0.0.0.0:29550"),
        twin=_ipv6(listens=":::29550"),
    ),
)
