"""Machines of the eleventh lot that look for another machine, and do not find it."""

from tests.corpus.lots.eleventh.machines import gb10, spark
from tests.corpus.starts import (
    BARE,
    CORE_MAIN,
    NO_NATIVE,
    SCHEDULER_MAIN,
    SGLANG,
    UNSEEN,
    at,
    begun,
    detokenizer,
    launcher,
    listens,
    loaded,
    raylet,
    started,
)
from tests.corpus.surroundings import idle_threads, scheduler, schedulers

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    front,
    gpus,
    helper,
    host,
    interface,
    process,
    rank,
    socket,
    thread,
)

STORE = (
    "_create_c10d_store (torch/distributed/rendezvous.py:198)",
    "_tcp_rendezvous_handler (torch/distributed/rendezvous.py:226)",
    "init_process_group (torch/distributed/distributed_c10d.py:1714)",
)


def loopback_ray(*, seen: bool) -> Bundle:
    """The driver's machine of four: every data-parallel worker was told to meet at 127.0.0.1, the remote ones too."""
    native = ("poll (libc.so.6)", "c10d::TCPStore::waitForWorkers (libtorch_cpu.so)", ("c10d::TCPStore::TCPStore "
              "(libtorch_cpu.so)"))  # fmt: skip
    stack = (
        *STORE,
        "init_device (vllm/v1/worker/gpu_worker.py:250)",
        "execute_method (vllm/executor/ray_utils.py:60)",
    )
    ranks = [
        rank(n, name="ray::RayWorkerWrapper", label=f"rank {n}", ppid=4061, stack=stack, native=native, memory=2 * GB,
             threads=idle_threads(), files=[socket("127.0.0.1:51322", "127.0.0.1:43211", fd=61, peers=(4100,))])
        if seen
        else rank(n, name="ray::RayWorkerWrapper", label=f"rank {n}", ppid=4061, memory=2 * GB, **UNSEEN)
        for n in range(2)
    ]  # fmt: skip
    waits = ("get (ray/_private/worker.py:2870)", "_run_workers (vllm/v1/executor/ray_executor.py:510)", *CORE_MAIN)
    cores = [
        process(4050 + n, f"VLLM::EngineCore_DP{n}", role=Role.ENGINE, label=f"EngineCore_DP{n}", facts=BARE,
                stack=waits)
        for n in range(4)
    ]  # fmt: skip
    meets = "rank={r} local_rank={r} distributed_init_method=tcp://127.0.0.1:43211 backend=nccl"
    log = [
        *begun("/models/moe", "0.22.0"),
        *(f"(RayWorkerWrapper pid={4100 + r}) INFO 06-08 10:02:11 [parallel_state.py:1400] world_size=8 "
          f"{meets.format(r=r)}" for r in range(2) if seen),
        *(f"(RayWorkerWrapper pid=88{r}1, ip=192.168.10.220) INFO 06-08 10:02:13 [parallel_state.py:1400] "
          f"world_size=8 {meets.format(r=r)}" for r in range(2) if seen),
    ]  # fmt: skip
    return started(
        "vllm serve /models/moe --data-parallel-size 4 --tensor-parallel-size 2 --enable-expert-parallel "
        "--distributed-executor-backend ray",
        front(), cores, helper(), raylet(), ranks, log=log, phase=Phase.RENDEZVOUS, quiet_s=420,
        environment={"VLLM_HOST_IP": "192.168.10.219", "NCCL_SOCKET_IFNAME": "ib0"},
        gpus=gpus(2, name="NVIDIA L40S", architecture="89", memory_total_bytes=45 * GB),
        host=host(interfaces=(interface("lo", "127.0.0.1", kind="loopback"), interface("eno1", "192.168.10.219"),
                              interface("ib0", "10.10.0.19", kind="infiniband"))),
    )  # fmt: skip


def nameless(*, seen: bool) -> Bundle:
    """The second pod of a StatefulSet without a service: nobody knows the name of the first."""
    native = ("clock_nanosleep (libc.so.6)", "c10d::detail::SocketConnectOp::run (libtorch_cpu.so)",
              "c10d::TCPStore::TCPStore (libtorch_cpu.so)")  # fmt: skip
    stack = (*STORE, "init_torch_distributed (sglang/srt/model_executor/model_runner.py:420)", SCHEDULER_MAIN)
    ranks = [
        scheduler(n, stack, native=native, syscall="clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)", memory=2 * GB,
                  label=f"TP{8 + n}", rank=8 + n)
        if seen
        else scheduler(n, memory=2 * GB, label=f"TP{8 + n}", **{**UNSEEN, "rank": 8 + n})
        for n in range(8)
    ]  # fmt: skip
    text = "[c10d] The IPv6 network addresses of (llm-master-pod, 5000) cannot be retrieved (gai error: -2 - Name or"
    gap = Gap(what="addresses of llm-master-pod", reason=GapReason.FAILED, detail="Name or service not known")
    return started(
        f"{SGLANG} --tp 16 --nnodes 2 --node-rank 1 --dist-init-addr llm-master-pod:5000", launcher(), helper(),
        ranks,
        log=[*(at(f"TP{8 + n}", "Init torch distributed begin.") for n in range(8)),
             *[f"[W419 13:33:23.312352618 socket.cpp:752] {text} service not known)."] * (12 if seen else 0)],
        phase=Phase.RENDEZVOUS, quiet_s=40 if seen else 600, gpus=gpus(8), version="0.4.5",
        host=host(container="kubernetes", resolved=(Resolved(name="llm-master-pod", addresses=gap),) if seen else (),
                  interfaces=(interface("lo", "127.0.0.1", kind="loopback"),
                              interface("eth0", "10.244.3.17", kind="virtual"))),
    )  # fmt: skip


def second_box(*, seen: bool) -> Bundle:
    """Xinference on two machines: the second's shard looks for the first at its own loopback."""
    stack = (
        *STORE,
        "init_device (vllm/v1/worker/gpu_worker.py:250)",
        "init_worker (xinference/model/llm/vllm/dist.py:90)",
    )
    told = {"stack": stack, "native": NO_NATIVE, "syscall": "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"}
    one = rank(1, name="xinference-shard", label="rank 1", ppid=FRONT, memory=2 * GB, threads=idle_threads(),
               **(told if seen else UNSEEN))  # fmt: skip
    main = process(FRONT, "xinference-worker", ppid=1, role=Role.FRONT, facts=BARE,
                   stack=("run_forever (asyncio/base_events.py:608)",),
                   syscall="epoll_wait(0x9, 0x7f3a10, 0x400)")  # fmt: skip
    refused = "[c10d] The client socket has failed to connect to [localhost]:29501 (errno: 111 - Connection refused)."
    log = [
        "2026-04-17 09:14:07,120 xinference.core.worker 121 INFO     Xinference worker 192.168.100.2:31442 started",
        *([("INFO 04-17 09:15:02 [parallel_state.py:1400] world_size=2 rank=1 local_rank=0 "
           "distributed_init_method=tcp://127.0.0.1:29501 backend=nccl")] if seen else []),
        *[f"[W417 09:15:03.1 socket.cpp:767] {refused}"] * (8 if seen else 0),
    ]  # fmt: skip
    return started(
        "xinference-worker -e http://192.168.100.1:9997 -H 192.168.100.2", main, one, log=log, phase=Phase.RENDEZVOUS,
        quiet_s=30 if seen else 500, ranks=1, nodes=2, node=1, gpus=gb10(2),
        environment={"VLLM_HOST_IP": "192.168.100.2", "GLOO_SOCKET_IFNAME": "enp1s0f1np1"},
        host=spark(container="docker", interfaces=(interface("lo", "127.0.0.1", kind="loopback"),
                                                   interface("enp1s0f1np1", "192.168.100.2"))),
    )  # fmt: skip


def lone_prefill(*, seen: bool) -> Bundle:
    """A prefill server warms itself up with a request that only a decode server could finish."""
    asks = thread(
        ["readinto (socket.py:718)", "getresponse (http/client.py:1428)", "send (requests/adapters.py:667)",
         "_wait_and_warmup (sglang/srt/entrypoints/http_server.py:810)", "run (threading.py:1012)"],
        name="Thread-3 (_wait_and_warmup)", syscall="recvfrom(0x21, 0x7f3e00, 0x2000)", fds=(33,),
    )  # fmt: skip
    turns = ("process_prefill_chunk (sglang/srt/disaggregation/prefill.py:410)",
             "event_loop_overlap_disagg_prefill (sglang/srt/disaggregation/prefill.py:260)",
             SCHEDULER_MAIN)  # fmt: skip
    own = socket("127.0.0.1:47100", "127.0.0.1:30000", fd=33, peers=(FRONT,))
    main = listens() if not seen else process(
        FRONT, "python -m sglang.launch_server", role=Role.FRONT, ppid=1, facts=BARE, threads=[asks], files=[own],
        stack=("run_forever (asyncio/base_events.py:608)", "run (uvicorn/server.py:66)"), memory=GB,
        syscall="epoll_wait(0x9, 0x7f3a10, 0x400, 0x63)",
    )  # fmt: skip
    log = [
        *loaded(4),
        at("", "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"),
        at("", 'INFO:     127.0.0.1:47100 - "GET /get_model_info HTTP/1.1" 200 OK'),
    ]
    ranks = schedulers(4, turns, state="R", cpu=1.0) if seen else [scheduler(n, cpu=1.0, **UNSEEN) for n in range(4)]
    return started(
        f"{SGLANG} --tp 4 --disaggregation-mode prefill --disaggregation-ib-device mlx5_0 --host 0.0.0.0", main,
        detokenizer(), helper(), ranks, log=log, phase=Phase.WARMUP, quiet_s=480, version="0.4.5",
        gpus=gpus(4, memory_used_bytes=67 * GB), question="no token within 60 s",
        listeners=[Listener(host="0.0.0.0", port=30000, pid=FRONT), Listener(host="0.0.0.0", port=8998, pid=FRONT)],
        host=host(devices=("/dev/infiniband",)),
    )  # fmt: skip


def only_six(*, seen: bool) -> Bundle:
    """A machine that has no address of IPv4: the ranks look for each other at 127.0.0.1 all the same."""
    native = ("clock_nanosleep (libc.so.6)", "c10d::detail::SocketConnectOp::run (libtorch_cpu.so)",
              "c10d::TCPStore::TCPStore (libtorch_cpu.so)")  # fmt: skip
    stack = (*STORE, "init_torch_distributed (sglang/srt/model_executor/model_runner.py:640)", SCHEDULER_MAIN)
    told = {"stack": stack, "native": native, "syscall": "clock_nanosleep(0x0, 0x0, 0x7ffd10, 0x0)"}
    ranks = [
        scheduler(n, memory=2 * GB, label=f"DP{n // 2} TP{n % 2}", name=f"sglang::scheduler_DP{n // 2}_TP{n % 2}",
                  **{"stack": (), **(told if seen else UNSEEN)})
        for n in range(4)
    ]  # fmt: skip
    unreachable = (
        "[c10d] The client socket has failed to connect to 127.0.0.1:30281 (errno: 101 - Network is unreachable)."
    )
    four = () if seen else ("127.0.0.1", "10.6.0.4")
    log = [
        at("", "server_args=ServerArgs(model_path='/models/llm', tokenizer_path='/models/llm', port=30000)"),
        *(at(f"DP{n // 2} TP{n % 2}", "Init torch distributed begin.") for n in range(4)),
        *[f"[W920 09:15:03.1 socket.cpp:767] {unreachable}"] * (8 if seen else 0),
    ]
    return started(
        f"{SGLANG} --tp 2 --dp 2 --host ::", launcher(), detokenizer(), helper(), ranks, log=log,
        phase=Phase.RENDEZVOUS, quiet_s=25 if seen else 500, version="0.5.3", gpus=gpus(4),
        host=host(interfaces=(
            interface("lo", *four[:1], "::1", kind="loopback"),
            interface("eth0", *four[1:], "fd00:6:0:4::a"),
        )),
    )  # fmt: skip
