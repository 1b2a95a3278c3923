"""A request whose numbers overflow ends with an error, and no other request is touched by what it left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from firstlight.embedded.errors import EngineError
from firstlight.embedded.model.layers import additive, attend
from firstlight.embedded.worker.engine import Engine
from firstlight.embedded.worker.plan import Plan

BROKEN = 7
"""A token that is no number: its embedding is NaN."""
PROMPTS = [list(range(20, 20 + length)) for length in (5, 20, 70, 100, 250)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(make_model: Callable[..., Path], tmp_path: Path) -> Path:
    folder = make_model(tmp_path / "model", tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][BROKEN] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    return folder


def opened(model: Path, **plan: Any) -> Engine:
    return Engine(Plan(model=model, dtype="float32", threads=1, max_model_len=512, **plan))


def texts(engine: Engine) -> list[list[int]]:
    return [engine.generate([prompt], max_tokens=6)[0].tokens for prompt in PROMPTS]


@pytest.mark.usefixtures("backend")
def test_pages_that_held_no_numbers_do_no_harm_to_whoever_has_them_next(model: Path) -> None:
    expected = texts(opened(model))
    engine = opened(model, kv_tokens=512)
    with pytest.raises(EngineError, match="best score is nan"):
        engine.generate([[BROKEN] * 500], max_tokens=6)
    assert texts(engine) == expected


@pytest.mark.usefixtures("backend")
def test_what_comes_before_it_in_a_prompt_is_shared_unspoilt(model: Path) -> None:
    """Its beginning is computed in one pass with it, and known to others from then on."""
    expected = texts(opened(model))
    engine = opened(model)
    with pytest.raises(EngineError, match="best score is nan"):
        engine.generate([[*PROMPTS[-1][:240], *[BROKEN] * 60]], max_tokens=6)
    assert texts(engine) == expected


@pytest.mark.parametrize("company", ["a page of the next request", "padding"])
def test_what_is_hidden_does_not_matter_and_what_is_seen_does(company: str) -> None:
    random = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 2, rows, 8, generator=random) for rows in (4, 6, 6))
    seen = (torch.arange(6) <= torch.tensor([[1, 2], [2, 4]])[..., None])[:, None]
    mask = additive(seen, 2, q.dtype)
    expected = attend(q, k, v, mask)
    k[0, :, 4:], v[0, :, 3:] = torch.inf, torch.nan
    if company == "padding":
        k[1, 0, 5] = -torch.inf
    torch.testing.assert_close(attend(q, k, v, mask), expected, rtol=0, atol=0)
    v[0, 1, 2] = torch.nan  # the second query of the first sequence sees it, in both heads that share it
    broken = attend(q, k, v, mask).isnan().all(-1)
    assert broken.nonzero().tolist() == [[0, 1, 1], [0, 1, 3]]
