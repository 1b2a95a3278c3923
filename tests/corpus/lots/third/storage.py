"""Machines of the third lot: weights that come slowly."""

from msgspec.structs import replace
from tests.corpus.surroundings import (
    WORKER_MAIN,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    Moves,
    bundle,
    file,
    gpus,
    host,
    place,
    process,
    socket,
)


def over_rpc(*, sends: bool) -> Bundle:
    link = socket("192.168.100.100:40112", "192.168.100.101:50052", fd=19, unsent=240_000 if sends else 0)
    server = process(
        FRONT,
        "llama-server",
        native=[
            "send (libc.so.6)",
            "send_rpc_cmd(socket_t, rpc_cmd) (libggml-rpc.so)",
            "llama_model_load (libllama.so)",
        ]
        if sends
        else (),
        syscall="sendto(0x13, 0x7f, 0x100000)" if sends else "futex(0x7f)",
        fds=(19,) if sends else (),
        files=[link] if sends else [],
        moves=Moves(read_bytes=130 << 20) if sends else Moves(),
        cpu=0.05 * sends,
        role=Role.FRONT,
        ppid=1,
    )
    made = bundle(server, engine="generic", phase=Phase.WEIGHTS, motion=Motion.SLOW, log=["load_tensors: loading"])
    if not sends:
        return made
    looks = []
    for look, sent in zip(made.looks, (8 << 30, (8 << 30) + (130 << 20)), strict=True):
        one = look.processes[0]
        grown = replace(link, socket=replace(link.socket, sent_bytes=sent, received_bytes=9000))
        looks.append(replace(look, processes=(replace(one, files=(grown,)), *look.processes[1:])))
    return replace(made, looks=tuple(looks))


def gpfs(*, slow: bool) -> Bundle:
    path = "/models/preset/llama4/model-00017-of-00084.safetensors"
    stack = (
        "get_tensor (safetensors/__init__.py:30)",
        "safetensors_weights_iterator (vllm/model_executor/model_loader/weight_utils.py:560)",
        "load_weights (vllm/model_executor/models/mllama4.py:800)",
        WORKER_MAIN,
    )
    kind = "gpfs" if slow else "xfs"
    stands = {
        "state": "D",
        "kernel": ("cxiWaitEventWait", "gpfs_i_fault", "filemap_fault"),
        "syscall": "none: it blocks outside of any system call",
        "moves": Moves(faults=400, memory_bytes=20 << 20),
        "files": [file(path, fd=-2, size=5 * GB, filesystem=kind)],
    }
    return vllm(
        workers(8, stack if slow else stack[3:], **(stands if slow else {})),
        phase=Phase.WEIGHTS,
        host=host(
            container="kubernetes",
            places=(place("weights", "/models/preset/llama4", filesystem=kind, slow=slow, needed_bytes=400 * GB),),
        ),
        gpus=gpus(8),
        motion=Motion.SLOW,
    )
