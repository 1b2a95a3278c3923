"""A smaller scene: the same stall with less around it, so that the launches that follow take seconds.

Each step is kept only if the same stall still shows, and costs a launch: where the stall itself names suspects, the
search is over sooner without. What was found in the small scene is confirmed in the given one.
"""

from collections.abc import Iterator

from firstlight.core.record import Record
from firstlight.core.server import ServerCommand
from firstlight.isolate.problem import Outcome, Setting
from firstlight.isolate.sitting import Commands, Sitting

SLOW_S = 90.0
"""A first launch that took longer is worth a try with less."""


class Step(Record):
    """Words and variables that are added to a command, unless one of `unless` stands in it."""

    name: str
    words: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    unless: tuple[str, ...] = ()


DUMMY = "dummy weights"
LAYERS = "two layers"
EAGER = "no graphs, debug logs"
_DUMMY = Step(name=DUMMY, words=("--load-format", "dummy"), unless=("--load-format",))
_NCCL = ("NCCL_DEBUG", "INFO")
STEPS: dict[str, tuple[Step, ...]] = {
    "vllm": (
        _DUMMY,
        Step(name=LAYERS, words=("--hf-overrides", '{"num_hidden_layers": 2}'), unless=("--hf-overrides",)),
        Step(name=EAGER, words=("--enforce-eager",), variables=(("VLLM_LOGGING_LEVEL", "DEBUG"), _NCCL)),
    ),
    "sglang": (
        _DUMMY,
        Step(
            name=LAYERS,
            words=("--json-model-override-args", '{"num_hidden_layers": 2}'),
            unless=("--json-model-override-args",),
        ),
        Step(name=EAGER, words=("--disable-cuda-graph", "--log-level", "debug"), variables=(_NCCL,)),
    ),
}
"""By engine, in the order in which they are tried. vLLM 0.8 to 0.33, SGLang 0.4 to 0.5."""


def steps_for(command: ServerCommand) -> dict[str, Step]:
    """The steps that this command can take, by name."""
    words = {word.partition("=")[0] for word in command.argv}
    return {step.name: step for step in STEPS.get(command.engine, ()) if not words & set(step.unless)}


def rank_switches(commands: Commands, full: Setting) -> Setting:
    """The switches without which there are fewer ranks."""
    ranks = commands.launch(full, {}, (), 0)[0].ranks
    return frozenset(name for name in full if commands.launch(full - {name}, {}, (), 0)[0].ranks < ranks)


def smaller(sitting: Sitting, commands: Commands, full: Setting) -> Setting:
    """Make the scene of a sitting as small as the same stall allows; gives the switches that were dropped for it."""
    dropped: Setting = frozenset()
    ranks = rank_switches(commands, full)
    if ranks and _still(sitting, full - ranks, (), "one rank instead of several: it would start faster"):
        dropped = ranks
    for name in _scenes(commands, full):
        scene = (*sitting.scene, name)
        if _still(sitting, full - dropped, scene, f"{name}: it would start faster"):
            sitting.scene = scene
    return dropped


def _scenes(commands: Commands, full: Setting) -> Iterator[str]:
    known = steps_for(commands.launch(full, {}, (), 0)[0])
    return (name for name in (DUMMY, LAYERS) if name in known)


def _still(sitting: Sitting, setting: Setting, scene: tuple[str, ...], why: str) -> bool:
    sensible = sitting.space.sensible(setting)
    return sitting.ask(sensible, why, scene=scene).outcome is Outcome.SAME
