"""Ranks disagree about autotuning: some measure kernels together, others have their results and go on."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.log import LogLine
from firstlight.core.look import Frame
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
_TUNER = re.compile(r"tun(er|ing)?\w*\.py$|/triton/", re.IGNORECASE)
_CACHE = ("cache hit", "from cache", "cached config", "loaded config", "configs from", "hits on rank")


def _split(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks tune, others do not, and nothing moves."""
    tuning, others = _divided(scene)
    if still(scene) and complete(scene):
        yield from both(quoted(scene, tuning, _TUNES), _away(scene, others))
    yield from unseen_places(scene)


def _one_had_them(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks wait for others within the tuner, others wait elsewhere, and only some ranks told of cached results."""
    waiting = set(in_place(scene, COLLECTIVE))
    tuning, others = ([one for one in those if one in waiting] for those in _divided(scene))
    if still(scene):
        yield from both(both(quoted(scene, tuning, _TUNES), _away(scene, others)), _hits(scene, tuning))


def _divided(scene: Scene) -> tuple[list[Standing], list[Standing]]:
    """Those who tune, and those who were seen not to. A function that all of them are in only called for it, but for
    the tuner's own."""
    there, away = in_place(scene, _TUNES), elsewhere(scene, _TUNES)
    called = _outer(there) if len(there) == len(runners(scene)) else frozenset()
    tuning = [one for one in there if _tunes(one, called)]
    return tuning, [*away, *(one for one in there if one not in tuning and tuning)]


def _away(scene: Scene, those: list[Standing]) -> Iterator[Sighting]:
    """Where they stand; it is not they who tune."""
    yield from (one._replace(pids=()) for one in quoted(scene, those, COLLECTIVE))


def _outer(those: tuple[Standing, ...]) -> frozenset[str]:
    """The functions that all of them are in, but for the tuner's own."""
    stacks = [{_called(frame) for frame in one.stack if not _TUNER.search(frame.file)} for one in those]
    return frozenset(set.intersection(*stacks) if stacks else ())


def _called(frame: Frame) -> str:
    return f"{frame.function} ({frame.file.rpartition('/')[2]}"


def _tunes(one: Standing, called: frozenset[str]) -> bool:
    """Whether it is in a tuner's function that does not only call for tuning."""
    inner = [words for words in one.words if re.search(_TUNES, words, re.IGNORECASE)]
    return any(words.rpartition(":")[0] not in called for words in inner)


def _hits(scene: Scene, tuning: list[Standing]) -> Iterator[Sighting]:
    """Lines that tell of cached results, from ranks other than those that tune, who told of no such result."""
    ranks = {one.rank for one in tuning}
    told = [line for line in lines(scene.bundle) if line.rank >= 0 and _is_hit(line)]
    theirs = {line.message for line in told if line.rank in ranks}
    for line in told:
        if line.message not in theirs:
            yield Sighting(f"log: rank {line.rank} took tuned configurations from its cache")


def _is_hit(line: LogLine) -> bool:
    """Whether it tells of a cached result; that it is a tuner's, the file may say that it comes from."""
    told = line.text.lower()
    return "tun" in told and any(words in told for words in _CACHE)


def _awaited(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks tune on their own, and all others wait for them in a collective, be it within the tuner."""
    waiting = dict.fromkeys(in_place(scene, COLLECTIVE))
    tuning = [one for one in in_place(scene, _TUNES) if one not in waiting]
    if complete(scene) and len(tuning) + len(waiting) == len(runners(scene)):
        yield from both(quoted(scene, tuning, _TUNES), quoted(scene, waiting, COLLECTIVE))


def _awaits_another_machine(scene: Scene) -> Iterator[Sighting | Gap]:
    """All ranks here meet within the tuner, unmoved, and those who do not come are on another machine."""
    meeting = set(in_place(scene.whole, COLLECTIVE))
    there = [one for one in in_place(scene.whole, _TUNES) if one in meeting and _tunes(one, frozenset())]
    if scene.whole.bundle.nodes > 1 and still(scene) and complete(scene) and len(there) == len(runners(scene)):
        yield from quoted(scene, there, _TUNES)


CAUSE = Cause(
    id="autotune",
    nature=Nature.DIVERGED,
    together=True,
    title="kernels are being tuned by {who}, and not by the other ranks",
    clues=(
        decides(
            "Do ranks meet in the tuner while others, who alone found cached results, are past it?", _one_had_them
        ),
        supports("Do some ranks tune on their own while all others wait for them in a collective?", _awaited),
        supports("Do some ranks tune kernels while others are elsewhere, with nothing moving?", _split),
        supports("Do all ranks here meet in the tuner, with others on another machine?", _awaits_another_machine),
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
