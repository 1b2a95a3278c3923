"""Capturing CUDA graphs does not end: ranks capture different sizes, or CUDA refuses something during a capture."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.devices import all_in, in_place, quoted, runners, some_in, spinning, still
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

_CAPTURES = r"^\S*(capture(_\w+)?|_capture_one_stream|capture_model|capture_one_batch_size|register_graph_buffers) \("
_REGISTERS = (
    r"register_(graph_)?buffers|get_graph_buffer_ipc_meta|all_gather_object|ncclCommRegister|IpcOpenMemHandle"
)
_REFUSED = (
    r"(cuda|hip)ErrorStreamCapture\w*|operation (not permitted|failed|would).*captur|CUDA_ERROR_STREAM_CAPTURE"
    r"|captur\w+ stream has unjoined work|dependency created on uncaptured work"
)
_ENDS_CAPTURE = r"^(cu|cuda|hip)(GraphInstantiate|StreamEndCapture|GraphUpload)|^aclmdlRICaptureEnd"
_CAPTURED = (
    r"captur\w+ .*(graph|batches|shapes)|graph captur|captured? addresses|Registering \d+ cuda graph addresses"
)


def _is_capturing(scene: Scene) -> bool:
    """By the log, or by what is on a stack: a log may end before it says so."""
    return scene.bundle.phase is Phase.GRAPH_CAPTURE or bool(in_place(scene, _CAPTURES))


def _registers(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks exchange addresses of captured graphs, and others do not."""
    there = in_place(scene, _REGISTERS)
    if _is_capturing(scene) and still(scene) and there and len(there) < len(runners(scene)):
        yield from quoted(scene, there, _REGISTERS)


def _all_register(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log ends with the registration of addresses, and ranks are in it."""
    if _is_capturing(scene) and still(scene):
        yield from both(some_in(scene, _REGISTERS), said(scene, _CAPTURED))


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(said(scene, _REFUSED), some_in(scene, _CAPTURES))


def _never_done(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver makes a graph of what was captured, and does not get done."""
    those = in_place(scene, _ENDS_CAPTURE)
    if still(scene) and those and len(those) == len(runners(scene)):
        yield from quoted(scene, those, _ENDS_CAPTURE)


def _all_capture(scene: Scene) -> Iterator[Sighting | Gap]:
    """Everybody who runs the model captures, at both looks in the same place, while GPUs spin: what was run before
    the capture, or waits within it for a peer, does not end."""
    if scene.whole.changes and still(scene):
        yield from both(all_in(scene, _CAPTURES), spinning(scene))


def _eager(scene: Scene) -> Iterator[Sighting]:
    for name in ("enforce-eager", "disable-cuda-graph"):
        if scene.bundle.option(name) is not None:
            yield Sighting(f"option: --{name}")


CAUSE = Cause(
    id="graph_capture",
    nature=Nature.DEVICE,
    together=True,
    title="capturing CUDA graphs does not end",
    clues=(
        supports("Do only some ranks exchange the addresses of captured graphs?", _registers),
        supports("Are ranks registering addresses of graphs, the last that the log tells of?", _all_register),
        supports("Does CUDA refuse an operation while somebody captures?", _refused),
        supports("Does everybody stand where the driver makes a graph, unmoved?", _never_done),
        supports("Does everybody capture, unmoved, while GPUs spin?", _all_capture),
        rules_out("Are graphs switched off?", _eager),
    ),
    advice=Advice(
        confirm=("Start once without graphs: --enforce-eager (vLLM), --disable-cuda-graph (SGLang).",),
        work_around=(
            (
                "Fewer sizes: --cuda-graph-max-bs 8 (SGLang), --compilation-config with short cudagraph_capture_sizes"
                " (vLLM); or --disable-custom-all-reduce, which registers buffers for each graph."
            ),
        ),
        repair=("Make torch, vllm or sglang and their kernel packages builds of one CUDA version.",),
    ),
    traps=("The first sizes take longest, and compile: see whether a compiler works.",),
)
