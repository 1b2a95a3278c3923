"""A process of an earlier run is still there and holds what this one needs."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Leftover
from firstlight.core.words import seconds as length
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, processes, said, variables

GPUS_MAX = 64
_PORT = re.compile(r"port (\d{1,5})")
_IN_USE = r"address already in use|EADDRINUSE|Errno 98\b"
_NO_MEMORY = (
    r"out of memory|Free memory on device|No available memory for the cache|memory capacity is unbalanced"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
    r"|^(?!.*\b(host|cpu|shared|shm|disk|locked)\b).*(not enough|insufficient) (gpu |device )?memory"
)


def _leftovers(scene: Scene) -> Iterator[Leftover | Gap]:
    look = scene.last
    found = look.leftovers if look else ()
    if isinstance(found, Gap):
        yield found
    else:
        yield from (one for one in found if one.holds)


def _quoted(one: Leftover) -> Sighting:
    age = f", {length(one.age_s)} old" if one.age_s else ""
    held = ", ".join(one.holds[:4])
    quote = f"pid {one.pid} ({one.name}, state {one.state}{age}) of an earlier run holds {held}"
    return Sighting(shortened(quote), (one.pid,), one.holds[0])


def _any(scene: Scene) -> Iterator[Sighting | Gap]:
    """Processes of earlier runs that hold something."""
    yield from (one if isinstance(one, Gap) else _quoted(one) for one in _leftovers(scene))


def _port(scene: Scene) -> Iterator[Sighting | Gap]:
    """A port that a leftover holds is refused to the server."""
    for one in _leftovers(scene):
        if isinstance(one, Gap):
            yield one
            continue
        ports = [held.split()[-1] for held in one.holds if held.startswith("port ")]
        told = [line for line in said(scene, _IN_USE) if any(re.search(rf"\b{port}\b", line.quote) for port in ports)]
        wanted = {str(listener.port) for listener in scene.foreign_listeners if listener.pid == one.pid}
        if told or wanted & set(ports):
            yield _quoted(one)
            yield from told


def _memory(scene: Scene) -> Iterator[Sighting | Gap]:
    """A leftover holds a GPU, that GPU is short of memory, and the log says so."""
    for one in _leftovers(scene):
        if not isinstance(one, Gap) and any(_is_full(scene, held) for held in one.holds):
            yield from both([_quoted(one)], said(scene, _NO_MEMORY))


def _is_full(scene: Scene, held: str) -> bool:
    known = gpus(scene)
    for gpu in () if isinstance(known, Gap) else known:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if held == f"GPU {gpu.index}" and not isinstance(used, Gap) and not isinstance(total, Gap):
            return used > 0.2 * total
    return False


def _own_gpus(scene: Scene) -> set[str]:
    """The GPUs of the server, as a leftover's would be called: by the driver's list, by open devices, or
    by what ranks usually take."""
    own = {one.process.id.pid for one in processes(scene)}
    known = gpus(scene)
    listed = {
        f"GPU {gpu.index}"
        for gpu in (() if isinstance(known, Gap) else known)
        if not isinstance(gpu.processes, Gap) and own & {process.pid for process in gpu.processes}
    }
    opened = (re.fullmatch(r"/dev/nvidia(\d+)", file.target) for one in processes(scene) for file in one.files)
    return listed or {f"GPU {match[1]}" for match in opened if match} or _usual_gpus(scene)


def _usual_gpus(scene: Scene) -> set[str]:
    """Those that the ranks take if nothing else is known: what CUDA_VISIBLE_DEVICES names, or the first ones."""
    named = variables(scene).get("CUDA_VISIBLE_DEVICES", "")
    if named:
        return {f"GPU {word.strip()}" for word in named.split(",")}
    count = max(scene.bundle.ranks, len({one.rank for one in scene.standings if one.rank >= 0}))
    return {f"GPU {index}" for index in range(min(count, GPUS_MAX))}


def _shares(scene: Scene) -> Iterator[Sighting | Gap]:
    """A leftover holds a file or socket that the server uses as well, or a GPU of it."""
    used = {file.target for one in processes(scene) for file in one.files}
    used |= {file.socket.host for one in processes(scene) for file in one.files if file.socket and file.socket.host}
    used |= _own_gpus(scene)
    for one in _leftovers(scene):
        if isinstance(one, Gap):
            yield one
        elif any(held in used for held in one.holds):
            yield _quoted(one)


def _port_of(scene: Scene, pid: int) -> str:
    """A port that a leftover listens on; empty if it has none."""
    held = [held for one in _leftovers(scene) if not isinstance(one, Gap) and one.pid == pid for held in one.holds]
    return next((found[1] for one in held if (found := _PORT.fullmatch(one))), "")


def _advice(scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    pid = next((one.pids[0] for one in seen if one.pids), 0)
    port = _port_of(scene, pid)
    if port:
        health = f"curl http://127.0.0.1:{port}/health"
        return Advice(
            confirm=(f"ps -o pid,ppid,stat,etime,args -p {pid}",),
            work_around=(
                f"see whether it answers ({health}), and end it only if an earlier run left it: somebody may use it.",
            ),
        )
    return Advice(
        confirm=(f"ps -o pid,ppid,stat,etime,args -p {pid}; nvidia-smi shows what it holds of a GPU.",),
        work_around=(
            f"kill {pid}, then kill -9 {pid}; one in state D goes only with a reboot or a reset of its GPU.",
        ),
        repair=("End servers by their whole process group or container, not by the first pid alone.",),
    )


CAUSE = Cause(
    id="leftover_process",
    nature=Nature.MACHINE,
    title="a process that an earlier run left behind holds {what}",
    clues=(
        supports("Is a port refused to the server that a leftover holds?", _port),
        decides("Does a leftover fill a GPU that is short of memory?", _memory),
        supports("Does a leftover hold something that the server uses?", _shares),
        foresees("Did an earlier run leave processes behind that hold something?", _any),
    ),
    advice=_advice,
    traps=("Another server on the same machine may look the same: see whose it is before it is ended.",),
)
