"""Machines of the first lot: what the GPU or its driver refuses."""

from msgspec.structs import replace
from tests.corpus.surroundings import (
    SYNCS,
    WORKER_MAIN,
    spinning,
    vllm,
    workers,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.testing.bundles import (
    bundle,
    engine,
    front,
    gpus,
    line,
    ordinary_facts,
)


def fabric(state: str, *, said: bool) -> Bundle:
    message = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
    return bundle(
        front(),
        engine(
            stack=["_lazy_init (torch/cuda/__init__.py:410)", "__init__ (vllm/v1/engine/core.py:90)"],
            native=["?? (libcuda.so.1)", "cuInit (libcuda.so.1)"],
        ),
        phase=Phase.SPAWN,
        gpus=gpus(4, name="NVIDIA H200", fabric=state),
        log=[line(message, source="EngineCore", level="ERROR")] if said else [],
    )


def moe_kernel(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:231)",
        "get_output (vllm/v1/worker/gpu_model_runner.py:250)",
        "execute_model (vllm/v1/executor/uniproc_executor.py:80)",
        "run_busy_loop (vllm/v1/engine/core.py:1000)",
    )
    card = gpus(1, name="NVIDIA GeForce RTX 5090", architecture="120", fabric="not supported", power_limit_w=575.0)
    return bundle(
        front(label="APIServer"),
        engine(stack=stack, native=SYNCS, state="R", cpu=1.0, facts=ordinary_facts()),
        phase=Phase.SERVING,
        gpus=spinning(card, 62) if spins else card,
        question="no token within 60 s",
        log=[line("GET /health HTTP/1.1 200 OK")],
    )


def broken_memory(*, told: bool) -> Bundle:
    cards = list(gpus(4, name="NVIDIA A100 80GB PCIe", architecture="80", fabric="not supported"))
    if told:
        cards[2] = replace(cards[2], xid=(48, 63, 94, 154), ecc_errors=12, repair="pending")
    stack = ("synchronize (torch/cuda/streams.py:231)", "sample_tokens (vllm/v1/worker/gpu_model_runner.py:3500)")
    said = "NVRM: Xid (PCI:0000:9c:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error"
    return vllm(
        workers(4, (*stack, WORKER_MAIN), native=SYNCS, state="R", cpu=1.0),
        phase=Phase.SERVING,
        gpus=tuple(cards),
        kernel_log=[said] if told else [],
    )
