"""Machines of the fourth lot: names, interfaces and the hub."""

from tests.corpus.surroundings import (
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    host,
    interface,
    line,
    process,
    socket,
)

LAN = (interface("lo", "127.0.0.1", kind="loopback"), interface("eth0", "10.41.0.7"))
FALLBACK = line(
    "[W806 ProcessGroupGloo.cpp:524] Warning: Unable to resolve hostname to a (local) address. Using the loopback "
    "address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME.",
    level="WARNING",
    ago_s=500,
)


def model_card(*, asks: bool) -> Bundle:
    stack = [
        "create_connection (urllib3/util/connection.py:73)",
        "send (requests/adapters.py:640)",
        "model_info (huggingface_hub/hf_api.py:2200)",
        "is_on_huggingface (setfit/model_card.py:565)",
        "from_pretrained (setfit/modeling.py:700)",
        "<module> (/srv/classify.py:8)",
    ]
    main = process(
        FRONT,
        "python",
        stack=stack if asks else stack[5:],
        syscall="poll(0x7f, 0x1, 0xffffffff)" if asks else "futex(0x7f)",
        fds=(14,) if asks else (),
        files=[socket("10.0.0.2:43120", "18.64.174.110:443", state="SYN_SENT", fd=14)] if asks else [],
        ppid=1,
        memory=GB,
    )
    return bundle(main, engine="generic", phase=Phase.CONFIG)


def from_the_head(*, told: bool) -> Bundle:
    stack = (
        "new_group (torch/distributed/distributed_c10d.py:4300)",
        "init_distributed_environment (vllm/distributed/parallel_state.py:860)",
        "init_device (vllm/worker/worker.py:170)",
        "execute_method (vllm/worker/worker_base.py:375)",
    )
    other = "(RayWorkerWrapper pid=1978, ip=10.41.0.8)"
    said = (
        f"{other} {FALLBACK.message}",
        f"{other} Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144]",
    )
    return vllm(
        workers(8, stack, syscall="epoll_wait(0x9)", files=[socket("10.41.0.7:40121", state="LISTEN", fd=41)]),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        environment={"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
        host=host(interfaces=LAN),
        log=[line(one, level="WARNING", ago_s=290) for one in said] if told else [],
    )
