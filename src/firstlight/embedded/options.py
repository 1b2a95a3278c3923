"""The engine's command line, once for `python -m firstlight.embedded` and for `firstlight serve`."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firstlight.embedded.model.config import DTYPES

KEY_VARIABLE = "FIRSTLIGHT_API_KEY"
NGRAM = "ngram"
"""The drafter that needs no folder."""
LENGTH_HELP = "longest prompt and answer together, in tokens (default: what the model can, up to 8192)"
DTYPE_HELP = "number format of the weights in memory (default: the model's own)"
LEAST_WAIT_S = 2.0
"""Twice what an idle worker leaves between two stamps."""


@dataclass(frozen=True)
class ServeOptions:
    """Everything that can be asked of the engine. Zero and empty mean "choose for me"."""

    model: Path
    named: str
    """The model as it was named on the command line; clients may call it that too."""
    host: str
    port: int
    served_model_name: str
    api_key: str
    max_model_len: int
    max_num_seqs: int
    max_queue: int
    max_output_tokens: int
    dtype: str
    threads: int
    stall_after_s: float
    tp: int
    kv_tokens: int
    drafter: str
    draft_tokens: int
    speculate: str
    wait_deadline_s: float

    @property
    def model_name(self) -> str:
        return self.served_model_name or self.model.resolve().name


def parse_options(arguments: list[str], prog: str, folder_of: Callable[[str], Path]) -> ServeOptions:
    """Read the command line; `folder_of` finds the folder of the model that is named. Exits 2 on wrong usage."""
    values = vars(_parser(prog).parse_args(arguments))
    values["named"] = values["model"]
    values["model"] = folder_of(values["named"])
    values["api_key"] = values["api_key"] or os.environ.get(KEY_VARIABLE, "")
    return ServeOptions(**values)


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Serve a Llama-family model folder over HTTP.")
    add = parser.add_argument
    add("model", nargs="?", default="demo", metavar="MODEL", help="model folder, demo or demo-4bit (default: demo)")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=_port, default=8000, help="port to listen on; 0 takes a free one (default: %(default)s)")
    add("--served-model-name", default="", metavar="NAME", help="name in the API (default: the folder's name)")
    add("--api-key", default="", metavar="KEY", help=f"require this key on /v1/* (default: ${KEY_VARIABLE})")
    add("--max-model-len", type=_count, default=0, metavar="N", help=LENGTH_HELP)
    add("--max-num-seqs", type=_positive, default=16, metavar="N", help="requests at once (default: %(default)s)")
    add("--max-queue", type=_count, default=64, metavar="N", help="requests that may wait (default: %(default)s)")
    add("--max-output-tokens", type=_count, default=0, metavar="N", help="longest answer (default: whatever fits)")
    add("--dtype", choices=("auto", *DTYPES), default="auto", help=DTYPE_HELP)
    add("--threads", type=_count, default=0, metavar="N", help="threads of the model (default: all usable CPUs)")
    add("--tp", type=_positive, default=1, metavar="N", help="ranks that share every layer (default: %(default)s)")
    add(
        "--kv-tokens",
        type=_count,
        default=0,
        metavar="N",
        help="tokens that the KV cache holds, all requests together (default: all that fit, in 40 %% of memory)",
    )
    add(
        "--drafter", default="", metavar="PATH", help="EAGLE-3 drafter folder, or 'ngram'; speculation is off without"
    )
    add("--draft-tokens", type=_drafts, default=3, metavar="N", help="tokens drafted a round (default: %(default)s)")
    add(
        "--speculate",
        choices=("auto", "always"),
        default="auto",
        help="auto measures, and drafts only where it pays (default: %(default)s)",
    )
    add(
        "--wait-deadline",
        dest="wait_deadline_s",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long a rank waits for another before it says so and ends (default: %(default)g)",
    )
    add(
        "--stall-after",
        dest="stall_after_s",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="/health says 503 after so long without progress of the worker (default: %(default)g)",
    )
    return parser


def _number(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{value} is not between {least} and {most}")
    return value


def _count(text: str) -> int:
    return _number(text, 0, 1 << 30)


def _positive(text: str) -> int:
    return _number(text, 1, 1 << 10)


def _drafts(text: str) -> int:
    return _number(text, 1, 16)


def _port(text: str) -> int:
    return _number(text, 0, 65535)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not LEAST_WAIT_S <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{value:g} is not between {LEAST_WAIT_S:g} and 86400")
    return value
