"""GPU memory is full, and the allocator frees and tries again rather than fail; or it ran out in a rank that lives
on, and others wait for it."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, in_place, runners, some_in, still
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.ranks import meets_others, minority
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, lines, said

FULL_SHARE = 0.985
"""Servers fill their GPUs to 90 or 95 %; what is left then is the driver's."""
_ALLOCATES = (
    r"^(cu|cuda|hip)(MemAlloc|Malloc|MemCreate|MemMap|MemFree|Free)\w*|CachingAllocator|empty_cache|release_cached"
    r"|^\S*(capture|init_memory_pool|alloc)\w* \("
)
_WAITS = (
    rf"{COLLECTIVE}|{COMMUNICATOR}|^\S*synchronize\w* ?\(|^(cu|cuda|hip)(Stream|Event|Device|Ctx)(Synchronize|Query)"
)
_OOM = r"OutOfMemory|out of memory|not enough memory"


def _allocates(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPU memory is full, and somebody allocates, who does not wait there for others, or for what a GPU has to do."""
    if still(scene):
        waiting = {one.pid for one in (*in_place(scene, _WAITS), *filter(meets_others, runners(scene)))}
        there = some_in(scene, _ALLOCATES)
        yield from both(_full(scene), (one for one in there if isinstance(one, Gap) or not waiting & set(one.pids)))


def _said(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_full(scene), said(scene, _OOM))


def _lives_on(scene: Scene) -> Iterator[Sighting]:
    """A rank ran out of memory, gave some back, and is where the others do not meet it."""
    away = {one.rank: one.pid for one in minority(scene.groups) if one.rank >= 0}
    for line in lines(scene.bundle):
        if line.rank in away and re.search(_OOM, line.message, re.IGNORECASE):
            pid = away[line.rank]
            yield Sighting(
                shortened(f"log of {scene.name(pid)}: {line.message}"), (pid,), f"the GPU of rank {line.rank}"
            )


def _full(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        used, total = card.memory_used_bytes, card.memory_total_bytes
        if isinstance(used, int) and isinstance(total, int) and total and used >= FULL_SHARE * total:
            yield Sighting(f"GPU {card.index}: {size(used)} of {size(total)} used", what=f"GPU {card.index}")


def _free(scene: Scene) -> Iterator[Sighting]:
    cards = gpus(scene)
    if isinstance(cards, Gap) or not cards or not runners(scene) or any(_lives_on(scene)):
        return
    if not any(isinstance(one, Sighting) for one in _full(scene)) and all(
        isinstance(card.memory_used_bytes, int) for card in cards
    ):
        yield Sighting("every GPU has memory free")


CAUSE = Cause(
    id="gpu_oom_silent",
    nature=Nature.DEVICE,
    title="the memory of {what} ran out, and no process ended of it",
    clues=(
        supports("Is GPU memory full while somebody allocates or captures graphs?", _allocates),
        supports("Is GPU memory full, and does the log say so?", _said),
        supports("Did a rank run out of GPU memory, and do the others wait for it?", _lives_on),
        rules_out("Has every GPU memory free?", _free),
    ),
    advice=Advice(
        confirm=("Start once with less: --mem-fraction-static 0.8 (SGLang), --gpu-memory-utilization 0.8 (vLLM).",),
        work_around=(
            (
                "Fewer and smaller: --chunked-prefill-size, --max-running-requests, --cuda-graph-max-bs (SGLang);"
                " --max-num-seqs, --max-num-batched-tokens (vLLM)."
            ),
        ),
        repair=("See who else holds memory of that GPU; leave room for graphs and workspaces.",),
    ),
    traps=("A server that serves has its GPUs nearly full, too: 95 % is no sign.",),
)
