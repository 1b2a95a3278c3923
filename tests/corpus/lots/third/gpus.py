"""Machines of the third lot: GPUs and their drivers."""

from tests.corpus.lots.third.ranks import THINKS
from tests.corpus.surroundings import (
    SYNCS,
    spinning,
)

from firstlight.core.bundle import Bundle
from firstlight.core.facts import Library
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    bundle,
    cuda_libraries,
    engine,
    folder,
    front,
    gpus,
    ordinary_facts,
    process,
    rank,
)


def turing(*, compiles: bool) -> Bundle:
    native = ("?? (libnvidia-ptxjitcompiler.so.1)", "cuModuleLoadDataEx (libcuda.so.1)", "ggml_cuda_mul (libggml.so)")
    jit = Library(path="/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1", kind="ptx_jit", version="")
    main = process(
        FRONT, "audiocpp", native=native if compiles else (), state="R" if compiles else "S", cpu=1.0 * compiles,
        ppid=1, facts=ordinary_facts(libraries=(*cuda_libraries(), *([jit] if compiles else []))),
    )  # fmt: skip
    return bundle(
        main, engine="generic", phase=Phase.WARMUP, gpus=gpus(1, name="Quadro RTX 8000", architecture="75"),
        folders=[folder("engine_cache", "/root/.nv/ComputeCache", bytes_=9 << 20, grows=400_000 * compiles)],
    )  # fmt: skip


def sgmv(*, spins: bool) -> Bundle:
    stack = (
        "synchronize (torch/cuda/streams.py:95)",
        "lora_a_sgmv_cutlass (lorax_server/utils/sgmv.py:120)",
        "generate_token (lorax_server/models/flash_causal_lm.py:900)",
        "Prefill (lorax_server/server.py:80)",
    )
    card = gpus(1)
    return bundle(
        process(FRONT, "lorax-launcher", role=Role.FRONT, ppid=1, facts=ordinary_facts(libraries=())),
        rank(0, name="lorax-server", stack=stack, native=SYNCS, state="R", cpu=1.0, ppid=FRONT),
        engine="generic",
        phase=Phase.SERVING,
        gpus=spinning(card, 128) if spins else card,
        question="no token within 60 s",
    )


def off_the_bus(*, told: bool) -> Bundle:
    said = (
        "NVRM: Xid (PCI:0000:10:00): 79, pid=4050, name=sglang, GPU has fallen off the bus.",
        "NVRM: GPU 0000:10:00.0: GPU has fallen off the bus.",
    )
    return bundle(
        front(),
        engine(stack=THINKS[:2], native=SYNCS, state="R", cpu=1.0, facts=ordinary_facts()),
        phase=Phase.SERVING,
        gpus=gpus(1, name="NVIDIA GeForce RTX 5080", architecture="120", fault="GPU is lost" if told else ""),
        kernel_log=said if told else (),
    )
