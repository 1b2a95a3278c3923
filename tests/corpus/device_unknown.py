"""Reports of which nobody knows the cause, about communicators, graphs and serving: firstlight must not guess."""

from tests.corpus.case import UNKNOWN, Case

from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import bundle, engine, front, gpus, helper, line, ranks

IN_COMM_INIT = [
    "ncclCommInitRank (vllm/distributed/device_communicators/pynccl_wrapper.py:440)",
    "__init__ (vllm/distributed/device_communicators/pynccl.py:140)",
    "init_device (vllm/v1/worker/gpu_worker.py:290)",
    "worker_main (vllm/v1/executor/multiproc_executor.py:720)",
]

CASES = (
    Case(
        id="vllm-50430",
        url="https://github.com/vllm-project/vllm/issues/50430",
        cause=UNKNOWN,
        lacks="NCCL_DEBUG's last phase, native frames, the state of fabric manager and IMEX",
        bundle=bundle(
            front(),
            engine(),
            helper(),
            ranks(8, stack=IN_COMM_INIT),
            phase=Phase.COMM_INIT,
            gpus=gpus(8, name="NVIDIA B200", architecture="100", power_w=140.0),
            log=[line("vLLM is using nccl==2.28.9", source="Worker_TP0", number=0)],
        ),
    ),
)
