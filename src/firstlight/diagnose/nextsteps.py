"""What to do next: close the gaps that hid something, and collect what would decide. Pure."""

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.core.words import counted, gap_words
from firstlight.diagnose.collect import what_to_collect
from firstlight.diagnose.compare import Change
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.waits import Kind
from firstlight.diagnose.weigh import Verdicts

_STEPS_MAX = 6
_STEPS_MAX_UNKNOWN = 9
_OF_SYMPTOMS = 3
"""Where no cause is known, what to collect is worth more than advice on symptoms."""
_HIDDEN_TOLD = 2


def next_steps(scene: Scene, verdicts: Verdicts, gaps: tuple[Gap, ...], *, stalled: bool) -> tuple[str, ...]:
    """Advice of the findings first, then how to close the gaps, then what would tell more if no cause was found."""
    steps = [advice for finding in verdicts.findings for advice in finding.advice]
    changes = scene.changes
    if verdicts.cause or not (stalled or not (changes and changes.change is Change.MOVING)):
        return tuple(dict.fromkeys([*steps, *_to_close(gaps)]))[:_STEPS_MAX]
    told = [*steps[:_OF_SYMPTOMS], *_to_close(gaps), *_to_collect(scene), *_to_examine(verdicts)]
    return tuple(dict.fromkeys(told))[:_STEPS_MAX_UNKNOWN]


def _to_close(gaps: tuple[Gap, ...]) -> list[str]:
    telling = [gap for gap in gaps if gap.reason in {GapReason.NO_PERMISSION, GapReason.NOT_INSTALLED} and gap.detail]
    return list(dict.fromkeys(f"To see the {gap.what}: {gap.detail}." for gap in telling))


def _to_examine(verdicts: Verdicts) -> list[str]:
    """What kept most causes from being examined, each with its way out."""
    worst = [(gap, count) for gap, count in verdicts.hidden if gap.detail][:_HIDDEN_TOLD]
    return [
        f"Of {counted(count, 'more cause')} nothing can be said without this: {gap_words(gap)}."
        for gap, count in worst
    ]


def _to_collect(scene: Scene) -> list[str]:
    steps = []
    if len(scene.bundle.looks) < 2:
        steps.append("Look a second time some seconds later: slow or stuck is a difference.")
    if any(meets_others(one) for one in scene.standings):
        steps.append(
            "Collect the stacks of all ranks, on the other nodes too; set NCCL_DEBUG=INFO, or for gloo "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL, and start again."
        )
    steps += what_to_collect(scene)
    native = [
        one.pid for one in scene.standings if one.wait.kind in {Kind.FUTEX, Kind.RUNS, Kind.STORAGE, Kind.OTHER}
    ]
    if native:
        steps.append(f"Native stacks would tell more: py-spy dump --native --pid {native[0]}")
    return steps
