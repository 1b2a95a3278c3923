"""What to do next: look at whoever is waited for, close the gaps that hid something, collect what decides. Pure."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason, Role
from firstlight.core.words import counted, gap_words
from firstlight.diagnose.collect import lacks_gpus, what_to_collect
from firstlight.diagnose.compare import Change
from firstlight.diagnose.links import links
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind
from firstlight.diagnose.weigh import Verdicts

_STEPS_MAX = 6
_STEPS_MAX_UNKNOWN = 5
"""Nobody does more than that, and what is told first is done first."""
_OF_SYMPTOMS = 2
"""Where no cause is known, what to collect is worth more than advice on symptoms."""
_OTHERS_TOLD = 2
_HID_ENOUGH = 2
"""Causes that a gap must have hidden to be worth a step."""
_WHERE_NOTHING_IS_LEFT = (
    "Find the option that is to blame, if one is: firstlight isolate -- CMD",
    "Start it again with its log at debug level: VLLM_LOGGING_LEVEL=DEBUG, or --log-level debug.",
)
_BYSTANDERS = frozenset({Role.HELPER, Role.COMPILER})


def next_steps(scene: Scene, verdicts: Verdicts, gaps: tuple[Gap, ...], *, stalled: bool) -> tuple[str, ...]:
    """Advice of the findings and how to close the gaps; without a cause first at whom to look, and then what would
    tell more."""
    steps = [advice for finding in verdicts.findings for advice in finding.advice]
    changes = scene.changes
    if verdicts.cause or not (stalled or not (changes and changes.change is Change.MOVING)):
        return tuple(dict.fromkeys([*steps, *_to_close(scene, gaps), *_to_close_around(scene, gaps)]))[:_STEPS_MAX]
    told = [
        *_to_look_at(scene),
        *steps[:_OF_SYMPTOMS],
        *_to_close(scene, gaps),
        *_to_collect(scene),
        *_to_examine(scene, verdicts, gaps),
        *_to_close_around(scene, gaps),
    ]
    return tuple(dict.fromkeys(told or _WHERE_NOTHING_IS_LEFT))[:_STEPS_MAX_UNKNOWN]


def _to_look_at(scene: Scene) -> list[str]:
    """Processes that were not looked at and that somebody of the server waits for, the firm waits first."""
    own = {one.pid for one in scene.standings} | set(scene.bundle.watchers) | scene.gone
    waiting = {one.pid for one in scene.standings if one.look.process.role not in _BYSTANDERS and not one.moves}
    found = [one for one in links(scene) if one.target.kind == "process" and one.source.pid in waiting]
    others = sorted((one for one in found if one.target.pid not in own), key=lambda one: not one.firm)
    awaited = {one.target.pid: one for one in reversed(others)}
    order = sorted(awaited.values(), key=others.index)
    return [_look_at(scene, one.target.pid, one.source.pid) for one in order[:_OTHERS_TOLD]]


def _look_at(scene: Scene, pid: int, waiting: int) -> str:
    end = f"the other end of what {scene.name(waiting)} waits for"
    return f"Look at {scene.name(pid)}, which has {end}: firstlight look {pid}"


def _concerns(scene: Scene, gap: Gap) -> bool:
    """Whether a gap may hide why somebody stands where they stand: it is one of a process that waits."""
    one = scene.standing(gap.pid)
    return one is not None and one.look.process.role not in _BYSTANDERS and not one.moves


def _to_close(scene: Scene, gaps: tuple[Gap, ...]) -> Iterator[str]:
    return (_closing(gap) for gap in gaps if _is_closable(gap) and gap.pid and _concerns(scene, gap))


def _to_close_around(scene: Scene, gaps: tuple[Gap, ...]) -> Iterator[str]:
    """Gaps of the machine; nothing about GPUs where it has none."""
    machine = (gap for gap in gaps if _is_closable(gap) and not gap.pid)
    return (_closing(gap) for gap in machine if not ("GPU" in gap.what and lacks_gpus(scene)))


def _is_closable(gap: Gap) -> bool:
    return gap.reason in {GapReason.NO_PERMISSION, GapReason.NOT_INSTALLED} and bool(gap.detail)


def _closing(gap: Gap) -> str:
    return f"To see the {gap.what}: {gap.detail}."


def _to_examine(scene: Scene, verdicts: Verdicts, closed: tuple[Gap, ...]) -> Iterator[str]:
    """What kept most causes from being examined, with its way out, where it concerns those who wait."""
    told = {gap.what for gap in closed}
    for gap, count in verdicts.hidden:
        if count >= _HID_ENOUGH and _concerns(scene, gap) and gap.detail and gap.what not in told:
            yield f"Of {counted(count, 'more cause')} nothing can be said without this: {gap_words(gap)}."


def _to_collect(scene: Scene) -> list[str]:
    steps = []
    if len(scene.bundle.looks) < 2:
        steps.append("Look a second time some seconds later: slow or stuck is a difference.")
    if any(meets_others(one) for one in scene.standings):
        steps.append(_stacks_of_all(scene))
    steps += what_to_collect(scene)
    native = [one.pid for one in scene.standings if _would_tell_more(one)]
    if native:
        steps.append(f"Native stacks would tell more: py-spy dump --native --pid {native[0]}")
    return steps


def _stacks_of_all(scene: Scene) -> str:
    gloo = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
    debug = f"set {gloo}" if lacks_gpus(scene) else f"set NCCL_DEBUG=INFO, or for gloo {gloo}"
    return f"Collect the stacks of all ranks, on the other nodes too; {debug}, and start again."


def _would_tell_more(one: Standing) -> bool:
    """Whether it waits or computes below Python, and its native stack was not seen."""
    unseen = one.thread is None or isinstance(one.thread.native, Gap) or not one.thread.native
    return unseen and one.wait.kind in {Kind.FUTEX, Kind.RUNS, Kind.STORAGE, Kind.OTHER}
