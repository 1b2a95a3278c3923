"""Ranks disagree about autotuning: some measure kernels together, others have their results and go on."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.devices import (
    COLLECTIVE,
    complete,
    elsewhere,
    in_place,
    quoted,
    runners,
    still,
    unseen_places,
)
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines
from firstlight.diagnose.standing import Standing

_TUNES = (
    r"auto_?tun|_tun(e|ing)\b|\((tuner|autotune_process)\.py|tunable|benchmark_(all_configs|choices?)\b|^do_bench\b"
    r"|AlgoGetHeuristic|FindConvolution"
)
"""FlashInfer's and TensorRT-LLM's tuners, torch's and Triton's, and those of the libraries of AMD."""
_CACHE = ("cache hit", "from cache", "cached config", "loaded config", "hits on rank")


def _split(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks tune, others do not, and nothing moves."""
    tuning, others = in_place(scene, _TUNES), elsewhere(scene, _TUNES)
    if still(scene) and complete(scene):
        yield from both(quoted(scene, tuning, _TUNES), quoted(scene, others))
    yield from unseen_places(scene)


def _one_had_them(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks wait for others within the tuner, others wait elsewhere, and only some ranks told of cached results."""
    waiting = set(in_place(scene, COLLECTIVE))
    tuning = [one for one in in_place(scene, _TUNES) if one in waiting]
    others = [one for one in elsewhere(scene, _TUNES) if one in waiting]
    if still(scene):
        yield from both(both(quoted(scene, tuning, _TUNES), quoted(scene, others)), _hits(scene, tuning))


def _hits(scene: Scene, tuning: list[Standing]) -> Iterator[Sighting]:
    """Lines that tell of cached results, from ranks other than those that tune."""
    ranks = {one.rank for one in tuning}
    for line in lines(scene.bundle):
        told = line.message.lower()
        if "tun" in told and any(words in told for words in _CACHE) and line.rank >= 0 and line.rank not in ranks:
            yield Sighting(f"log: rank {line.rank} took tuned configurations from its cache")


def _awaited(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks tune on their own, and all others wait for them in a collective, be it within the tuner."""
    waiting = dict.fromkeys(in_place(scene, COLLECTIVE))
    tuning = [one for one in in_place(scene, _TUNES) if one not in waiting]
    if complete(scene) and len(tuning) + len(waiting) == len(runners(scene)):
        yield from both(quoted(scene, tuning, _TUNES), quoted(scene, waiting, COLLECTIVE))


CAUSE = Cause(
    id="autotune",
    nature=Nature.DIVERGED,
    together=True,
    title="{who} tunes kernels while other ranks do not",
    clues=(
        decides(
            "Do ranks meet in the tuner while others, who alone found cached results, are past it?", _one_had_them
        ),
        supports("Do some ranks tune on their own while all others wait for them in a collective?", _awaited),
        supports("Do some ranks tune kernels while others are elsewhere, with nothing moving?", _split),
    ),
    advice=Advice(
        confirm=(
            (
                "Remove the autotune cache (vLLM: ~/.cache/vllm/flashinfer_autotune_cache): if it then starts and the"
                " next start hangs, it is this."
            ),
        ),
        work_around=("--disable-flashinfer-autotune (SGLang), --no-enable-flashinfer-autotune (vLLM).",),
        repair=("Update flashinfer and the engine; keep one cache for all ranks, filled by a start of all of them.",),
    ),
    traps=("It works the first time and hangs the second: caches make a second start another start.",),
    explains=frozenset({"mismatched_collective"}),
)
