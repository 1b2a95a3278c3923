"""Options of the command that the engine refuses, in this version or together."""

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from firstlight.core.bundle import Bundle
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.failures import Kind, ended, failed, failures, is_last, raised_in
from firstlight.diagnose.logwords import first_error
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import variables

Version: TypeAlias = tuple[int, ...]
_ALWAYS: Version = ()
_NEVER: Version = (99_999,)


class _Gone(NamedTuple):
    """An option that an engine does not know, in versions from `since` up to but without `until`; `instead` helps."""

    engine: str
    option: str
    since: Version
    until: Version
    instead: str


_SPEC = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
_SPEC_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
_GONE = (
    _Gone("sglang", "cuda-graph-bs", (0, 5, 20), _NEVER, "--cuda-graph-bs-decode"),
    _Gone("sglang", "cuda-graph-max-bs", (0, 5, 20), _NEVER, "--cuda-graph-max-bs-decode"),
    _Gone("sglang", "pp", (0, 5, 23), (0, 5, 24), "--pp-size: the short form is ambiguous"),
    _Gone("sglang", "context", (0, 5, 23), (0, 5, 24), "--context-length: the short form is ambiguous"),
    _Gone("sglang", "speculative-draft", (0, 5, 23), (0, 5, 24), "--speculative-draft-model-path"),
    _Gone("sglang", "nccl-port", _ALWAYS, (0, 4, 7), "--dist-init-addr"),
    _Gone("sglang", "moe-runner-backend", _ALWAYS, (0, 4, 11), "leave it out"),
    _Gone("sglang", "weight-loader-disable-mmap", _ALWAYS, (0, 4, 7), "leave it out"),
    _Gone("sglang", "skip-server-warmup", _ALWAYS, (0, 4, 7), "leave it out"),
    _Gone("vllm", "attention-backend", _ALWAYS, (0, 11, 3), "VLLM_ATTENTION_BACKEND"),
    _Gone("vllm", "kv-cache-memory-bytes", _ALWAYS, (0, 9, 3), "--gpu-memory-utilization"),
    _Gone("vllm", "safetensors-load-strategy", _ALWAYS, (0, 9, 3), "leave it out"),
    _Gone("vllm", "async-scheduling", _ALWAYS, (0, 9, 3), "leave it out"),
    _Gone("vllm", "watchdog-config", _ALWAYS, (0, 32, 1), "leave it out"),
)
"""Only where the engine's own sources say so (the versions between two that were read are left out)."""


def _refuses(scene: Scene) -> Iterator[Sighting]:
    """Options that this version of the engine does not know."""
    bundle, version = scene.bundle, _version(scene.bundle.engine_version)
    for one in _GONE:
        if (
            version
            and bundle.engine == one.engine
            and one.since <= version < one.until
            and _given(bundle, one.option)
        ):
            quote = f"{one.engine} {bundle.engine_version} does not know --{one.option}; instead: {one.instead}"
            yield Sighting(shortened(quote), what=f"--{one.option}")


def _version(text: str) -> Version:
    found = re.match(r"\d{1,4}(\.\d{1,4}){1,3}", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _given(bundle: Bundle, option: str) -> bool:
    return bundle.option(option) is not None


def _word(bundle: Bundle, *names: str) -> str:
    return next((words[0] for name in names if (words := bundle.option(name))), "")


def _some_of_three(bundle: Bundle) -> str:
    """SGLang wants all of three numbers of its speculation, or none."""
    given = [name for name in _SPEC if _given(bundle, name)]
    lacks = [f"--{name}" for name in _SPEC if name not in given]
    drafts = _word(bundle, "speculative-algorithm", "speculative-algo").upper() in _SPEC_ALGORITHMS
    if bundle.engine != "sglang" or not drafts or not given or not lacks:
        return ""
    return f"--{given[0]} is given without {' and '.join(lacks)}: give all three, or none"


def _aux_states_with_pipeline(bundle: Bundle) -> str:
    pipeline = _word(bundle, "pp-size", "pipeline-parallel-size")
    if bundle.engine != "sglang" or not _given(bundle, "enable-return-aux-hidden-states") or pipeline in {"", "1"}:
        return ""
    return f"--enable-return-aux-hidden-states needs --pp-size 1, not {pipeline}"


def _determinism(bundle: Bundle) -> str:
    backend = _word(bundle, "attention-backend")
    able = {"flashinfer", "fa3", "fa4", "triton"}
    if bundle.engine != "sglang" or not _given(bundle, "enable-deterministic-inference") or backend in able | {""}:
        return ""
    return f"--enable-deterministic-inference needs --attention-backend {', '.join(sorted(able))}; not {backend}"


def _hidden_states(bundle: Bundle) -> str:
    """vLLM gives out hidden states with one speculative token only."""
    try:
        told = json.loads(_word(bundle, "speculative-config", "sc"))
    except (ValueError, RecursionError):
        return ""
    if bundle.engine != "vllm" or not isinstance(told, dict) or told.get("method") != "extract_hidden_states":
        return ""
    tokens = told.get("num_speculative_tokens")
    return "" if tokens in {1, None} else f"extract_hidden_states needs num_speculative_tokens 1, not {tokens}"


_Conflict: TypeAlias = Callable[[Bundle], str]
_REFUSED_TOGETHER: tuple[_Conflict, ...] = (_some_of_three, _hidden_states)
_UNFIT_TOGETHER: tuple[_Conflict, ...] = (_aux_states_with_pipeline, _determinism)
"""What each needs of the other is documented; how a version takes it otherwise differs."""


def _refused_together(scene: Scene) -> Iterator[Sighting]:
    """Options that the engine refuses together."""
    yield from _conflicts(scene, _REFUSED_TOGETHER)


def _unfit_together(scene: Scene) -> Iterator[Sighting]:
    """Options of which one needs another value of the other."""
    yield from _conflicts(scene, _UNFIT_TOGETHER)


def _conflicts(scene: Scene, conflicts: tuple[_Conflict, ...]) -> Iterator[Sighting]:
    for conflict in conflicts:
        quote = conflict(scene.bundle)
        if quote:
            yield Sighting(shortened(quote), what=quote.split(maxsplit=1)[0])


_UNKNOWN = re.compile(r"unrecognized|unknown|no such|unexpected", re.IGNORECASE)
REASON_MAX = 120
USAGE_STATUS = 2
"""What argparse, click and clap exit with when they do not take a command line."""
_SETTINGS = r"/(arg_utils|server_args|engine_args)\.py|/vllm/config(/\w+)?\.py|pydantic/_internal/_dataclasses"
"""Where engines look at their options, before they do anything."""
_UNFIT = r"^(ValueError|AssertionError|NotImplementedError|TypeError)\b|ValidationError: .* for \w*(Config|Args)\b"


def _parser_refuses(scene: Scene) -> Iterator[Sighting]:
    """The parser of the command line refused an option, and the process ended with the status for it."""
    for one in failures(scene):
        if one.kind is Kind.OPTION and one.end.code == USAGE_STATUS and is_last(scene, one):
            yield one.sighting
            yield ended(one.end)


def _parser_tells(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.OPTION)


def _settings_refused(scene: Scene) -> Iterator[Sighting]:
    """An exception that ended the server was raised where its options are looked at, and none tells more."""
    if not failures(scene):
        yield from raised_in(scene, _SETTINGS, _UNFIT)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    told = next((one for one in seen if one.what), None)
    if told and _UNKNOWN.search(told.quote):
        return f"the engine does not know {'the option ' if told.what.startswith('-') else ''}{{what}}"
    if told:
        return "the engine does not take {what} as it was given"
    error = first_error(scene.bundle)
    words = " ".join(error.message.removeprefix("ValueError: ").split())[:REASON_MAX] if error else ""
    return f"the engine does not take its options together, or in this version{f' ({words})' if words else ''}"


def _without_effect(scene: Scene) -> Iterator[Sighting]:
    """Variables that this version of the engine does not read any more."""
    bundle, version = scene.bundle, _version(scene.bundle.engine_version)
    value = variables(scene).get("VLLM_ATTENTION_BACKEND", "")
    if bundle.engine == "vllm" and version >= (0, 16) and value:
        quote = f"vllm {bundle.engine_version} does not read VLLM_ATTENTION_BACKEND={value}; use --attention-backend"
        yield Sighting(shortened(quote), what="VLLM_ATTENTION_BACKEND")


CAUSE = Cause(
    id="option_conflict",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Did it end with the status for it as its parser refused an option?", _parser_refuses),
        supports("Did it end as its parser refused an option?", _parser_tells),
        supports("Did it end with an exception that was raised where options are looked at?", _settings_refused),
        foresees("Is an option given that this version does not know?", _refuses, surely=True),
        foresees("Are options given that the engine refuses together?", _refused_together, surely=True),
        foresees("Does an option need another value of another one?", _unfit_together),
        foresees("Is a variable set that this version does not read?", _without_effect),
    ),
    advice=Advice(
        confirm=("Ask the engine: its command with --help tells the options that this version takes.",),
        repair=("Change the options as said, or take the version of the engine that they were written for.",),
    ),
)
