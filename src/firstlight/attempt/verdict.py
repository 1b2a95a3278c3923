"""From what the watcher knows to the report. Pure: records in, a record out."""

from collections.abc import Sequence

import msgspec

from firstlight.core import redact
from firstlight.core.bundle import Bundle
from firstlight.core.report import Finding, FirstToken, Report, ReportedProcess
from firstlight.core.vocabulary import Outcome
from firstlight.core.words import exit_words
from firstlight.diagnose import because, first_loss, reported
from firstlight.supervise.questions.answer_findings import finding_of
from firstlight.supervise.watch import Watch

TAIL_LINES = 20


def report_of(
    watch: Watch,
    bundle: Bundle,
    outcome: Outcome,
    *,
    token: FirstToken | None = None,
    bundle_path: str = "",
) -> Report:
    """The report of an attempt that ended, or paused, with `outcome`."""
    weighed = reported(bundle, outcome=outcome, root=watch.target.root)
    looked, serving = bool(bundle.looks), outcome == Outcome.SERVING
    return msgspec.structs.replace(
        weighed,
        headline=headline_of(watch, outcome, weighed.findings) or weighed.headline,
        server=watch.target.root.pid,
        attached=watch.attached,
        url=watch.url,
        counter=watch.phases.counter,
        first_token=token,
        completion=watch.questions.completion.text if watch.questions.completion else "",
        processes=weighed.processes if looked else _listed(watch),
        findings=weighed.findings + _question_finding(watch, outcome),
        first_error=watch.log.first_error,
        log_tail=tuple(watch.log.lines)[-TAIL_LINES:],
        bundle=bundle_path,
        weighed=() if serving else weighed.weighed,
        next_steps=weighed.next_steps if looked and not serving else (),
        strips=watch.strips.all,
    )


def _question_finding(watch: Watch, outcome: Outcome) -> tuple[Finding, ...]:
    """What the server made of the question for a token, where that was not a token."""
    first = watch.questions.first
    if watch.serving or outcome not in {Outcome.STALLED, Outcome.NOT_LOOKED, Outcome.DEADLINE}:
        return ()
    finding = finding_of(first.last, pending_s=first.pending_s)
    return (finding,) if finding else ()


def _listed(watch: Watch) -> tuple[ReportedProcess, ...]:
    """The server's processes as the last sample had them, for a report without a look."""
    return tuple(
        ReportedProcess(
            pid=row.pid,
            name=row.name,
            role=row.role,
            rank=row.rank,
            label=row.label,
            state=row.state,
            cpu_percent=round(row.cpu_percent, 1),
            memory_bytes=row.memory_bytes,
            doing="",
            phase=row.phase,
        )
        for row in watch.rows.all
    )


def with_step(report: Report, step: str) -> Report:
    """The report with one more thing that can be done next."""
    return msgspec.structs.replace(report, next_steps=(*report.next_steps, step))


def without_secrets(report: Report) -> Report:
    """The report as it may be shown: what it says on a terminal ends in a pipe or a file as often as not."""
    return msgspec.convert(redact.plain(msgspec.to_builtins(report)), Report)


def headline_of(watch: Watch, outcome: Outcome, findings: Sequence[Finding]) -> str:
    """The sentence for outcomes that need no look; empty where the statement of who is stuck says it."""
    if outcome == Outcome.SERVING:
        return _serving(watch)
    if outcome == Outcome.EXITED:
        return _exited(watch, findings)
    if outcome == Outcome.NOT_LOOKED and watch.questions.first.last is not None:
        return f"the server answers, but no token could be verified: {watch.questions.first.last.what}"
    if outcome == Outcome.DEADLINE:
        return (
            f"the deadline passed after {watch.stamp.elapsed_s:.0f} s while the server was still "
            f"{watch.judgement.motion} in {watch.phases.phase}: {watch.judgement.why}"
        )
    if outcome == Outcome.INTERRUPTED:
        return f"interrupted after {watch.stamp.elapsed_s:.0f} s in {watch.phases.phase}, before there was a verdict"
    return ""


def _serving(watch: Watch) -> str:
    last = watch.questions.first.last
    if last is None or last.token is None:
        return "the server is serving"
    token = last.token
    if watch.attached:
        return f"first light: {token.model} answered at {watch.url}"
    return f"first light after {token.after_launch_s:.1f} s: {token.model} answered at {watch.url}"


def _exited(watch: Watch, findings: Sequence[Finding]) -> str:
    """Which process went first, how, and why; where that is not known, its first error line."""
    root = next(exit_ for exit_ in watch.exits if exit_.id == watch.target.root)
    first = first_loss(watch.exits, root.id, watch.started_wall) or root
    before = "while it served" if watch.serving else f"before it served, in {watch.phases.phase}"
    error = f": {watch.log.first_error.message[:300]}" if watch.log.first_error else ""
    said = because(findings, first.id.pid) or error
    if first.id == root.id:
        return f"the server (pid {root.id.pid}) {exit_words(root)} {before}{said}"
    return (
        f"{first.label or first.name} (pid {first.id.pid}) {exit_words(first)} first, and the server with it "
        f"(pid {root.id.pid} {exit_words(root)}) {before}{said}"
    )
