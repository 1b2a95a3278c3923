"""Machines of the second lot: addresses and ports."""

from tests.corpus.surroundings import (
    SCHEDULER_MAIN,
    WORKER_MAIN,
    scheduler,
    sglang,
    vllm,
    worker,
)

from firstlight.core.bundle import Bundle
from firstlight.core.look import Listener
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    FIRST_RANK,
    ended,
    line,
    socket,
)


def six(*, listens: str) -> Bundle:
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:189)",
        "init_process_group (torch/distributed/distributed_c10d.py:1750)",
        "init_torch_distributed (sglang/srt/model_executor/model_runner.py:237)",
        SCHEDULER_MAIN,
    )
    first = scheduler(0, stack, syscall="poll(0x7f)", files=[socket(listens, state="LISTEN", fd=40)])
    return sglang(
        first,
        scheduler(1, stack, syscall="clock_nanosleep(0x0)"),
        phase=Phase.RENDEZVOUS,
        nodes=2,
        options={"dist-init-addr": "[fd00:10::a1]:1234", "nnodes": "2"},
        listeners=[Listener(host=listens.rpartition(":")[0].strip("[]"), port=1234, pid=FIRST_RANK)],
    )


def same_port(*, said: bool) -> Bundle:
    message = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 34773, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    stack = (
        "_create_c10d_store (torch/distributed/rendezvous.py:199)",
        "init_process_group (torch/distributed/distributed_c10d.py:1752)",
        "init_worker_distributed_environment (vllm/v1/worker/gpu_worker.py:606)",
        WORKER_MAIN,
    )
    return vllm(
        worker(1, stack, syscall="poll(0x7f)"),
        [] if said else [worker(0, stack, syscall="poll(0x7f)")],
        phase=Phase.RENDEZVOUS,
        exits=[ended(worker(0, stack), code=1, ago_s=100)] if said else [],
        log=[line(message, source="Worker_TP0", number=0, level="ERROR", ago_s=101)] if said else [],
    )
