"""A model folder in memory, and passes run on it without a scheduler."""

from pathlib import Path
from typing import Any

import torch

from firstlight.embedded.model.passes import PAGE, Pass, Result, Span
from firstlight.embedded.worker.assembly import Assembled, assemble
from firstlight.embedded.worker.plan import Plan


def loaded(folder: Path, dtype: str = "float32", **plan: Any) -> Assembled:
    return assemble(Plan(model=folder, dtype=dtype, threads=1, max_model_len=512, max_num_seqs=2, **plan))


def run(engine: Assembled, tokens: list[int], pieces: list[int], tapped: tuple[int, ...] = ()) -> Result:
    """Scores after every token and tapped states, the tokens run through in pieces of the given sizes.

    The pages are out of order on purpose.
    """
    pages = list(reversed(range(1, 2 + len(tokens) // PAGE)))
    results, start = [], 0
    for size in pieces:
        work = Pass(
            number=start,
            kind="prefill" if size > 4 else "decode",
            tokens=tokens[start : start + size],
            spans=[Span(start, size, pages)],
            wanted=list(range(size)),
            tapped=list(tapped),
        )
        result = engine.runner.run(work)
        results.append(Result(result.logits.clone(), result.states))
        start += size
    states = {state: torch.cat([result.states[state] for result in results]) for state in tapped}
    return Result(torch.cat([result.logits for result in results]), states)
