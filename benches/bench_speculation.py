"""The embedded engine with a drafter against the same engine without one: what speculation brings, and what it costs.

Both serve the demo model; each turn asks the same questions, greedily. The aims: with a trained drafter more tokens a
second, and with one that knows nothing ("random") and --speculate auto at least 0.97 times as many. The answers of
both are compared too: speculation must not change a word.
"""

import argparse
import contextlib
import re
import sys
import tempfile
from pathlib import Path

from firstlight.embedded.demo.demo_model import ensure_demo_model, progress_on
from pairs import compare
from prompts import QUESTIONS
from quiet import Quiet
from random_drafter import write_random_drafter
from servers import Server, embedded

RATE = " tokens/s"
COUNTER = re.compile(r"^vllm:spec_decode_num_(\w+)_total(?:\{.*\})? (\S+)$", re.MULTILINE)


def one_by_one(server: Server, tokens: int) -> float:
    """Tokens a second after the first of each answer, prompts excluded."""
    answers = [server.ask(question, tokens) for question in QUESTIONS]
    return sum(answer.tokens - 1 for answer in answers) / sum(answer.last_s - answer.first_s for answer in answers)


def at_once(server: Server, tokens: int, requests: int) -> float:
    """Tokens a second of so many requests together, short prompts included."""
    return server.batch_per_s([QUESTIONS[number % len(QUESTIONS)] for number in range(requests)], tokens)


def say_acceptance(server: Server) -> None:
    """From the counters that have vLLM's names; those by position come in order."""
    counted: dict[str, list[float]] = {}
    for name, value in COUNTER.findall(server.get("/metrics")[1]):
        counted.setdefault(name, []).append(float(value))
    rounds, accepted = sum(counted.get("drafts", [])), sum(counted.get("accepted_tokens", []))
    if not rounds:
        print("  nothing was drafted\n")
        return
    shares = ", ".join(f"{value / rounds:.0%}" for value in counted.get("accepted_tokens_per_pos", []))
    print(f"  {rounds:.0f} rounds, {1 + accepted / rounds:.2f} tokens a round; accepted by position: {shares}\n")


def say_same_words(plain: Server, drafting: Server, tokens: int) -> None:
    same = sum(plain.ask(one, tokens).text == drafting.ask(one, tokens).text for one in QUESTIONS)
    print(f"  {same} of {len(QUESTIONS)} answers the same with and without\n", flush=True)


def measure(plain: Server, drafting: Server, options: argparse.Namespace) -> None:
    quiet = Quiet((plain, drafting))
    for requests in options.at_once:

        def rate(server: Server, requests: int = requests) -> float:
            return one_by_one(server, options.tokens) if requests == 1 else at_once(server, options.tokens, requests)

        print(f"  requests at once: {requests}")
        first, second = quiet.turn(plain, lambda: rate(plain)), quiet.turn(drafting, lambda: rate(drafting))
        compare(plain.name, first, drafting.name, second, options.pairs, unit=RATE)
        quiet.report()
    say_acceptance(drafting)
    say_same_words(plain, drafting, options.tokens)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--drafter", action="append", help="a folder, ngram or random; may be repeated (default: ngram and random)")
    add("--draft-tokens", default="3", help="(default: %(default)s)")
    add("--speculate", choices=("auto", "always"), default="auto")
    add("--at-once", type=lambda text: [int(one) for one in text.split(",")], default=[1, 4, 16])
    add("--pairs", type=int, default=5)
    add("--tokens", type=int, default=64, help="of one answer (default: %(default)s)")
    add("--model", type=Path, help="model folder (default: the demo model)")
    options = parser.parse_args()
    options.drafter = options.drafter or ["ngram", "random"]
    options.model = options.model or ensure_demo_model(progress_on(sys.stderr))
    return options


def main() -> None:
    options = read_options()
    print(__doc__)
    speculating = ("--draft-tokens", options.draft_tokens, "--speculate", options.speculate)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firstlight-bench-")))
        plain = stack.enter_context(embedded("without a drafter", options.model))
        for drafter in options.drafter:
            path = drafter if drafter != "random" else str(write_random_drafter(folder / "random", options.model))
            name = f"drafter {Path(drafter).name}, {options.speculate}"
            with embedded(name, options.model, "--drafter", path, *speculating) as drafting:
                measure(plain, drafting, options)


if __name__ == "__main__":
    main()
