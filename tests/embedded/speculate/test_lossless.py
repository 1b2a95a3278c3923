"""The engine in one process: answers do not depend on company, on pages, on speculation; states come with them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from firstlight.embedded.messages import Sampling
from firstlight.embedded.worker.engine import Engine
from firstlight.embedded.worker.plan import Plan

PROMPTS = [
    list(range(1, 40)),
    [7, 7, 7, 9],
    list(range(100, 280)) + list(range(20, 220)),
    [*range(1, 36), 250],
    [5],
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def opened(model: Path, **plan: Any) -> Engine:
    defaults: dict[str, Any] = {"dtype": "bfloat16", "threads": 1, "max_model_len": 600, "max_num_seqs": 4}
    return Engine(Plan(model=model, **(defaults | plan)))


def texts(engine: Engine, prompts: list[list[int]], **asked: Any) -> list[list[int]]:
    return [answer.tokens for answer in engine.generate(prompts, max_tokens=40, **asked)]


@pytest.fixture(scope="module")
def drafter(tiny_model: Path, make_drafter: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    target = json.loads((tiny_model / "config.json").read_text())
    return str(make_drafter(tmp_path_factory.mktemp("drafter"), target, states=(0, 1, 2)))


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> list[list[int]]:
    """Each prompt answered alone, by an engine of its own."""
    return [texts(opened(tiny_model), [prompt])[0] for prompt in PROMPTS]


def test_company_does_not_matter(tiny_model: Path, plain: list[list[int]]) -> None:
    assert texts(opened(tiny_model), PROMPTS) == plain


def test_pre_emption_does_not_matter(tiny_model: Path, plain: list[list[int]]) -> None:
    """Pages for one long answer only: the others have to give theirs back again and again."""
    engine = opened(tiny_model, kv_tokens=608)
    assert texts(engine, PROMPTS) == plain


def test_known_pages_do_not_matter(tiny_model: Path, plain: list[list[int]]) -> None:
    """The same prompts again, from known pages. In float32, where the shape of what is left changes nothing."""
    engine = opened(tiny_model, dtype="float32")
    first = texts(engine, PROMPTS)
    assert texts(engine, PROMPTS) == first


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_drafts_do_not_matter_to_greedy_text(
    batch: int, backend: str, tiny_model: Path, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "torch":
        monkeypatch.setenv("FIRSTLIGHT_KERNELS", "off")
    dtype = "bfloat16" if backend == "kernels" else "float32"
    expected = texts(opened(tiny_model, dtype=dtype, max_num_seqs=batch), PROMPTS)
    for kind in (drafter, "ngram"):
        engine = opened(tiny_model, dtype=dtype, max_num_seqs=batch, drafter=kind, speculate="always")
        assert texts(engine, PROMPTS) == expected
        assert texts(engine, PROMPTS) == expected  # now from known pages


def test_drafts_do_not_matter_to_seeded_text(tiny_model: Path, drafter: str) -> None:
    """One random number a token, drawn from the model's own distribution: the very same text."""
    sampling = Sampling(temperature=0.8, top_p=0.9, seed=11, frequency_penalty=0.3)
    expected = texts(opened(tiny_model), PROMPTS, sampling=sampling)
    engine = opened(tiny_model, drafter=drafter, speculate="always")
    assert texts(engine, PROMPTS, sampling=sampling) == expected


def test_a_stop_token_inside_a_draft_ends_the_answer(tiny_model: Path, plain: list[list[int]]) -> None:
    stop = plain[0][10]
    expected = plain[0][: plain[0].index(stop) + 1]
    engine = opened(tiny_model, drafter="ngram", speculate="always", draft_tokens=8)
    answer = engine.generate([PROMPTS[0]], max_tokens=40, stop_tokens=[stop])[0]
    assert (answer.tokens, answer.finish) == (expected, "stop")


@torch.no_grad()
def test_states_come_with_the_answer(tiny_model: Path, drafter: str) -> None:
    """hidden_states[k] of transformers, for prompt and answer, without a second pass; with speculation too."""
    reference = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    for plan in ({}, {"drafter": drafter, "speculate": "always"}):
        engine = opened(tiny_model, dtype="float32", **plan)
        layers = engine.config.layers
        answers = engine.generate(PROMPTS, max_tokens=12, taps=(0, 1, layers, layers + 1))
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            tokens = [*prompt, *answer.tokens][:-1]
            expected = reference(torch.tensor([tokens]), output_hidden_states=True).hidden_states
            for state in (0, 1):
                torch.testing.assert_close(answer.states[state], expected[state][0], rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(answer.states[layers + 1], expected[layers][0], rtol=1e-3, atol=1e-3)
            normed = reference.model.norm(answer.states[layers])
            torch.testing.assert_close(normed, expected[layers][0], rtol=1e-3, atol=1e-3)
