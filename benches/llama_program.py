"""llama.cpp in a process of its own, run by a Python that has llama-cpp-python: GGUF THREADS.

Takes a line "decode N" or "prefill N" and answers with a number: tokens a second, in the library's own loop, greedy.
"""

import itertools
import sys
import time

from llama_cpp import Llama  # type: ignore[import-not-found]

from prompts import PROMPT, fresh_prompt


def decode(model: Llama, tokens: int) -> float:
    """After the first token, so without the prompt."""
    made = model.generate(model.tokenize(PROMPT.encode()), temp=0.0, reset=True)
    next(made)
    began = time.perf_counter()
    for _ in itertools.islice(made, tokens - 1):
        pass
    return (tokens - 1) / (time.perf_counter() - began)


def prefill(model: Llama, tokens: int) -> float:
    """A prompt that was never seen before, until the first token."""
    prompt = fresh_prompt(tokens)
    began = time.perf_counter()
    next(model.generate(prompt, temp=0.0, reset=True))
    return tokens / (time.perf_counter() - began)


def main() -> None:
    threads = int(sys.argv[2])
    model = Llama(sys.argv[1], n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    print("ready", flush=True)
    for line in sys.stdin:
        what, tokens = line.split()
        print({"decode": decode, "prefill": prefill}[what](model, int(tokens)), flush=True)


if __name__ == "__main__":
    main()
