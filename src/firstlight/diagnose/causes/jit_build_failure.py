"""A just-in-time build fails, and is tried again or waited for."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Role
from firstlight.core.words import exit_words
from firstlight.diagnose import building
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

FAILURES = 2
"""Compilers of one name that failed: a single one may have been a question that a build asks."""


def _failed(scene: Scene) -> Iterator[Sighting]:
    """Compilers that ended with an error or a crash, at least two of one name."""
    ended = [
        one
        for one in scene.ended
        if one.role is Role.COMPILER and (one.signal is not None or (isinstance(one.code, int) and one.code))
    ]
    names = [one.name for one in ended]
    for one in ended:
        if names.count(one.name) >= FAILURES:
            yield Sighting(shortened(f"{of_exit(one)} {exit_words(one)}"), (one.id.pid,), one.name)


def _told_and_seen(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that a build failed, and compilers were seen to fail or to come and go."""
    yield from both((*_failed(scene), *building.come_and_go(scene)), said(scene, building.BUILD_FAILED))


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from said(scene, building.BUILD_FAILED)


CAUSE = Cause(
    id="jit_build_failure",
    nature=Nature.MACHINE,
    title="a just-in-time build of kernels fails",
    clues=(
        decides("Does the log say that a build failed, and do its compilers fail or not last?", _told_and_seen),
        supports("Did compilers fail?", _failed),
        supports("Does the log say that a build failed?", _told),
    ),
    advice=Advice(
        confirm=(
            (
                "Run the build by hand: ninja -v in the extension's folder (~/.cache/flashinfer, "
                "~/.cache/torch_extensions); the first FAILED: block names the command."
            ),
        ),
        work_around=("Choose kernels that need no build: another --attention-backend or --moe-runner-backend.",),
        repair=(
            (
                "Install ahead-of-time kernels for this GPU (flashinfer-jit-cache, flashinfer-cubin) or a "
                "CUDA toolkit whose nvcc knows its architecture; MAX_JOBS=4 where compilers are killed for "
                "memory; then remove the half-built folder."
            ),
        ),
    ),
    traps=(
        (
            "It looks like a deadlock of build locks: the others wait for a lock whose holder builds, fails and "
            "starts anew."
        ),
    ),
    explains=frozenset({"slow_jit"}),
)
