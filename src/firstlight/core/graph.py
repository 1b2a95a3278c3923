"""Who waits for whom, and where the ranks stand, as data that a report can draw."""

from firstlight.core.record import Record


class Node(Record):
    """Somebody or something in the wait-for graph.

    `id` is unique in its graph. `kind`: process, thread, file, lock, port, peer (another machine), device,
    collective. `label` is what people read ("worker rank 2 (pid 4711)"), `note` one more line ("stopped by a
    signal"). `blamed` if a finding names it as the one that the others wait for; `gone` if it has ended.
    """

    id: str
    kind: str
    label: str
    note: str = ""
    pid: int = 0
    rank: int = -1
    blamed: bool = False
    gone: bool = False


class Edge(Record):
    """`source` waits for `target`, by a lock, a pipe, a collective …

    `kind`: mutex, gil, file_lock, lock_file, pipe, socket, fifo, child, thread, semaphore, queue, collective, device,
    stopped. `label` says it in a few words.
    """

    source: str
    target: str
    kind: str
    label: str = ""


class WaitGraph(Record):
    """The wait-for graph. Each of `cycles` lists the ids of a deadlock in order; `sinks` are waited for and wait for
    nobody themselves, the most waited for first."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    cycles: tuple[tuple[str, ...], ...] = ()
    sinks: tuple[str, ...] = ()


class TreeFrame(Record):
    """One frame of the merged stack tree; `parent` is the index of the frame that called it, -1 for a root.

    `present` are the ranks (or pids, where there are no ranks) that stand in it, written as "0-6,9"; `count` is
    how many. `leaf` counts those whose stack ends here.
    """

    parent: int
    function: str
    place: str
    present: str
    count: int
    leaf: int = 0


class StackTree(Record):
    """The stacks of all members merged into one prefix tree, outermost first; parents come before their children."""

    members: int
    frames: tuple[TreeFrame, ...] = ()
    by_rank: bool = True


class Signature(Record):
    """What makes two stalls the same: the phase, and who waits where. `digest` is short and stable; `waits` are the
    lines that it is made of, one for each kind of waiter, free of pids, addresses, paths of one run and counts."""

    digest: str
    phase: str
    waits: tuple[str, ...]


class Strip(Record):
    """A measured series under the timeline: one value each `step_s` seconds from `began` (wall time).

    `what`: cpu (cores), io (bytes a second), gpu (percent). A value of -1 was not measured.
    """

    source: str
    rank: int
    what: str
    began: float
    step_s: float
    values: tuple[float, ...]
