"""A process burns CPU in one place, in code that reads like waiting, or after a peer has gone."""

import re
from collections.abc import Callable, Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.devices import runners
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus, unseen_stacks
from firstlight.diagnose.standing import Standing

_WAITING_WORDS = re.compile(
    r"\b(while|pass|continue|wait|poll|spin|yield|sleep|is_set|ready|done|barrier)\b", re.IGNORECASE
)
_COPIES = re.compile(r"^(copy_|_copy\w*|_?to_copy) \(|^(cu|cuda|hip|aclrt)Memcpy")
_COPIES_IN_CODE = re.compile(r"\.(copy_|cuda|npu|xpu|hpu|cpu|item|tolist)\(|\.to\([^)]*(device|cuda|npu|xpu|hpu)")


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        if not one.spins:
            continue
        told = [f"{frame.function} {frame.code}" for frame in one.stack[:3]] or one.words[:3]
        inner = " ".join(told).replace("_", " ")
        if scene.whole.deaths or meets_others(one) or _WAITING_WORDS.search(inner):
            used = f" {one.change.why}" if one.change else ""
            yield Sighting(quotes.shortened(f"process {one.pid}{used}"), (one.pid,))
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from unseen_stacks(scene)


def _copies(scene: Scene) -> Iterator[Sighting]:
    """Whoever runs the model is in one copy from or to a device, which reads nothing and grows by nothing, and no GPU
    works: it asks the device over and over whether it is done."""
    if _no_gpu_works(scene):
        yield from _burning(scene, _is_in_copy)


def _is_in_copy(one: Standing) -> bool:
    inner = one.words[: len(one.words) - len(one.stack) + 1]
    return any(map(_COPIES.search, inner)) or bool(_COPIES_IN_CODE.search(one.stack[0].code))


def _computes(scene: Scene) -> Iterator[Sighting]:
    """A server that should answer, and somebody who runs its model computes in one place in Python, with no GPU at
    work: whoever asks waits for that."""
    if scene.bundle.phase is Phase.SERVING and scene.bundle.question and _no_gpu_works(scene):
        for told in _burning(scene, lambda _: True):
            yield told._replace(what="computes")


def _no_gpu_works(scene: Scene) -> bool:
    cards = gpus(scene)
    return not isinstance(cards, Gap) and all(
        isinstance(one.utilisation, float) and not one.utilisation for one in cards
    )


def _burning(scene: Scene, wanted: Callable[[Standing], bool]) -> Iterator[Sighting]:
    """Those who run the model, burn CPU in one place in Python, and are as wanted."""
    for one in runners(scene):
        if one.spins and one.stack and wanted(one):
            used = f" {one.change.why}" if one.change else ""
            yield Sighting(quotes.shortened(f"process {one.pid}{used}"), (one.pid,))
            yield Sighting(quotes.stack(one), (one.pid,))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.what == "computes" for one in seen):
        return "{who} computes in one place while others wait for its answer"
    return "{who} spins: it waits and burns CPU"


CAUSE = Cause(
    id="cpu_spin",
    nature=Nature.SYMPTOM,
    title=_title,
    clues=(
        supports("Does a process burn CPU in one place, in code that waits?", _spins),
        supports("Does whoever runs the model compute in one place, GPUs idle, while a request waits?", _computes),
        supports("Is it in one copy from or to a device, GPUs idle, with nothing read and nothing growing?", _copies),
    ),
    advice=Advice(steps=("See what it waits for: a peer that is gone, or a flag that nobody sets.",)),
    traps=("One long computation looks alike from outside; the code of its place tells.",),
    each=True,
)
