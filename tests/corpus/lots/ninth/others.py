"""Machines of the ninth lot: starts of other servers and launchers than SGLang and vLLM."""

from collections.abc import Sequence

from tests.corpus.lots.ninth.machines import DIES, at, begun, dead, fallen, started

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.look import Listener
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.testing.bundles import FRONT, GB, PACKAGES, Made, ended, gpus, helper, host, ordinary_facts, process

BARE = ordinary_facts(libraries=())
TGI = "text-generation-launcher --model-id /data/llm --port 80"


def tgi(message: str, level: str = "INFO", who: str = "") -> str:
    return f"2026-11-28T09:14:07.120331Z {level:>5} {who}text_generation_launcher: {message}"


def _shards(count: int) -> list[Made]:
    return [
        process(4100 + number, "text-generation-server", rank=number, role=Role.WORKER, label=f"shard {number}")
        for number in range(count)
    ]


def _gone(command: str, name: str, phase: Phase, log: Sequence[str], *, code: int = 1, **more: object) -> Bundle:
    """A server whose main process has ended, and all that it had started with it."""
    main = process(FRONT, name, ppid=1, role=Role.FRONT)
    gone = [ended(one, ago_s=4) for one in more.pop("with_it", ())]  # type: ignore[attr-defined]
    told = {"exits": [*gone, ended(main, code=code, ago_s=2)], **DIES, **more}
    return started(command, helper(ppid=1), phase=phase, log=log, **told)  # type: ignore[arg-type]


def bus_error(*, small: bool) -> Bundle:
    log = [
        tgi("Sharding model on 4 processes"),
        *(tgi(f"Starting shard rank={number}", who="shard-manager: ") for number in range(4)),
        tgi("Waiting for shard to be ready... rank=2", who="shard-manager: "),
        tgi("Shard complete standard error output:", "ERROR", "shard-manager: "),
        tgi("Shard process was signaled to shutdown with signal 7 rank=2", "ERROR", "shard-manager: "),
        tgi("Shard 2 failed to start", "ERROR"),
        tgi("Shutting down shards"),
        "Error: ShardCannotStart",
    ]
    memory = {"shm_bytes": 64 << 20, "shm_used_bytes": 57 << 20} if small else {"shm_bytes": 440 * GB}
    cards = gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80")
    return _gone(
        f"{TGI} --quantize awq --num-shard 4", "text-generation-launcher", Phase.COMM_INIT, log, with_it=_shards(4),
        gpus=cards, host=host(container="docker", **memory),
    )  # fmt: skip


def old_driver(*, told: bool) -> Bundle:
    error = "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."
    log = [
        tgi("Starting shard rank=0", who="shard-manager: "),
        tgi("Error when initializing model", "ERROR", "shard-manager: "),
        "Traceback (most recent call last):",
        '  File "/opt/conda/bin/text-generation-server", line 8, in <module>',
        '  File "/opt/conda/lib/python3.9/site-packages/text_generation_server/server.py", line 159, in serve_inner',
        *([error] if told else []),
        tgi("Shard 0 failed to start", "ERROR"),
        "Error: ShardCannotStart",
    ]
    made = host(driver="450.80.02", cuda="11.0", container="docker") if told else host(container="docker")
    return _gone(
        f"{TGI} --num-shard 1", "text-generation-launcher", Phase.MODEL_INIT, log, with_it=_shards(1), host=made,
        gpus=gpus(1, name="Tesla V100-SXM2-32GB", architecture="70", memory_total_bytes=32 * GB),
    )  # fmt: skip


def no_etcd(*, told: bool) -> Bundle:
    error = (
        "Failed to connect to etcd server with config ClientOptions { etcd_url: "
        '["http://localhost:2379"], etcd_connect_options: None, attach_lease: true }'
    )
    refused = '"tcp connect error: Connection refused (os error 111)"'
    log = [
        "2026-11-28T09:14:07.120Z  INFO dynamo_run: CPU mode. Rebuild with `--features cuda|metal|vulkan`",
        f"2026-11-28T09:14:09.004Z ERROR dynamo_runtime::worker: Application shutdown with error: {error}",
        "Caused by:",
        "    0: creating primary lease",
        f"    1: grpc request error: status: Unavailable, message: {refused}, details: [], metadata: MetadataMap",
    ]
    seen = log if told else log[:1]
    return _gone("dynamo run out=vllm /models/llm", "dynamo run", Phase.RENDEZVOUS, seen, listeners=())


def nats_name(*, unknown: bool) -> Bundle:
    name = "dynamo-platform-nats.dynamo-system.svc.cluster.local"
    again, verify = "Temporary failure in name resolution", "Verify NATS server is running and accessible."
    refused = Gap(what=f"addresses of {name}", reason=GapReason.FAILED, detail=again)
    found = Resolved(name=name, addresses=refused if unknown else ("10.100.44.7",))
    log = [
        "Traceback (most recent call last):",
        f'  File "{PACKAGES}dynamo/frontend/main.py", line 210, in async_main',
        "    runtime = DistributedRuntime(loop, False)",
        f"Exception: Failed to connect to NATS: DNS error: failed to lookup address information: {again}. {verify}",
    ]
    return _gone(
        "python3 -m dynamo.frontend --http-port 8000", "python3 -m dynamo.frontend", Phase.RENDEZVOUS,
        log if unknown else log[:-1], environment={"NATS_SERVER": f"nats://{name}:4222"},
        host=host(container="kubernetes", resolved=(found,)),
    )  # fmt: skip


def second_script(*, taken: bool) -> Bundle:
    log = [
        "Traceback (most recent call last):",
        f'  File "{PACKAGES}torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 55',
        "    self._store = TCPStore(  # type: ignore[call-arg]",
        *(["RuntimeError: Address already in use"] if taken else []),
    ]
    other = Listener(host="0.0.0.0", port=29500, pid=3107)
    return _gone(
        "accelerate launch --num_processes 2 train.py", "accelerate launch", Phase.RENDEZVOUS, log,
        listeners=(other,) if taken else (), gpus=gpus(2),
    )  # fmt: skip


def foreign_bind(*, told: bool) -> Bundle:
    log = [
        *begun(0),
        at("TP8", "Init torch distributed begin."),
        "Traceback (most recent call last):",
        '  File "/srv/app/serve.py", line 31, in <module>',
        f'  File "{PACKAGES}sglang/srt/entrypoints/engine.py", line 160, in __init__',
        f'  File "{PACKAGES}sglang/srt/utils/common.py", line 1320, in get_zmq_socket',
        "    socket.bind(endpoint)",
        *(["zmq.error.ZMQError: Cannot assign requested address (addr='tcp://10.0.0.1:31207')"] if told else []),
    ]
    return dead(
        "python /srv/app/serve.py --nnodes 2 --node-rank 1 --tp 16", 0, Phase.SPAWN, log, exits=fallen(code=1),
        gpus=gpus(8), environment={"SGLANG_BLOCK_NONZERO_RANK_CHILDREN": "0"},
    )  # fmt: skip


def old_ptxas(*, told: bool) -> Bundle:
    worker = process(4100, "ray::SGLangWorker", rank=0, role=Role.WORKER)
    who = "(SGLangWorker pid=4100)"
    why = [
        f"{who} RuntimeError: Internal Triton PTX codegen error: ",
        f"{who} ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
    ]
    log = [
        "INFO worker.py:1918 -- Started a local Ray instance.",
        f"{who} [2026-11-28 09:14:07 TP0] Load weight end. type=Qwen2ForCausalLM, avail mem=18.20 GB",
        f"{who} [2026-11-28 09:14:09 TP0] Capture cuda graph begin. This can take up to several minutes.",
        f"{who} [2026-11-28 09:14:31 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        *(why if told else []),
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ]
    card = gpus(
        1, name="NVIDIA GeForce RTX 5090", architecture="120", memory_total_bytes=32 * GB, fabric="not supported"
    )
    return dead(
        "python train_embodied.py --config-name maniskill_ppo", 0, Phase.GRAPH_CAPTURE, log,
        exits=fallen(worker, code=1), gpus=card,
    )  # fmt: skip
