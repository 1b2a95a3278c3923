"""Any bundle comes back as written, any bytes are a bundle or one clear error, and any bundle can be judged."""

from contextlib import suppress

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from firstlight.core import bundle as bundles
from firstlight.core import look as looks
from firstlight.core.bundle import Bundle, read_bundle
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.process import Exit, Process, ProcessId, ProcessSample
from firstlight.core.record import to_json
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.diagnose import Change, compare, state
from firstlight.errors import BundleError

# JSON has no lone surrogates, and msgspec refuses to write them; what is read from /proc and logs has none either.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PIDS = st.integers(1, 6)
AMOUNT = st.integers(0, 1 << 40)
SECONDS = st.floats(0, 1e9)
GAPS = st.builds(Gap, what=TEXT, reason=st.sampled_from(GapReason), detail=TEXT, pid=PIDS)
IDS = st.builds(ProcessId, pid=PIDS, started=st.integers(0, 2))
NAMES = TEXT | st.sampled_from(["worker_TP0", "worker_TP1", "python"])


def some(strategy: st.SearchStrategy[object], most: int = 3) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


FILES = st.sampled_from(
    ["/app/load.py", "/usr/lib/python3.11/threading.py", "/x/site-packages/torch/distributed/c.py"]
)
CODE = st.sampled_from(["", "with lock:", "time.sleep(1)", "while True:"]) | TEXT
FRAMES = st.builds(looks.Frame, function=NAMES, file=FILES | TEXT, line=st.integers(-1, 99), code=CODE)
CALLS = st.sampled_from(
    [
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
)
THREADS = st.builds(
    looks.ThreadLook,
    tid=PIDS,
    name=TEXT,
    state=st.sampled_from("RSDTtZX"),
    cpu_s=SECONDS,
    wchan=TEXT | GAPS,
    syscall=CALLS | TEXT | GAPS,
    stack=some(FRAMES) | GAPS,
    owns_gil=st.booleans(),
    active=st.booleans(),
    fds=some(st.integers(-1, 5)),
    path=TEXT,
)
OPEN_FILES = st.builds(
    looks.OpenFile,
    fd=st.integers(-1, 5),
    kind=st.sampled_from(["file", "fifo", "pipe", "socket", "device", "other"]),
    target=TEXT,
    position=AMOUNT,
    detail=TEXT,
    access=st.sampled_from(["", "r", "w", "rw"]),
    peers=some(PIDS) | GAPS,
    unseen=st.integers(0, 2),
)


@st.composite
def process_looks(draw: st.DrawFn) -> looks.ProcessLook:
    identity = draw(IDS)
    return looks.ProcessLook(
        process=Process(
            id=identity,
            ppid=draw(PIDS),
            name=draw(NAMES),
            cmdline=draw(some(TEXT)),
            role=draw(st.sampled_from(Role)),
            label=draw(TEXT),
            rank=draw(st.integers(-1, 3)),
        ),
        sample=ProcessSample(
            id=identity,
            state=draw(st.sampled_from("RSDTtZX")),
            cpu_s=draw(SECONDS),
            threads=draw(st.integers(0, 9)),
            major_faults=draw(AMOUNT),
            memory_bytes=draw(AMOUNT),
            shared_bytes=draw(AMOUNT | GAPS),
            read_bytes=draw(AMOUNT | GAPS),
            write_bytes=draw(AMOUNT | GAPS),
            disk_read_bytes=draw(AMOUNT | GAPS),
        ),
        tracer=draw(PIDS),
        threads=draw(some(THREADS)),
        files=draw(some(OPEN_FILES)),
        gaps=draw(some(GAPS)),
    )


LOCKS = st.builds(
    looks.Lock,
    kind=st.sampled_from(["flock", "posix", "ofd", "file"]),
    path=TEXT,
    holder=st.integers(0, 6),
    waiters=some(PIDS),
    age_s=SECONDS,
    holder_name=TEXT,
)
LISTENERS = st.builds(looks.Listener, host=TEXT, port=st.integers(0, 65535), pid=st.integers(0, 6))
LOOKS = st.builds(
    looks.Look,
    at=SECONDS,
    took_s=SECONDS,
    monotonic=SECONDS,
    processes=some(process_looks(), 4),
    listeners=some(LISTENERS) | GAPS,
    locks=some(LOCKS) | GAPS,
    gaps=some(GAPS),
)
LINES = st.builds(LogLine, stream=TEXT, at=SECONDS, text=TEXT, message=TEXT, source=TEXT, pid=st.integers(0, 6))
EXITS = st.builds(
    Exit,
    id=IDS,
    name=NAMES,
    at=SECONDS,
    code=st.none() | st.integers(0, 255) | GAPS,
    signal=st.none() | st.integers(1, 64),
    oom=st.booleans(),
    role=st.sampled_from(Role),
    rank=st.integers(-1, 3),
)
BUNDLES = st.builds(
    Bundle,
    made_by=TEXT,
    run=TEXT,
    at=SECONDS,
    engine=TEXT,
    engine_version=TEXT,
    command=some(TEXT),
    phase=st.sampled_from(Phase),
    quiet_since=SECONDS,
    host=st.builds(
        Host,
        name=TEXT,
        kernel=TEXT,
        cpus=AMOUNT,
        memory_bytes=AMOUNT,
        shm_bytes=AMOUNT | GAPS,
        shm_used_bytes=AMOUNT | GAPS,
        may_ptrace=TEXT,
    ),
    timeline=some(st.builds(PhaseSpan, phase=st.sampled_from(Phase), source=TEXT, began=SECONDS, ended=st.none())),
    looks=some(LOOKS, 2),
    exits=some(EXITS),
    logs=some(st.builds(bundles.LogTail, source=TEXT, lines=some(LINES), first_error=st.none() | LINES)),
    gaps=some(GAPS),
)

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
    # A held interpreter lock that something established explains needs no advice of its own.
    assert all(finding.advice for finding in statement.findings if finding.id != "gil_held")
    assert state(read_bundle(to_json(bundle))) == statement


def unique(ids: list[object]) -> bool:
    return len(set(ids)) == len(ids)


@patient
@given(LOOKS)
def test_a_look_compared_with_itself_has_not_moved(look: looks.Look) -> None:
    assume(unique([one.process.id for one in look.processes]))
    assume(all(unique([thread.tid for thread in one.threads]) for one in look.processes))
    assert {one.change for one in compare(look, look).processes} <= {Change.STILL, Change.UNKNOWN, Change.SPINNING}
