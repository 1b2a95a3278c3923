"""Any bundle comes back as written, any bytes are a bundle or one clear error, and any bundle can be judged."""

from contextlib import suppress
from enum import Enum
from functools import cache
from types import UnionType
from typing import Union, get_args, get_origin

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from firstlight.core import look as looks
from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.process import ProcessId
from firstlight.core.record import Record, to_json
from firstlight.diagnose import Change, check, compare, merge, state
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.errors import BundleError

# JSON has no lone surrogates, and msgspec refuses to write them; what is read from /proc and logs has none either.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PIDS = st.integers(0, 6)
SECONDS = st.floats(0, 1e9)
CALLS = [
    "running",
    "futex(0x1, 0x0)",
    "read(0x3)",
    "write(0x3)",
    "poll(0x1)",
    "openat(0x1)",
    "wait4(0x2)",
    "wait4()",
    "waitid(0x1, 0x2)",
    "flock(0x3)",
    "clock_nanosleep(0x0)",
    "syscall_7()",
    "accept4(0x3)",
    "connect(0x3)",
]
"""What telling fields may hold; every other text is anything."""
TELLING: dict[str, list[object]] = {
    "name": ["worker_TP0", "worker_TP1", "python", "nofile", "memlock", "HTTP_PROXY", "eth0", "node-1"],
    "function": [
        "barrier",
        "ncclCommInitRank",
        "take_gil",
        "wait",
        "FileBaton.wait",
        "Queue.put",
        "all_reduce",
        "x0xff",
    ],
    "file": ["/app/load.py", "/usr/lib/python3.11/threading.py", "/x/site-packages/torch/distributed/c.py"],
    "code": ["", "with lock:", "time.sleep(1)", "while True:"],
    "state": [*"RSDTtZX", "ESTABLISHED", "SYN_SENT", "LISTEN", "CLOSE_WAIT", "started", "completed"],
    "kind": [
        *("file", "fifo", "pipe", "socket", "device", "other", "flock", "posix", "ofd"),
        *("nccl", "cuda_driver", "mpi", "foreign", "loopback", "ethernet", "tunnel"),
    ],
    "target": ["/m/model.safetensors", "pipe:[1]", "/dev/nvidia0"],
    "path": ["/c/torch_extensions/op/lock", "/dev/shm/sem.x", "/usr/lib/libnccl.so.2"],
    "filesystem": ["ext4", "nfs4", "tmpfs", "fuse.s3fs"],
    "purpose": ["weights", "hub_cache", "compile_cache", "extensions", "shm", "tmp", "download"],
    "syscall": [*CALLS],
    "wchan": ["", "futex_wait_queue", "pipe_read", "do_wait"],
    "library": ["libnccl.so.2", "libtorch_cpu.so", "libcuda.so.1"],
    "operation": ["nccl:all_reduce", "nccl:broadcast"],
    "message": ["ERROR No space left on device", "Waiting for 1 core engine proc(s)", "No available shared memory"],
    "family": ["inet", "inet6", "unix"],
    "peer_host": ["10.0.0.2", "127.0.0.1", "::1", "/run/x"],
    "iommu": ["on", "off", "passthrough"],
    "access": ["", "r", "w", "rw"],
}
HOLD_PIDS = {
    *(
        "pid",
        "ppid",
        "tid",
        "tracer",
        "owner",
        "holder",
        "waiters",
        "builders",
        "waiting",
        "mapped_by",
        "peers",
        "fds",
    ),
    *(
        "watchers",
        "port",
        "peer_port",
        "rank",
        "ranks",
        "node",
        "missing",
        "dead",
        "unresponsive",
        "initialising",
        "fd",
    ),
}
NESTED_MOST = 3


def some(strategy: st.SearchStrategy[object], most: int = NESTED_MOST) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


@cache
def any_record(kind: type[Record]) -> st.SearchStrategy[object]:
    """Any record of a kind: every field is filled with anything of its type, or left out where it may be."""
    fields = [one for one in msgspec.structs.fields(kind) if (kind, one.name) not in LEFT_ALONE]
    filled = {one.name: _filling(kind, one.name, one.type) for one in fields}
    needed = {one.name: filled[one.name] for one in fields if one.required}
    optional = {name: strategy for name, strategy in filled.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional=optional).map(lambda values: kind(**values))


def _filling(kind: type[Record], name: str, type_: object) -> st.SearchStrategy[object]:
    own = FILLED.get((kind, name))
    return any_value(type_, name) if own is None else own


def any_value(kind: object, name: str) -> st.SearchStrategy[object]:
    """Anything of an annotated type; `name` of the field tells what would be telling."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return st.one_of([any_value(one, name) for one in inner])
    if origin is tuple and inner[-1] is ...:
        return some(any_value(inner[0], name))
    if origin is tuple:
        return st.tuples(*(any_value(one, name) for one in inner))
    assert isinstance(kind, type), kind
    if issubclass(kind, Record):
        return st.deferred(lambda: any_record(kind))
    return st.sampled_from(kind) if issubclass(kind, Enum) else _plain(kind, name)


def _plain(kind: type, name: str) -> st.SearchStrategy[object]:
    count = PIDS | st.integers(-1, 6) if name in HOLD_PIDS else st.integers(-1, 1 << 40) | st.integers(-1, 9)
    words = st.sampled_from(TELLING[name]) | TEXT if name in TELLING else TEXT
    kinds = {int: count, float: SECONDS, bool: st.booleans(), str: words, type(None): st.none()}
    return kinds[kind]


LEFT_ALONE = {(Bundle, "format"), (Bundle, "version")}


@st.composite
def process_looks(draw: st.DrawFn) -> looks.ProcessLook:
    """A process whose sample is its own."""
    look = draw(any_record(looks.ProcessLook))
    assert isinstance(look, looks.ProcessLook)
    sample = msgspec.structs.replace(look.sample, id=look.process.id, state=draw(st.sampled_from("RSDTtZX")))
    return msgspec.structs.replace(look, sample=sample)


FILLED: dict[tuple[type, str], st.SearchStrategy[object]] = {
    (ProcessId, "pid"): st.integers(1, 6),
    (ProcessId, "started"): st.integers(0, 2),
    (looks.ThreadLook, "state"): st.sampled_from("RSDTtZX"),
    (looks.Look, "processes"): some(process_looks()),
    (Bundle, "looks"): st.deferred(lambda: some(any_record(looks.Look), 2)),
}
LOOKS = any_record(looks.Look)
BUNDLES = any_record(Bundle)

patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(BUNDLES)
def test_any_bundle_comes_back_as_it_was_written(bundle: Bundle) -> None:
    assert read_bundle(to_json(bundle)) == bundle


@patient
@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: b'{"format":"firstlight-bundle",' + tail))
def test_any_bytes_are_a_bundle_or_one_clear_error(data: bytes) -> None:
    with suppress(BundleError):
        read_bundle(data)


@patient
@given(BUNDLES, st.data())
def test_any_damage_is_a_bundle_or_one_clear_error(bundle: Bundle, data: st.DataObject) -> None:
    written = bytearray(to_json(bundle))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    with suppress(BundleError):
        read_bundle(bytes(written))


@patient
@given(BUNDLES)
def test_any_bundle_can_be_judged(bundle: Bundle) -> None:
    """Whatever a hostile file holds, there is a sentence, and every process and every claim is of the bundle."""
    statement = state(bundle)
    assert statement.headline
    shown = {one.process.id.pid for one in bundle.looks[-1].processes} if bundle.looks else set()
    assert {one.pid for one in statement.processes} == shown
    assert all(one.doing for one in statement.processes)
    assert all(finding.title and finding.evidence for finding in statement.findings)
    # A symptom that something established explains needs no advice of its own.
    assert all(finding.advice for finding in statement.findings if finding.id not in SYMPTOMS)
    drawn = {node.id for node in statement.graph.nodes}
    assert {end for edge in statement.graph.edges for end in (edge.source, edge.target)} <= drawn
    assert {id_ for ids in (*statement.graph.cycles, statement.graph.sinks) for id_ in ids} <= drawn
    assert all(frame.parent < at for at, frame in enumerate(statement.tree.frames))
    assert statement.cause is None or statement.cause in statement.findings
    assert state(read_bundle(to_json(bundle))) == statement


SYMPTOMS = {cause.id for cause in all_causes() if not cause.nature.explains}


@patient
@given(BUNDLES)
def test_no_clue_fails_whatever_the_bundle_holds(bundle: Bundle) -> None:
    """`weigh` would make a gap of it; here it is our fault."""
    scene = scene_of(bundle)
    for cause in all_causes():
        for clue in cause.clues:
            list(clue.ask(scene))


@patient
@given(BUNDLES)
def test_any_bundle_can_be_asked_before_a_start(bundle: Bundle) -> None:
    assert all(finding.title and finding.evidence for finding in check(bundle))


@patient
@given(st.lists(BUNDLES, max_size=3))
def test_any_bundles_are_merged_and_judged_or_refused(bundles: list[Bundle]) -> None:
    try:
        merged = merge(bundles)
    except BundleError:
        return
    assert state(merged).headline


def unique(ids: list[object]) -> bool:
    return len(set(ids)) == len(ids)


@patient
@given(LOOKS)
def test_a_look_compared_with_itself_has_not_moved(look: looks.Look) -> None:
    assume(unique([one.process.id for one in look.processes]))
    assume(all(unique([thread.tid for thread in one.threads]) for one in look.processes))
    assert {one.change for one in compare(look, look).processes} <= {Change.STILL, Change.UNKNOWN, Change.SPINNING}
