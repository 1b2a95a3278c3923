"""The CPU does not know an instruction of a program or library that was built for newer ones."""

from collections.abc import Iterator
from signal import Signals

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.failures import Kind, ended, failed
from firstlight.diagnose.scene import Scene

_STATUS = 128 + Signals.SIGILL


def _died(scene: Scene) -> Iterator[Sighting]:
    yield from (ended(gone) for gone in scene.deaths[:1] if gone.signal == Signals.SIGILL or gone.code == _STATUS)


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.INSTRUCTION)


CAUSE = Cause(
    id="cpu_too_old",
    nature=Nature.MACHINE,
    title="the CPU does not know an instruction that the server was built with",
    clues=(
        supports("Was a process killed for an illegal instruction (SIGILL)?", _died),
        supports("Did a process end as an illegal instruction was told of?", _told),
    ),
    advice=Advice(
        confirm=(
            "lscpu | grep Flags; look for avx2, avx512f, amx_tile; in a virtual machine its CPU model decides.",
        ),
        repair=("A build for this CPU, or one that chooses by itself; let the virtual machine see the host's CPU.",),
    ),
    traps=("Some libraries end themselves by this signal where they should have aborted.",),
)
