"""The report: what firstlight says at the end, as data. Terminal, Markdown, HTML and JSON are made from it."""

from firstlight.core.gap import Gap
from firstlight.core.graph import Signature, StackTree, Strip, WaitGraph
from firstlight.core.log import Counter, LogLine, PhaseSpan
from firstlight.core.look import Frame
from firstlight.core.process import Exit
from firstlight.core.record import Record
from firstlight.core.vocabulary import EXIT_CODES, Outcome, Phase, Role

REPORT_VERSION = 1


class ReportedThread(Record):
    """A further thread of a process that tells something; `doing` and `where` as in `ReportedProcess`."""

    tid: int
    name: str
    doing: str
    where: tuple[Frame, ...] = ()


class ReportedProcess(Record):
    """A process in the report: who it is, what it does, where it stands.

    `doing` is one plain clause ("waits in futex, held by nobody known", "stopped by a signal", "spins").
    `where` is the innermost frames that say most, innermost first. Both are of the thread that tells most; `others`
    are a few more, of a process that a finding or the wait-for graph is about.
    """

    pid: int
    name: str
    role: Role
    rank: int
    label: str
    state: str
    cpu_percent: float
    memory_bytes: int
    doing: str
    phase: Phase | None = None
    where: tuple[Frame, ...] = ()
    last_words: str = ""
    others: tuple[ReportedThread, ...] = ()


class Finding(Record):
    """Something that was established or is supported, with what it rests on.

    `verdict` is a word of `core.vocabulary.Certainty`. `evidence` quotes observations that speak for it, `against`
    those that speak against it. `unseen` are the questions that a gap kept from being answered, each with its
    reason. `advice` is what to do: the option to change, the command that would confirm, work around or repair it.
    `traps` say what it is easily mistaken for.
    """

    id: str
    title: str
    verdict: str
    pids: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()


class FirstToken(Record):
    """Proof of first light: what was asked, and what came back. Seconds from launch and from the request."""

    prompt: str
    text: str
    model: str
    tokens: int
    after_launch_s: float
    request_s: float


class Report(Record, kw_only=True):
    """The whole verdict of one attempt.

    `server` is the pid of its first process, 0 if it was not started; `attached` if firstlight only joined it.
    `completion` is a short answer of the served model, for people to read; it proves nothing beyond `first_token`.
    `findings` are those that were established or supported, or are open; `weighed` are all other causes with the word
    for each (excluded, not examined, not seen). `environment` are telling facts about machine and server as name and
    value. `strips` are the measured series under the timeline. `hosts` names the machines of a server that was looked
    at on several; pids are then those of `core.hosts`.
    """

    version: int = REPORT_VERSION
    run: str
    outcome: Outcome
    headline: str
    engine: str
    engine_version: str
    command: tuple[str, ...]
    started: float
    ended: float
    phase: Phase
    url: str = ""
    server: int = 0
    attached: bool = False
    quiet_since: float | None = None
    counter: Counter | None = None
    first_token: FirstToken | None = None
    completion: str = ""
    timeline: tuple[PhaseSpan, ...] = ()
    processes: tuple[ReportedProcess, ...] = ()
    exits: tuple[Exit, ...] = ()
    findings: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
    first_error: LogLine | None = None
    log_tail: tuple[LogLine, ...] = ()
    bundle: str = ""
    next_steps: tuple[str, ...] = ()
    weighed: tuple[tuple[str, str], ...] = ()
    graph: WaitGraph = WaitGraph()
    tree: StackTree = StackTree(members=0)
    signature: Signature | None = None
    strips: tuple[Strip, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a shell is told of this outcome."""
        return EXIT_CODES[self.outcome]
