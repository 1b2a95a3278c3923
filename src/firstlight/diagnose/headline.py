"""One sentence: what is wrong, with whom, since when, and who waits for it. Pure."""

import re

from firstlight.core.gap import Gap
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty, Phase, Role
from firstlight.core.words import exit_words
from firstlight.diagnose.compare import Change
from firstlight.diagnose.names import listed, of_exit
from firstlight.diagnose.ranks import is_idle
from firstlight.diagnose.reasons import because
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.weigh import Verdicts

_ANSWERS = frozenset({Phase.HTTP_BIND, Phase.VERIFY, Phase.SERVING})
_WORK_LOOPS = re.compile(r"(^|\.)(worker_busy_loop|run_busy_loop|event_loop_\w+)$")
_BYSTANDERS = {Role.FRONT, Role.HELPER}
"""Fronts move whenever somebody asks for their health, trackers whenever they please."""


def headline(
    scene: Scene, verdicts: Verdicts, suspect: Standing | None, doing: dict[int, str], *, stalled: bool
) -> str:
    """The verdict in one sentence."""
    findings = verdicts.findings
    if scene.missed:
        return _after_death(scene, findings)
    moving = "" if stalled or verdicts.stuck or _stands_still(scene, findings) else _moving(scene)
    if moving:
        slow = _why(scene, verdicts) if _is_slow(verdicts) else ""
        return f"still moving in {scene.bundle.phase.value}: {slow}{moving}"
    if findings and findings[0].id == "program_failed":
        return _after_death(scene, findings)
    if not stalled and verdicts.cause is None and _is_idle(scene):
        return f"idle in {scene.bundle.phase.value}, or hung without anybody asking: {_listening(scene)}"
    return _standing_still(scene, verdicts, suspect, doing, stalled=stalled)


def _standing_still(
    scene: Scene, verdicts: Verdicts, suspect: Standing | None, doing: dict[int, str], *, stalled: bool
) -> str:
    """Nobody is missed and nothing moves: why, and who stands in whose way."""
    why = _why(scene, verdicts)
    is_slow = _is_slow(verdicts) and not stalled
    begin = (
        f"slow in {scene.bundle.phase.value}"
        if is_slow
        else _beginning(scene, stalled=stalled or verdicts.cause is not None)
    )
    if suspect is None:
        return f"{begin}: {why if verdicts.cause else ''}none of its processes could be seen"
    who = f"{scene.name(suspect.pid)} {doing[suspect.pid]}"
    if any(suspect in group.members for group in scene.groups) and _all_meet(scene):
        return f"{begin}: {why}{_together(scene)}; {who}"
    return f"{begin}: {why}{who}{_waiting(scene, (suspect.pid,))}"


def _all_meet(scene: Scene) -> bool:
    """Whether all ranks wait for each other, which accuses none of them."""
    return all(group.together and not group.first.stopped for group in scene.groups)


def _together(scene: Scene) -> str:
    places = f", in {len(scene.groups)} different places" if len(scene.groups) > 1 else ""
    return f"all {sum(len(group.members) for group in scene.groups)} ranks wait where they meet{places}"


def _why(scene: Scene, verdicts: Verdicts) -> str:
    """The cause, unless what the suspect does says it already; or that it is unknown."""
    if verdicts.cause is None:
        return f"{scene.bundle.question or 'cause unknown'}; "
    if verdicts.evident:
        return ""
    proof = "" if verdicts.cause.verdict == Certainty.ESTABLISHED else " (supported, not established)"
    return f"{verdicts.cause.title}{proof}; "


def _is_slow(verdicts: Verdicts) -> bool:
    """Whether it is established that it works and takes long, and nothing else is."""
    return verdicts.cause is not None and verdicts.cause.verdict == Certainty.ESTABLISHED and not verdicts.stuck


def _stands_still(scene: Scene, findings: tuple[Finding, ...]) -> bool:
    """Whether somebody whom a finding names stands still while those move who only answer questions."""
    accused = {finding.pids[0] for finding in findings if finding.pids}
    stands = any(one.pid in accused and one.change is not None and not one.moves for one in scene.standings)
    return stands and all(one.look.process.role in _BYSTANDERS for one in scene.standings if one.moves)


def _moving(scene: Scene) -> str:
    """Who moved between the looks and how; empty if nobody did."""
    changes = scene.changes
    if changes is None or changes.change is not Change.MOVING:
        return ""
    moved = [f"{scene.name(one.id.pid)} {one.why}" for one in changes.processes if one.change is Change.MOVING]
    return listed(moved[:3]) or "processes come and go"


def _beginning(scene: Scene, *, stalled: bool) -> str:
    """What is known of the server as a whole. Who looked at it once does not know for how long it has been so."""
    phase = scene.bundle.phase.value
    watched = scene.bundle.quiet_since > 0
    if not stalled and not watched and scene.changes is not None:
        if scene.changes.change is Change.SPINNING:
            return f"computing in {phase}"
        return f"nothing moved for {scene.changes.seconds:.0f} s in {phase}"
    quiet = scene.bundle.at - scene.bundle.quiet_since
    since = f" for {quiet:.0f} s" if scene.bundle.quiet_since > 0 and quiet >= 1 else ""
    return f"stalled in {phase}{since}"


def _is_idle(scene: Scene) -> bool:
    """Whether it may only have nothing to do: it listens, and everybody waits as one waits for work."""
    patient = (one for one in scene.standings if one.look.process.role is not Role.HELPER)
    busy = [one for one in patient if not is_idle(one) and not _awaits_work(one)]
    return scene.bundle.phase in _ANSWERS and bool(_own_ports(scene)) and not busy and not scene.bundle.question


def _awaits_work(one: Standing) -> bool:
    """Whether it stands where an engine takes the next request from: vLLM's busy loops, SGLang's event loops."""
    return not one.moves and not one.stopped and any(_WORK_LOOPS.search(frame.function) for frame in one.stack)


def _listening(scene: Scene) -> str:
    ports = ", ".join(map(str, _own_ports(scene)))
    return f"it listens on port {ports}; `firstlight attach :{_own_ports(scene)[0]} --once` asks it for a token"


def _own_ports(scene: Scene) -> list[int]:
    listeners = scene.last.listeners if scene.last and not isinstance(scene.last.listeners, Gap) else ()
    own = {one.pid for one in scene.standings}
    ports = sorted({one.port for one in listeners if one.pid in own})
    return [scene.bundle.port] if scene.bundle.port in ports else ports[:3]


def _after_death(scene: Scene, findings: tuple[Finding, ...]) -> str:
    gone = scene.deaths[0]
    left = _left(scene)
    more = len(scene.deaths) - 1
    later = f" ({more} more went with it)" if more else ""
    why = because(findings, gone.id.pid)
    said = f"in {scene.bundle.phase.value}, {of_exit(gone)} {exit_words(gone)}{later}{why}"
    if not left:
        ended = scene.root is None or scene.root in {one.id for one in scene.ended}
        return f"the server ended: {said}" if ended else said
    bereft = "".join(f"; {finding.title}" for finding in findings if finding.id == "dead_pipe_peer")
    return f"{said}{_waiting(scene, (gone.id.pid,)) or bereft or _still_there(scene)}"


def _waiting(scene: Scene, pids: tuple[int, ...]) -> str:
    waiters = scene.waiters_for(pids)
    if not waiters:
        return ""
    return f"; {scene.names.all(waiters)} {'waits' if len(waiters) == 1 else 'wait'} for it"


def _left(scene: Scene) -> list[int]:
    """Who is still there; a resource tracker, which outlives everybody, does not count."""
    left = (one for one in scene.alive if one.role is not Role.HELPER)
    return [one.id.pid for one in sorted(left, key=lambda one: one.rank)]


def _still_there(scene: Scene) -> str:
    pids = _left(scene)
    return f"; {scene.names.all(pids)} {'is' if len(pids) == 1 else 'are'} still there"
