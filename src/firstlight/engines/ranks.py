"""Rank numbers from the words that engines use for their workers: "Worker_DP0_TP3", "DP1 TP3 EP3", "VllmWorker-2"."""

import re
from functools import lru_cache
from typing import NamedTuple


class Sizes(NamedTuple):
    """How the ranks are laid out; 0 where it is not known.

    `data_inside` is SGLang's attention data parallelism, where the tensor-parallel number counts every copy already.
    """

    tensor: int = 0
    pipeline: int = 0
    data_inside: bool = False


UNKNOWN = Sizes()

_PART = re.compile(r"([A-Z]+)(\d{1,6})")
_UNNUMBERED = frozenset({"Worker", "scheduler"})
_NUMBERED = re.compile(r"VllmWorker-(\d{1,6})")


@lru_cache(maxsize=4096)
def rank_of(label: str, sizes: Sizes = UNKNOWN) -> int:
    """The number of a worker on its node, -1 if the label names no worker.

    Ranks count tensor-parallel first, then pipeline, then data. Where the sizes are not known the innermost number
    stands alone, so that "DP1 TP3" is 3. A worker without a number is the only one, or has not taken its title yet.
    """
    if label in _UNNUMBERED:
        return 0 if sizes.tensor * sizes.pipeline <= 1 else -1
    if numbered := _NUMBERED.fullmatch(label):
        return int(numbered[1])
    parts = {name: int(number) for name, number in _PART.findall(label)}
    if not label.startswith("Worker") and not parts.keys() & {"TP", "PP"}:
        return parts["DP"] if label.startswith("DP") and "DP" in parts else -1
    data, pipeline, tensor = (parts.get(name, 0) for name in ("DP", "PP", "TP"))
    if sizes.tensor and sizes.pipeline:
        data = 0 if sizes.data_inside else data
        return (data * sizes.pipeline + pipeline) * sizes.tensor + tensor
    return next((parts[name] for name in ("TP", "PP", "DP") if name in parts), 0)
