"""Who is stuck where, since when, and what speaks for it: a pure function of a bundle."""

from collections.abc import Callable

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.graph import Signature, StackTree, WaitGraph
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.process import Process, ProcessId
from firstlight.core.record import Record
from firstlight.core.report import Finding, ReportedProcess, ReportedThread
from firstlight.core.vocabulary import Certainty, Phase, Role
from firstlight.diagnose import ranks
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.graph import to_blame, wait_graph, waited_on, waiters, what_each_does
from firstlight.diagnose.headline import headline
from firstlight.diagnose.hosts import spoken_finding, spoken_graph, translator
from firstlight.diagnose.logwords import LastWords, first_error
from firstlight.diagnose.nextsteps import next_steps
from firstlight.diagnose.others import others
from firstlight.diagnose.scene import Scene, scene_of
from firstlight.diagnose.signature import signature
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.tree import tree_of
from firstlight.diagnose.weigh import Verdicts, weigh

_ROLES = (Role.WORKER, Role.ENGINE, Role.OTHER, Role.COMPILER, Role.FRONT, Role.HELPER)


class Statement(Record):
    """The diagnosis. `cause` is the finding that says why, None if that is unknown. `suspects` are the pids that the
    others wait for, most suspicious first. `weighed` has the word for every cause that is no finding."""

    headline: str
    processes: tuple[ReportedProcess, ...]
    findings: tuple[Finding, ...]
    next_steps: tuple[str, ...]
    cause: Finding | None = None
    suspects: tuple[int, ...] = ()
    first_error: LogLine | None = None
    gaps: tuple[Gap, ...] = ()
    weighed: tuple[tuple[str, str], ...] = ()
    graph: WaitGraph = WaitGraph()
    tree: StackTree = StackTree(members=0)
    signature: Signature | None = None


def state(bundle: Bundle, *, root: ProcessId | None = None, stalled: bool = True) -> Statement:
    """Say who is stuck where.

    Args:
        bundle: what was seen.
        root: the server's first process, which tells whether the server ended; guessed from the looks without it.
        stalled: whether that is the verdict already, which little movements of a bystander do not unsay; if not,
            the looks decide whether the server still moves.
    """
    statement = _stated(scene_of(bundle, root), stalled=stalled)
    return _spoken(statement, translator(bundle)) if bundle.hosts else statement


def _stated(scene: Scene, *, stalled: bool) -> Statement:
    bundle = scene.bundle
    verdicts = weigh(scene, all_causes())
    doing = what_each_does(scene)
    suspects = _suspects(scene, verdicts.findings)
    suspect = scene.standing(suspects[0]) if suspects else None
    gaps = _gaps(bundle)
    threads, told = others(scene, verdicts.findings), _Reporter(bundle)
    return Statement(
        headline=headline(scene, verdicts, suspect, doing, stalled=stalled),
        processes=tuple(told(one, doing[one.pid], threads.get(one.pid, ())) for one in scene.standings),
        findings=verdicts.findings,
        next_steps=next_steps(scene, verdicts, gaps, stalled=stalled),
        cause=verdicts.cause,
        suspects=suspects,
        first_error=first_error(bundle),
        gaps=gaps,
        weighed=verdicts.others,
        graph=wait_graph(scene, _blamed(scene, verdicts), doing),
        tree=tree_of(scene),
        signature=signature(scene),
    )


def _spoken(statement: Statement, say: Callable[[str], str]) -> Statement:
    """The statement of a merged bundle, in which every sentence says on which machine a pid is."""
    replace = msgspec.structs.replace
    return replace(
        statement,
        headline=say(statement.headline),
        processes=tuple(
            replace(
                one,
                doing=say(one.doing),
                others=tuple(replace(thread, doing=say(thread.doing)) for thread in one.others),
            )
            for one in statement.processes
        ),
        findings=tuple(spoken_finding(one, say) for one in statement.findings),
        next_steps=tuple(map(say, statement.next_steps)),
        cause=spoken_finding(statement.cause, say) if statement.cause else None,
        graph=spoken_graph(statement.graph, say),
    )


def check(bundle: Bundle) -> tuple[Finding, ...]:
    """What can be known to go wrong before a server is started: machine, command and environment alone."""
    return weigh(scene_of(bundle), all_causes(), before=True).findings


def _blamed(scene: Scene, verdicts: Verdicts) -> frozenset[str]:
    """The nodes that findings name as those that the others wait for."""
    pairs = zip(verdicts.findings, verdicts.accused, strict=True)
    told = (to_blame(scene, one.pids, accused) for one, accused in pairs if one.verdict != Certainty.OPEN)
    return frozenset(id_ for ids in told for id_ in ids)


def _suspects(scene: Scene, findings: tuple[Finding, ...]) -> tuple[int, ...]:
    """Whoever a finding names first, then whoever nobody's waiting explains, workers before the rest."""
    alive = {one.pid for one in scene.standings}
    named = [finding.pids[0] for finding in findings if finding.pids and finding.pids[0] in alive]
    waiting = waiters(scene, alive)
    last = [one for one in scene.standings if one.pid not in waiting] or scene.standings
    waited_for = waited_on(scene, (one.pid for one in last))
    order = sorted(last, key=lambda one: _suspicion(one, waited_for[one.pid]))
    return tuple(dict.fromkeys([*named, *(one.pid for one in order)]))


def _suspicion(one: Standing, waited_for: int) -> tuple[int, int, int, int]:
    """Small for somebody who is waited for, does not move or just idle, and runs the model."""
    return -waited_for, int(one.moves), int(ranks.is_idle(one)), _ROLES.index(one.look.process.role)


class _Reporter:
    """Makes of a standing what a report says of the process."""

    def __init__(self, bundle: Bundle) -> None:
        self._words = LastWords(bundle)
        self._spans: dict[int | str, PhaseSpan] = {}
        for span in sorted(bundle.timeline, key=lambda span: span.began, reverse=True):
            self._spans.setdefault(span.source, span)
            self._spans.setdefault(span.rank, span)

    def __call__(self, one: Standing, doing: str, threads: tuple[ReportedThread, ...]) -> ReportedProcess:
        process, sample = one.look.process, one.look.sample
        return ReportedProcess(
            pid=one.pid,
            name=process.name,
            role=process.role,
            rank=process.rank,
            label=process.label,
            state=sample.state,
            cpu_percent=round(one.change.cpu * 100, 1) if one.change else 0.0,
            memory_bytes=sample.memory_bytes,
            doing=doing,
            phase=self._phase(process),
            where=one.place.frames if one.place else (),
            last_words=self._words.of(process.id.pid, process.label),
            others=threads,
        )

    def _phase(self, process: Process) -> Phase | None:
        """The last phase that the process itself was seen to enter."""
        by_label = self._spans.get(process.label) if process.label else None
        by_rank = self._spans.get(process.rank) if process.rank >= 0 else None
        own = [one for one in (by_label, by_rank) if one]
        return max(own, key=lambda span: span.began).phase if own else None


def _gaps(bundle: Bundle) -> tuple[Gap, ...]:
    """Every gap of the bundle and of its last look, each once."""
    found = list(bundle.gaps)
    for look in bundle.looks[-1:]:
        found += look.gaps
        found += [gap for one in look.processes for gap in one.gaps]
    return tuple(dict.fromkeys(found))
