"""The model hub, or another web service, does not answer, and the start waits for it."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, NativeFrame
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import network, storage, web, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, rules_out, supports
from firstlight.diagnose.failures import Kind, ended, failed, failures
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, processes, said

_EARLY = frozenset({Phase.SPAWN, Phase.IMPORT, Phase.CONFIG, Phase.RENDEZVOUS, Phase.WEIGHTS, Phase.MODEL_INIT})
_HUB = (
    r"/(huggingface_hub|modelscope|hf_xet|hf_transfer|kagglehub|openmind_hub|tiktoken|openai_harmony|nltk|datasets"
    r"|botocore|boto3|s3transfer|s3fs|gcsfs|fsspec|google/cloud/storage|runai_model_streamer|usage_lib|wandb|mlflow"
    r"|oss2|qcloud_cos|minio|azure/storage|aiobotocore|clearml|sentry_sdk|posthog)/"
    r"|transformers/(utils/hub|dynamic_module_utils)|transformers_utils/(repo|s3|runai|gguf)_utils|/torch/hub\.py"
    r"|/usage_lib\.py|(hf_hub_download|snapshot_download|cached_file) "
)
_IS_HUB = re.compile(r"huggingface|hf-mirror|\bhf\.co|modelscope")
_RESOLVES = r"getaddrinfo"
_CLIENT = re.compile(r"/(urllib3|httpx|httpcore|aiohttp|requests)/|/http/client\.py$")
_IN_VAIN = (
    r"(?=.*(https?://|HTTPS?ConnectionPool|huggingface\.co|hf\.co|modelscope|resolve/main))"
    r"(?=.*(max retries|refused|unreachable|timed? ?out|timeout|reset by peer|name resolution|cannot connect"
    r"|(Proxy|SSL|Connect|Connection)Error))"
)
"""What clients of the web say of a question that got no answer, with whom they asked."""


def _asking(scene: Scene) -> set[int]:
    """Whose main thread is in the hub's code."""
    return {there.pid for there in where.at(scene, _HUB) if not isinstance(there, Gap) and there.main}


def _questions(scene: Scene, *states: str) -> Iterator[network.Connection]:
    """Connections to a web port of another machine; of whoever is in the hub's code also those to the proxy or the
    mirror that it was told, and the one that it waits on."""
    asking, told = _asking(scene), web.gateways(scene)
    for one in network.connections(scene, *states):
        away = not network.is_own(scene, one.socket.peer_host)
        of_hub = web.end(one.socket) in told or (away and _awaited(one))
        if web.is_web(scene, one.socket) or (one.pid in asking and of_hub):
            yield one


def _awaited(one: network.Connection) -> bool:
    """Whether the main thread waits on this connection alone."""
    main = next((thread for thread in one.look.threads if thread.tid == one.pid), None)
    return main is not None and main.fds == (one.file.fd,)


def _unanswered(scene: Scene) -> Iterator[network.Connection | Gap]:
    """Questions whose connection is not made, or over which nothing passed between the looks."""
    for one in _questions(scene, "SYN_SENT", "ESTABLISHED"):
        if one.socket.state == "SYN_SENT":
            yield from (knock for knock in network.unanswered(scene) if knock.file == one.file)
            continue
        old = network.before(scene, one)
        got = network.more(one.socket.received_bytes, old.received_bytes if old else 0)
        if isinstance(got, Gap):
            yield got
        elif got == 0 and old:
            yield one


def _waits_for_it(scene: Scene) -> Iterator[Sighting | Gap]:
    """A main thread waits for such a connection and for nothing else, or is in the hub's code, before any weights are
    open."""
    if scene.bundle.phase not in _EARLY:
        return
    in_hub = _asking(scene)
    for one in _unanswered(scene):
        if isinstance(one, Gap):
            yield one
        elif (_awaited(one) or one.pid in in_hub) and not any(storage.weight_files(one.look)):
            yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), one.socket.peer_host)


def _alone_with_it(scene: Scene) -> Iterator[Sighting]:
    """A main thread waits for a web connection and for nothing else, early; what passes over it was not counted."""
    for one in _questions(scene, "ESTABLISHED"):
        early = scene.bundle.phase in _EARLY and not any(storage.weight_files(one.look))
        if _awaited(one) and early and isinstance(one.socket.received_bytes, Gap):
            yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), one.socket.peer_host)


def _in_hub_code(scene: Scene) -> Iterator[Sighting | Gap]:
    """A main thread waits in the hub's code, with a web connection open or being made."""
    yield from both(_web(scene), _stands_there(scene))


def _stands_there(scene: Scene) -> Iterator[Sighting | Gap]:
    """Main threads in the hub's code."""
    stands = (there for there in where.at(scene, _HUB) if isinstance(there, Gap) or there.main)
    yield from (there if isinstance(there, Gap) else where.shown(scene, there) for there in stands)


def _web(scene: Scene) -> Iterator[Sighting]:
    for one in _questions(scene, "SYN_SENT", "ESTABLISHED"):
        yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), one.socket.peer_host)


def _in_resolver(scene: Scene) -> Iterator[Sighting]:
    """A main thread in the hub's code waits for the resolver, at both looks."""
    for there in where.at(scene, _RESOLVES):
        if not isinstance(there, Gap) and there.main and there.pid in _asking(scene):
            old = where.before(scene, there.pid)
            then = where.main_place(old) if old else None
            if then and any(frame.function == "getaddrinfo" for frame in then.frames):
                yield where.shown(scene, there)


def _asks_in_vain(scene: Scene) -> Iterator[Sighting | Gap]:
    """A main thread is in the hub's code early, and the log says that a question to the web came to nothing."""
    if scene.bundle.phase in _EARLY:
        yield from both(said(scene, _IN_VAIN), _stands_there(scene))


def _asks_on(scene: Scene) -> Iterator[Sighting]:
    """A main thread is in a client of the web below the hub's code at both looks, early, before weights are open."""
    for there in where.at(scene, _HUB) if scene.bundle.phase in _EARLY else ():
        if not isinstance(there, Gap) and there.main and not any(storage.weight_files(there.look)):
            old = where.before(scene, there.pid)
            then = next((one for one in (old.threads if old else ()) if one.tid == there.pid), None)
            stacks = (there.stack, () if then is None or isinstance(then.stack, Gap) else then.stack)
            if all(any(map(_asks_the_web, stack)) for stack in stacks):
                yield where.shown(scene, there)


def _asks_the_web(frame: Frame | NativeFrame) -> bool:
    return isinstance(frame, Frame) and _CLIENT.search(frame.file) is not None


def _unmade(scene: Scene) -> Iterator[Sighting]:
    """A web connection is not made, before anything else, by a process of which no stack tells where it stands."""
    if scene.bundle.phase in {Phase.SPAWN, Phase.IMPORT, Phase.CONFIG}:
        for one in network.unanswered(scene):
            if (
                web.is_web(scene, one.socket)
                and where.main_place(one.look) is None
                and not any(storage.weight_files(one.look))
            ):
                yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), one.socket.peer_host)


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as it did not reach the hub, or as the hub's name did not resolve."""
    yield from failed(scene, Kind.HUB)
    for one in failures(scene):
        if one.kind is Kind.NAME and _IS_HUB.search(one.what):
            yield one.sighting
            yield ended(one.end)


def _loads(scene: Scene) -> Iterator[Sighting]:
    """A download grows, or weights are open and being read."""
    for folder, grew in where.grown(scene, "download"):
        if grew > 0:
            yield Sighting(shortened(f"{folder.path} grew between the looks"), what=folder.path)
    reading = {one.pid for one in scene.standings if one.moves}
    for one in processes(scene):
        file = next(storage.weight_files(one), None)
        if file and one.process.id.pid in reading:
            yield Sighting(shortened(f"{scene.name(one.process.id.pid)} reads {file.target}"), (one.process.id.pid,))


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if scene.deaths:
        named = " at {what}" if any(one.what for one in seen) else ""
        return f"the model hub or another web service{named} is not reached"
    peer = next((one.what for one in seen if re.search(r"\d|\w", one.what)), "")
    return (
        f"{{who}} waits for the model hub or another web service{' at {what}' if peer else ''}, which does not answer"
    )


CAUSE = Cause(
    id="hub_network",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        decides(
            "Does a main thread wait for a web connection over which nothing comes?",
            _waits_for_it,
        ),
        supports("Does a main thread wait for a web connection alone, before any weights are open?", _alone_with_it),
        supports("Does a main thread wait in the hub's code with a web connection?", _in_hub_code),
        supports("Does a main thread in the hub's code wait for the resolver all the while?", _in_resolver),
        supports("Is a main thread in the hub's code, and does the log say that it asks in vain?", _asks_in_vain),
        supports("Is a main thread in a web client below the hub's code at both looks?", _asks_on),
        supports("Is a web connection not made, before any weights are open?", _unmade),
        supports("Did a process end as it did not reach the hub?", _ended_by_it),
        rules_out("Are weights being fetched or read?", _loads),
    ),
    advice=Advice(
        confirm=("ss -tnp | grep {pid}; curl -m 5 -I https://huggingface.co shows whether the hub can be reached.",),
        work_around=(
            (
                "HF_HUB_OFFLINE=1 and TRANSFORMERS_OFFLINE=1 in the environment before the start, and the "
                "model's folder rather than its name (for ModelScope: VLLM_USE_MODELSCOPE=false or "
                "SGLANG_USE_MODELSCOPE=false)."
            ),
            "HF_HUB_ETAG_TIMEOUT=3 keeps the question short; vLLM: VLLM_NO_USAGE_STATS=1 asks one service less.",
        ),
        repair=("Open the way to the hub, or name the proxy: HTTPS_PROXY; or a mirror: HF_ENDPOINT.",),
    ),
    traps=(
        "It happens with everything in the cache: the hub is asked whether the cache is current.",
        "With HF_HUB_OFFLINE=1 only what is in the cache is found; a download that failed may have left half of it.",
        "Some versions ask even with HF_HUB_OFFLINE=1; a path to the model's folder always helps.",
    ),
)
