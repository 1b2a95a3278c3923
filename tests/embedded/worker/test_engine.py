"""What the engine refuses when it is used without the server, and that it goes on afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight.embedded.errors import EngineError, WrongUsage
from firstlight.embedded.worker.engine import Engine
from firstlight.embedded.worker.plan import Plan


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def opened(model: Path, **plan: Any) -> Engine:
    return Engine(Plan(model=model, threads=1, max_model_len=128, **plan))


@pytest.mark.parametrize(
    ("prompts", "taps", "why"),
    [
        ([[1, 2], [1, 300]], (), "token 300 of a prompt is not in the vocabulary of 300"),
        ([[1, -1]], (), "token -1 of a prompt"),
        ([[1, 2], []], (), "the prompt is empty"),
        ([[1, 2], [1] * 128], (), "leave no room for an answer"),
        ([[1, 2]], (0, 4), "there is no state 4 to tap; this model has states 0 to 3"),
    ],
    ids=["token", "negative", "empty", "long", "tap"],
)
def test_what_cannot_be_done_is_refused_and_the_engine_goes_on(
    prompts: list[list[int]], taps: tuple[int, ...], why: str, tiny_model: Path
) -> None:
    engine = opened(tiny_model)
    before = engine.generate([[5, 6, 7]], max_tokens=8)[0].tokens
    with pytest.raises(EngineError, match=why):
        engine.generate(prompts, max_tokens=8, taps=taps)
    assert engine.generate([[5, 6, 7]], max_tokens=8)[0].tokens == before


def test_a_plan_that_one_process_cannot_carry_out_is_refused(tiny_model: Path) -> None:
    with pytest.raises(WrongUsage, match="one process, not 2 ranks"):
        opened(tiny_model, tp=2)
    with pytest.raises(WrongUsage, match="does not compute in int3"):
        opened(tiny_model, dtype="int3")
