"""A just-in-time build fails, and is tried again or waited for."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Role
from firstlight.core.words import exit_words
from firstlight.diagnose import building, quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

PROGRAMS_CPU_S = 0.05
_BUILDS = re.compile(r"(^|[._])(build|compile|ninja|jit)", re.IGNORECASE)
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
    """The log says that a build failed, and compilers were seen to fail or to come and go, none of them lasting."""
    seen = (*_failed(scene), *building.come_and_go(scene), *_ran_programs(scene))
    if seen and not any(building.at_work(scene)):
        yield from both(seen, said(scene, building.BUILD_FAILED))


def _ran_programs(scene: Scene) -> Iterator[Sighting]:
    """A process that stands where something is built has run programs between the looks, and they have ended."""
    for one in scene.standings:
        old = where.before(scene, one.pid)
        used = one.look.sample.children_cpu_s - old.sample.children_cpu_s if old else 0.0
        if used >= PROGRAMS_CPU_S and any(_BUILDS.search(frame.function) for frame in one.stack):
            yield Sighting(
                quotes.shortened(f"programs that {scene.name(one.pid)} ran used {used:.1f} s of CPU"), (one.pid,)
            )


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.BUILD)


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
        supports("Did a process end as a build failed?", _ended_by_it),
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
