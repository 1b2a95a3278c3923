"""Machines of the first lot that stand still for a reason that nobody found."""

from tests.corpus.surroundings import (
    idle_threads,
)

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase, Role
from firstlight.testing.bundles import (
    FRONT,
    GB,
    bundle,
    gpus,
    process,
)


def fits() -> Bundle:
    server = process(
        FRONT, "llama-server", syscall="futex(0x7f3a10, 0x80, 0x0)", role=Role.FRONT, ppid=1, memory=GB,
        threads=idle_threads()[3:],
    )  # fmt: skip
    said = "common_params_fit_impl: getting device memory data for initial parameters:"
    return bundle(
        server, engine="generic", phase=Phase.MODEL_INIT, log=[said], quiet_s=28_000,
        gpus=gpus(2, name="Tesla V100-SXM2-32GB", architecture="70", fabric="not supported"),
    )  # fmt: skip
