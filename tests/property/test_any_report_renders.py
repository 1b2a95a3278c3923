"""Any report, however odd, can be said in every form: it ends, it stays small, and what it quotes stays text."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.core.gap import Gap
from firstlight.core.graph import Edge, Node, Signature, StackTree, Strip, TreeFrame, WaitGraph
from firstlight.core.log import Counter, LogLine, PhaseSpan
from firstlight.core.look import Frame
from firstlight.core.process import Exit, ProcessId
from firstlight.core.record import to_json
from firstlight.core.report import Finding, FirstToken, Report, ReportedProcess
from firstlight.core.vocabulary import Certainty, GapReason, Outcome, Phase, Role
from firstlight.report.html import html
from firstlight.report.markdown import CHARACTERS_MAX, markdown
from firstlight.report.terminal import terminal

ATTACKS = st.sampled_from(
    [
        "<script>x</script>",
        "`",
        "```",
        "@octocat #1",
        "\x1b[31m",
        "\u202e",
        '"',
        "'",
        "&amp;",
        "</pre>",
        "|",
        "日本" * 30,
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | ATTACKS | st.just("x" * 9000)
SHORT = st.sampled_from(["", "TP0", "a", "worker rank 1 (pid 2)"]) | ATTACKS
RANKS = st.integers(-1, 5)
PIDS = st.integers(-1, 1 << 40)
TIMES = st.floats(1.6e9, 1.8e9) | st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.floats(allow_nan=False, allow_infinity=False)
PHASES = st.sampled_from(Phase)


def some(strategy: st.SearchStrategy[object], most: int = 4) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


GAPS = st.builds(Gap, what=TEXT, reason=st.sampled_from(GapReason), detail=TEXT, pid=PIDS)
FRAMES = st.builds(Frame, function=TEXT, file=TEXT, line=st.integers())
SPANS = st.builds(PhaseSpan, phase=PHASES, source=SHORT, began=TIMES, ended=st.none() | TIMES, rank=RANKS)
LINES = st.builds(LogLine, stream=SHORT, at=TIMES, text=TEXT, message=SHORT)
PROCESSES = st.builds(
    ReportedProcess,
    pid=PIDS,
    name=TEXT,
    role=st.sampled_from(Role),
    rank=RANKS,
    label=SHORT,
    state=SHORT,
    cpu_percent=AMOUNTS,
    memory_bytes=st.integers(0, 1 << 60),
    doing=SHORT,
    phase=st.none() | PHASES,
    where=some(FRAMES, 2),
    last_words=SHORT,
)
EXITS = st.builds(
    Exit,
    id=st.builds(ProcessId, pid=PIDS, started=st.integers(0, 9)),
    name=TEXT,
    at=TIMES,
    code=st.none() | st.integers() | GAPS,
    signal=st.none() | st.integers(-9, 99),
)
FINDINGS = st.builds(
    Finding,
    id=SHORT,
    title=TEXT,
    verdict=st.sampled_from([*Certainty]) | SHORT,
    pids=some(PIDS, 2),
    evidence=some(TEXT),
    advice=some(TEXT),
    against=some(TEXT),
    unseen=some(TEXT),
    traps=some(TEXT),
)
IDS = st.sampled_from("abcdefgh") | SHORT
NODES = st.builds(
    Node,
    id=IDS,
    kind=st.sampled_from(["process", "thread", "file", "lock", "port", "peer", "device", "collective"]) | SHORT,
    label=TEXT,
    note=TEXT,
    rank=RANKS,
    blamed=st.booleans(),
    gone=st.booleans(),
)
EDGES = st.builds(Edge, source=IDS, target=IDS, kind=SHORT, label=SHORT)
GRAPHS = st.builds(
    WaitGraph,
    nodes=some(NODES, 12),
    edges=some(EDGES, 16),
    cycles=some(some(IDS, 3), 2),
    sinks=some(IDS, 2),
)
TREES = st.builds(
    StackTree,
    members=st.integers(-1, 9),
    frames=some(
        st.builds(
            TreeFrame,
            parent=st.integers(-3, 9),
            function=TEXT,
            place=TEXT,
            present=SHORT,
            count=st.integers(-1, 9),
            leaf=st.integers(-1, 9),
        ),
        9,
    ),
    by_rank=st.booleans(),
)
STRIPS = st.builds(
    Strip,
    source=SHORT,
    rank=RANKS,
    what=st.sampled_from(["cpu", "io", "gpu", "other"]),
    began=TIMES,
    step_s=AMOUNTS,
    values=some(AMOUNTS, 6),
)
REPORTS = st.builds(
    Report,
    run=SHORT,
    outcome=st.sampled_from(Outcome),
    headline=TEXT,
    engine=SHORT,
    engine_version=SHORT,
    command=some(TEXT),
    started=TIMES,
    ended=TIMES,
    phase=PHASES,
    url=SHORT,
    quiet_since=st.none() | TIMES,
    counter=st.none() | st.builds(Counter, done=AMOUNTS, total=AMOUNTS, unit=SHORT),
    first_token=st.none()
    | st.builds(
        FirstToken, prompt=TEXT, text=TEXT, model=SHORT, tokens=PIDS, after_launch_s=AMOUNTS, request_s=AMOUNTS
    ),
    timeline=some(SPANS, 8),
    processes=some(PROCESSES, 4),
    exits=some(EXITS, 3),
    findings=some(FINDINGS, 3),
    gaps=some(GAPS),
    first_error=st.none() | LINES,
    log_tail=some(LINES),
    bundle=SHORT,
    next_steps=some(TEXT),
    weighed=some(st.tuples(TEXT, st.sampled_from([*Certainty]) | SHORT)),
    graph=GRAPHS,
    tree=TREES,
    signature=st.none() | st.builds(Signature, digest=SHORT, phase=SHORT, waits=some(TEXT)),
    strips=some(STRIPS, 6),
    environment=some(st.tuples(TEXT, TEXT)),
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(REPORTS)
def test_any_report_can_be_said_in_every_form(report: Report) -> None:
    assert all(char.isprintable() for char in terminal(report, width=72).replace("\n", ""))
    assert len(markdown(report)) <= CHARACTERS_MAX
    page = html(report)
    assert "<script" not in page
    assert len(page) < 2_000_000
    assert to_json(report)
