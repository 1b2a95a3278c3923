"""This build of NCCL has a known fault, or lacks what others call; or ranks run different builds, or set it
differently."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, speaks_against, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import (
    COLLECTIVE,
    COMMUNICATOR,
    all_in,
    in_place,
    quoted,
    runners,
    some_in,
    spinning,
    spins,
    still,
    unseen_and_still,
    unseen_native,
    version,
)
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, libraries, said, stands_in

APPEND_FIXED = (2, 29, 3)
"""On aarch64 ncclProxyGetPostedOps loses slots of the proxy's queue before this version, until nobody can append."""
_CHOOSES = re.compile(
    r"NCCL_(ALGO|PROTO|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|NVLS_ENABLE|MNNVL_ENABLE|CUMEM_ENABLE|IB_DISABLE|NET|CROSS_NIC"
    r"|(MIN|MAX)_(NCHANNELS|CTAS)|BUFFSIZE|NTHREADS)"
)
"""By these NCCL chooses algorithm, protocol and transport, on each rank by itself."""
_APPEND = r"^ncclLocalOpAppend\b"
_CAPTURE = r"^\S*(capture|graph)\w* \(|cudaStream(Begin|End)Capture|cuGraphInstantiate"


_WAITS_FOR_GPU = (
    r"^\S*synchronize\w* ?\(|^(cu|cuda)(Stream|Event|Device|Ctx)(Synchronize|Query)|^(cu|cuda)GraphLaunch"
    r"|^replay \(graphs\.py"
)
_BEFORE_LAUNCH = r"^ncclLaunchKernelBefore_NoUncapturedCuda\b"


class Fault(NamedTuple):
    """A version with a fault that shows in one place: `first` to `last`, both included. `phase` is None where the
    place says enough."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    place: str
    phase: Phase | None
    what: str


KNOWN = (
    Fault((2, 21), (2, 21, 99), _CAPTURE, Phase.GRAPH_CAPTURE, "deadlocks where communication meets graph capture"),
    Fault((2, 20), (2, 21, 99), _BEFORE_LAUNCH, None, "deadlocks where its calls are in graphs (NCCL issue 1251)"),
)


def _lost_slots(scene: Scene) -> Iterator[Sighting | Gap]:
    """A rank waits for a free slot in a queue of which this NCCL loses slots on this machine."""
    if scene.bundle.host.cpu_arch == "aarch64":
        yield from both(_waits_to_append(scene), _older(scene, APPEND_FIXED))
        yield from unseen_native(scene)


def _waits_to_append(scene: Scene) -> Iterator[Sighting | Gap]:
    """A rank waits for a free slot. It yields its CPU and asks again, so that it is mostly seen running."""
    yield from stands_in(scene, _APPEND, native=True, waiting=True)
    yield from quoted(scene, tuple(one for one in in_place(scene, _APPEND) if one.spins), _APPEND)


def _may_have_lost_slots(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several machines, whose messages go through that queue, wait in an exchange or for GPUs that spin;
    communicators are long made. Where native frames cannot be had, the wait for a slot is not to be seen."""
    cards, host = gpus(scene), scene.bundle.host
    if isinstance(cards, Gap):
        yield cards
        return
    apart = scene.whole.bundle.nodes > 1 and host.cpu_arch == "aarch64"
    if apart and cards and all(map(spins, cards)) and still(scene) and not in_place(scene.whole, COMMUNICATOR):
        unseen = unseen_and_still(scene) if scene.bundle.phase is Phase.SERVING else ()
        waiting = chain(all_in(scene, f"{COLLECTIVE}|{_WAITS_FOR_GPU}"), unseen)
        yield from both(both(_older(scene, APPEND_FIXED), waiting), spinning(scene))


def _older(scene: Scene, fixed: tuple[int, ...]) -> Iterator[Sighting | Gap]:
    for found in libraries(scene, "nccl"):
        if isinstance(found, Gap):
            yield found
        elif version(found[1].version) and version(found[1].version) < fixed:
            yield _mapped(found[1].version, found[1].path)


def _known(scene: Scene) -> Iterator[Sighting | Gap]:
    """A version with a known fault, in the place where it shows."""
    for fault in KNOWN:
        if fault.phase in {None, scene.bundle.phase} and still(scene):
            yield from both(some_in(scene, fault.place), _of_version(scene, fault))


def _of_version(scene: Scene, fault: Fault) -> Iterator[Sighting | Gap]:
    for found in libraries(scene, "nccl"):
        if isinstance(found, Gap):
            yield found
        elif fault.first <= version(found[1].version) <= fault.last:
            yield _mapped(found[1].version, found[1].path)
            yield Sighting(f"NCCL {found[1].version} {fault.what}")


def _mapped(number: str, path: str) -> Sighting:
    return Sighting(shortened(f"mapped: NCCL {number} from {path}"), what=path)


def _different(scene: Scene) -> Iterator[Sighting | Gap]:
    """Processes map different builds of NCCL, or one process two, and somebody is in NCCL."""
    yield from both(_builds(scene), some_in(scene, f"{COMMUNICATOR}|{COLLECTIVE}"))


def _builds(scene: Scene) -> Iterator[Sighting | Gap]:
    """All that are mapped on any machine: NCCL speaks to its like."""
    by_build: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for found in libraries(scene.whole, "nccl"):
        if isinstance(found, Gap):
            yield found
        else:
            process, library = found
            by_build[library.version, library.build].append((process.process.id.pid, library.path))
    if len(by_build) > 1:
        for (number, build), users in by_build.items():
            names = scene.names.all(tuple(dict.fromkeys(pid for pid, _ in users)))
            yield Sighting(shortened(f"{names}: NCCL {number} ({build[:12] or 'no build id'}) from {users[0][1]}"))


def _set_differently(scene: Scene) -> Iterator[Sighting | Gap]:
    """All ranks wait in NCCL, and have different values for what all of them must choose alike."""
    yield from both(_differing(scene), all_in(scene, f"{COMMUNICATOR}|{COLLECTIVE}"))


def _differing(scene: Scene) -> Iterator[Sighting | Gap]:
    told: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    everybody = runners(scene.whole)
    yield from (one.look.facts.environment for one in everybody if isinstance(one.look.facts.environment, Gap))
    known = [(one.pid, dict(one.look.facts.environment)) for one in everybody
             if not isinstance(one.look.facts.environment, Gap)]  # fmt: skip
    for name in {name for _, set_ in known for name in set_ if _CHOOSES.fullmatch(name)}:
        for pid, set_ in known:
            told[name][set_.get(name, "unset")].append(pid)
    for name, values in told.items():
        if len(values) > 1 and len(known) == len(everybody):
            for value, pids in values.items():
                yield Sighting(shortened(f"{scene.names.all(tuple(pids))}: {name} {value}"), what=name)


def _lacks(scene: Scene) -> Iterator[Sighting | Gap]:
    """The loader does not find a function of NCCL that another library was built with, and somebody ended."""
    yield from both(said(scene, r"undefined symbol: [nr]ccl\w+"), first_end(scene))


def _mended(scene: Scene) -> Iterator[Sighting]:
    """Every NCCL that is mapped is newer than the faults known here, and there is but one build."""
    found = [one for one in libraries(scene.whole, "nccl") if not isinstance(one, Gap)]
    numbers = {(library.version, library.build) for _, library in found}
    if len(numbers) == 1 and all(version(library.version) >= APPEND_FIXED for _, library in found):
        yield Sighting(f"every rank maps NCCL {found[0][1].version}, which has none of the faults known here")


CAUSE = Cause(
    id="nccl_version",
    nature=Nature.DEVICE,
    title="the NCCL that is loaded has a known fault, lacks a function, or is not the same, or set alike, everywhere",
    clues=(
        decides("On aarch64, is a rank out of proxy slots with an NCCL that loses them?", _lost_slots),
        supports("Does a rank wait for a free slot of the proxy?", _waits_to_append),
        supports(
            "On aarch64, do ranks of several machines wait for GPUs that spin, with an NCCL that loses slots?",
            _may_have_lost_slots,
        ),
        supports("Is a version with a known fault in the place where it shows?", _known),
        supports("Do processes in NCCL map different builds of it?", _different),
        supports("Do ranks that wait in NCCL have different settings of it?", _set_differently),
        supports("Does NCCL lack a function that a library calls, and did a process end?", _lacks),
        speaks_against("Is it one build, newer than all known faults?", _mended),
    ),
    advice=Advice(
        confirm=("grep libnccl /proc/PID/maps for every rank: compare path and build id, not the version string.",),
        work_around=("LD_PRELOAD or VLLM_NCCL_SO_PATH with another libnccl.so.2, the same on every node.",),
        repair=(
            "pip install a newer nvidia-nccl-cu12 (2.29.3 or later on aarch64; 2.22.3 or later with CUDA graphs).",
        ),
    ),
    traps=(
        "Two files with the same version string can be different builds.",
        "Python frames of all ranks look the same here or accuse the wrong one: native frames are needed.",
    ),
    explains=frozenset({"mismatched_collective"}),
)
