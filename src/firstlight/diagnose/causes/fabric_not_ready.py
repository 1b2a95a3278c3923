"""On a machine with NVSwitch the fabric is not set up: CUDA reports 802, or waits for it."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, speaks_against, supports
from firstlight.diagnose.devices import some_in
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, said

_ERROR_802 = (
    r"\b(cuda|runtime|driver)\b.{0,40}\berror:? \(?802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY"
    r"|cudaErrorSystemNotReady"
)
_STARTS = (
    r"^cu(da)?(Init|GetDeviceCount|DeviceGetCount|SetDevice)|_cuda_init|_lazy_init|device_count|cuMulticast|ncclNvls"
    r"|^(set_device|is_available|mem_get_info|get_device_properties) \("
)
_UNREADY = ("in progress", "not started")


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from said(scene, _ERROR_802)


def _waits(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_unready(scene), some_in(scene, _STARTS))


def _unready(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        if isinstance(card.fabric, str) and (card.fabric in _UNREADY or "error" in card.fabric):
            yield Sighting(shortened(f"GPU {card.index}: state of the NVLink fabric: {card.fabric}"))


def _ready(scene: Scene) -> Iterator[Sighting]:
    cards = gpus(scene)
    if not isinstance(cards, Gap) and cards and all(card.fabric == "completed" for card in cards):
        yield Sighting("every GPU has completed joining the NVLink fabric, now")


CAUSE = Cause(
    id="fabric_not_ready",
    nature=Nature.DEVICE,
    title="the NVLink fabric is not set up, so that CUDA does not start",
    clues=(
        decides("Does CUDA report error 802, that the system is not yet initialised?", _refused),
        supports("Is the fabric not ready while somebody starts CUDA or multicast?", _waits),
        speaks_against("Has every GPU joined the fabric?", _ready),
        foresees("Has a GPU not joined the fabric?", _unready),
    ),
    advice=Advice(
        confirm=("nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager.",),
        repair=(
            "Install nvidia-fabricmanager of exactly the driver's version, and systemctl enable --now it.",
            "On NVL systems see that nvidia-imex runs on every node of the domain.",
        ),
    ),
    traps=("The fabric takes minutes after boot: a server that starts at boot may be too early.",),
)
