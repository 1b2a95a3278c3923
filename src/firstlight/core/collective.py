"""Collectives: calls recorded by torch's flight recorder, and communicators as NCCL's RAS sees them."""

from firstlight.core.record import Record


class CollectiveCall(Record):
    """One call of a process group as a rank's flight recorder has it (torch.distributed, dump version 2.x).

    `group` names the process group, `sequence` counts the calls in it. `operation` as torch says it
    ("nccl:all_reduce"). `state`: "scheduled", "started" or "completed". Sizes are the shapes of its tensors.
    `where` is the innermost frame of the caller, empty if no stacks were recorded.
    """

    rank: int
    group: str
    sequence: int
    operation: str
    state: str
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    where: str = ""


class Communicator(Record):
    """One NCCL communicator as the RAS client reports it (NCCL >= 2.24).

    `missing`, `unresponsive` and `dead` are ranks. `counts` are the collectives that each rank has launched, by rank.
    `initialising` are ranks that have not finished ncclCommInitRank.
    """

    id: str
    ranks: int
    missing: tuple[int, ...] = ()
    unresponsive: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    initialising: tuple[int, ...] = ()
    counts: tuple[tuple[int, int], ...] = ()
    error: str = ""
