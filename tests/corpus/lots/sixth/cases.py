"""Reports whose cases were written before anybody looked at how their causes are found: the sixth ones, most of which
hold little, in surroundings that invite a guess."""

from msgspec.structs import replace
from tests.corpus.case import Case, FirstRun
from tests.corpus.surroundings import (
    IN_COMM_INIT,
    SYNCS,
    WORKER_MAIN,
    nccl_line,
    pcie_gpus,
    spinning,
    using_nccl,
    vllm,
    worker,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    NO_PTRACE,
    bundle,
    compiler,
    ended,
    engine,
    front,
    gpus,
    helper,
    host,
    interface,
    line,
    ordinary_facts,
    process,
    socket,
)

NO_SYSFS = Gap(what="PCI topology", reason=GapReason.NO_PERMISSION, detail="/sys is not mounted")
UNKNOWN_WAY = Topology(iommu=NO_SYSFS, acs=NO_SYSFS, bar1_bytes=48 * GB)
NICS = (interface("lo", "127.0.0.1", kind="loopback"), interface("eno3", "169.229.48.108"))
REDUCES = (
    "synchronize (torch/cuda/streams.py:95)",
    "all_reduce (vllm/distributed/device_communicators/pynccl.py:120)",
    "__init__ (vllm/distributed/device_communicators/pynccl.py:90)",
    WORKER_MAIN,
)


def _probed(*, killed: bool, serving: bool) -> Bundle:
    main = front(facts=ordinary_facts(libraries=()))
    log = [line('10.1.0.1 - "GET /health HTTP/1.1" 404 Not Found', ago_s=22 - 10 * n) for n in range(3)]
    return bundle(
        [] if killed else [main],
        helper(),
        phase=Phase.SERVING if serving else Phase.WEIGHTS,
        motion=Motion.MOVING,
        host=host(container="kubernetes"),
        exits=[ended(main, signal=15, ago_s=2)] if killed else [],
        log=log if killed and serving else [],
        quiet_s=3,
    )


def _mesh(*, blocked: bool) -> Bundle:
    stack = (
        "_new_process_group_helper (torch/distributed/distributed_c10d.py:1950)",
        "init_process_group (torch/distributed/distributed_c10d.py:1760)",
        "main (train.py:40)",
    )
    knocks = [socket("10.7.0.6:50994", "10.7.0.5:40231", state="SYN_SENT", fd=21)] if blocked else []
    store = socket("10.7.0.6:50990", "10.7.0.5:29500", fd=20)
    main = process(
        FRONT, "python", stack=stack, syscall="epoll_wait(0x9)", files=[store, *knocks],
        native=["epoll_wait (libc.so.6)", "gloo::transport::tcp::Loop::run() (libtorch_cpu.so)"], ppid=1,
    )  # fmt: skip
    return bundle(
        main, engine="generic", phase=Phase.RENDEZVOUS, nodes=2, node=1,
        environment={"MASTER_ADDR": "10.7.0.5", "MASTER_PORT": "29500"},
    )  # fmt: skip


def _killed_engine(*, killed: bool) -> Bundle:
    return bundle(
        front(stack=["select (selectors.py:468)", "run_forever (asyncio/base_events.py:608)"]),
        [] if killed else engine(),
        phase=Phase.SERVING,
        exits=[ended(engine(), signal=9, ago_s=300)] if killed else [],
        question="no token within 60 s",
    )


WEDGED = tuple(
    replace(card, utilisation=100.0, power_w=120.0, memory_activity=0.0, processes=())
    for card in pcie_gpus(2, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", power_limit_w=600.0)
)

FIRST_RUN = FirstRun(established=3, supported=0, missed=1, undecided=8)

CASES = (
    Case(
        id="sregym-61",
        url="https://github.com/SREGym/SREGym/issues/61",
        cause="probe_kill",
        shows="asked to end from outside while it moved, in Kubernetes",
        bundle=_probed(killed=True, serving=False),
        twin=_probed(killed=False, serving=False),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="llmdsim-45",
        url="https://github.com/llm-d/llm-d-inference-sim/issues/45",
        cause="probe_kill",
        shows="a server that served was asked to end, and its health check had been answered with 404",
        bundle=_probed(killed=True, serving=True),
        twin=_probed(killed=False, serving=True),
        companions=frozenset({"process_died"}),
    ),
    Case(
        id="pytorch-74316",
        url="https://github.com/pytorch/pytorch/issues/74316",
        cause="rendezvous_unreachable",
        shows="the store was reached, and a connection of the group to another port of that node is not answered",
        bundle=_mesh(blocked=True),
        twin=_mesh(blocked=False),
    ),
    Case(
        id="vllm-21728",
        url="https://github.com/vllm-project/vllm/pull/21728",
        cause="process_died",
        shows="the engine was killed, the front answers its health check",
        bundle=_killed_engine(killed=True),
        twin=_killed_engine(killed=False),
    ),
    Case(
        id="rtx6kpro-15",
        url="https://github.com/local-inference-lab/rtx6kpro/issues/15",
        cause="unknown",
        lacks="a functional test of peer copies, and a reset of the GPUs before it",
        bundle=vllm(
            workers(2, ("set_device (torch/cuda/__init__.py:420)", WORKER_MAIN), native=["?? (libcuda.so.1)"]),
            phase=Phase.SPAWN,
            gpus=WEDGED,
        ),
    ),
    Case(
        id="vllm-9920",
        url="https://github.com/vllm-project/vllm/issues/9920",
        cause="unknown",
        lacks="stacks, and the way between the GPUs",
        bundle=vllm(
            workers(2, NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0),
            phase=Phase.WARMUP,
            gpus=pcie_gpus(2, "NVIDIA RTX 6000 Ada Generation", architecture="89"),
            host=host(topology=UNKNOWN_WAY),
            log=[nccl_line("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")],
        ),
    ),
    Case(
        id="vllm-6370",
        url="https://github.com/vllm-project/vllm/issues/6370",
        cause="unknown",
        lacks="whether the GPUs spin, and the way between them",
        bundle=vllm(
            workers(2, REDUCES, native=SYNCS, state="R", cpu=1.0),
            phase=Phase.COMM_INIT,
            gpus=Gap(what="GPUs", reason=GapReason.NOT_INSTALLED, detail="nvidia-ml-py"),
            host=host(
                topology=UNKNOWN_WAY,
                interfaces=(
                    *NICS,
                    interface("lxcbr0", "10.0.3.1", kind="bridge"),
                    interface("tailscale0", "100.72.221.35", kind="tunnel"),
                ),
            ),
            log=[
                nccl_line(
                    "NET/Socket : Using [0]eno3:169.229.48.108<0> [1]lxcbr0:10.0.3.1<0> [2]tailscale0:100.72.221.35"
                ),
                nccl_line("Channel 03/0 : 1[1] -> 0[0] via P2P/CUMEM"),
            ],
        ),
    ),
    Case(
        id="nccl-719",
        url="https://github.com/NVIDIA/nccl/issues/719",
        cause="unknown",
        lacks="NCCL's log, and which of the three cards reach each other",
        bundle=vllm(
            worker(
                0,
                IN_COMM_INIT,
                native=["poll (libc.so.6)", "ncclSocketRecv (libnccl.so.2)", "bootstrapAllGather (libnccl.so.2)"],
            ),
            phase=Phase.COMM_INIT,
            nodes=2,
            gpus=gpus(1),
        ),
    ),
    Case(
        id="vllm-51533",
        url="https://github.com/vllm-project/vllm/issues/51533",
        cause="unknown",
        lacks="any stack of the workers that compute",
        bundle=vllm(
            workers(4, NO_PTRACE, native=NO_PTRACE, state="R", cpu=1.0),
            phase=Phase.COMM_INIT,
            gpus=gpus(4),
            environment={"NCCL_P2P_DISABLE": "1"},
            log=[using_nccl()],
        ),
    ),
    Case(
        id="vllm-19045",
        url="https://github.com/vllm-project/vllm/issues/19045",
        cause="unknown",
        lacks="the other node, and NCCL's log",
        bundle=vllm(
            worker(0, IN_COMM_INIT, cpu=0.01, files=[socket("10.68.4.20:38111", state="LISTEN", fd=51)]),
            phase=Phase.COMM_INIT,
            nodes=2,
            gpus=gpus(1, name="NVIDIA GeForce RTX 3090", architecture="86", fabric="not supported"),
            host=host(
                interfaces=(
                    NICS[0],
                    interface("ens5f0", "10.68.4.20"),
                    interface("flannel.1", "10.244.0.0", kind="tunnel"),
                )
            ),
        ),
    ),
    Case(
        id="neurvps-1",
        url="https://github.com/zhou13/neurvps/issues/1",
        cause="unknown",
        lacks="what the compiler does, between two looks",
        bundle=bundle(
            process(
                FRONT,
                "python",
                stack=["communicate (subprocess.py:1130)", "_run_ninja_build (torch/utils/cpp_extension.py:1360)"],
                syscall="poll(0x7f, 0x2)",
                ppid=1,
            ),
            compiler("ninja", state="S", cpu=0.0, ppid=FRONT),
            engine="generic",
            phase=Phase.IMPORT,
        ),
    ),
    Case(
        id="openpipeart-395",
        url="https://github.com/OpenPipe/ART/issues/395",
        cause="unknown",
        lacks="stacks of the trainer and of its compile workers",
        bundle=bundle(
            process(FRONT, "python", stack=NO_PTRACE, syscall=NO_PTRACE, memory=18 * GB, cpu=1.1, state="R", ppid=1),
            process(4900, "python", stack=NO_PTRACE, syscall=NO_PTRACE, role=Role.COMPILER, ppid=FRONT),
            engine="generic",
            phase=Phase.COMPILE,
            gpus=spinning(gpus(1), 90, memory=5.0),
        ),
    ),
)
