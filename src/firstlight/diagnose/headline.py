"""One sentence: what is wrong, with whom, since when, and who waits for it. Pure."""

from firstlight.core.report import Finding
from firstlight.core.words import exit_words
from firstlight.diagnose.compare import Change
from firstlight.diagnose.names import listed, of_exit
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing, difference


def headline(scene: Scene, findings: tuple[Finding, ...], suspect: Standing | None, doing: dict[int, str]) -> str:
    """The verdict in one sentence."""
    if scene.deaths:
        return _after_death(scene)
    certain = any(finding.verdict == "established" for finding in findings)
    moving = "" if certain else _moving(scene)
    if moving:
        return f"still moving in {scene.bundle.phase.value}: {moving}"
    begin = _beginning(scene)
    if suspect is None:
        return f"{begin}: none of its processes could be seen"
    explained = any(suspect.pid in finding.pids for finding in findings)
    unknown = "" if explained else "cause unknown; "
    return f"{begin}: {unknown}{scene.name(suspect.pid)} {doing[suspect.pid]}{_waiting(scene, (suspect.pid,))}"


def _moving(scene: Scene) -> str:
    """Who moved between the looks and how; empty if nobody did."""
    changes = difference(scene.bundle)
    if changes is None or changes.change is not Change.MOVING:
        return ""
    moved = [f"{scene.name(one.id.pid)} {one.why}" for one in changes.processes if one.change is Change.MOVING]
    return listed(moved[:3]) or "processes come and go"


def _beginning(scene: Scene) -> str:
    quiet = scene.bundle.at - scene.bundle.quiet_since
    since = f" for {quiet:.0f} s" if scene.bundle.quiet_since > 0 and quiet >= 1 else ""
    return f"stalled in {scene.bundle.phase.value}{since}"


def _after_death(scene: Scene) -> str:
    gone = scene.deaths[0]
    left = _left(scene)
    more = len(scene.deaths) - 1
    later = f" ({more} more ended after it)" if more else ""
    said = f"in {scene.bundle.phase.value}, {of_exit(gone)} {exit_words(gone)}{later}"
    if not left:
        return f"the server ended: {said}"
    return f"{said}{_waiting(scene, (gone.id.pid,)) or _still_there(scene)}"


def _waiting(scene: Scene, pids: tuple[int, ...]) -> str:
    waiters = scene.waiters_for(pids)
    if not waiters:
        return ""
    return f"; {scene.names.all(waiters)} {'waits' if len(waiters) == 1 else 'wait'} for it"


def _left(scene: Scene) -> list[int]:
    ended = {gone.id for gone in scene.ended}
    return [one.pid for one in scene.standings if one.look.process.id not in ended]


def _still_there(scene: Scene) -> str:
    pids = _left(scene)
    return f"; {scene.names.all(pids)} {'is' if len(pids) == 1 else 'are'} still there"
