"""The demo model itself, read by another implementation: it speaks, and its tokenizer keeps every text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.embedded.demo_model.matrices import matrices
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from firstlight.embedded.demo.demo_model import demo_model_path, ensure_demo_model
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.linear import Quantised
from firstlight.embedded.model.weights import load_weights


@pytest.fixture(scope="module")
def folder() -> Path:
    return ensure_demo_model()


@pytest.fixture(scope="module")
def tokenizer(folder: Path):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_once_made_it_is_found_without_a_fetch(folder: Path) -> None:
    assert demo_model_path() == folder


def test_transformers_loads_every_weight_and_the_model_knows_paris(folder: Path, tokenizer) -> None:
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(report.values()), report
    asked = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        answer = model.generate(**asked, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(answer[0]) == "The capital of France is Paris."


def test_the_chat_template_brings_its_system_prompt(tokenizer) -> None:
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_its_short_name_is_good_for_requests_too(folder: Path, start: Callable[..., Any]) -> None:
    server = start("demo", "--threads", "1").ready()
    asked = {"model": "demo", "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
    reply = server.ask("/v1/completions", asked).json
    assert reply["choices"][0]["text"] == " Paris"
    assert reply["model"] == folder.name


def test_kept_as_blocks_it_stands_for_the_same_numbers(folder: Path) -> None:
    """The plain folder is the blocks rounded to bfloat16, so rounding the blocks must give the plain folder."""
    blocks = ensure_demo_model(quantised=True)
    config = read_config(blocks)
    checkpoint = open_checkpoint(blocks, config)
    weights = load_weights(config, checkpoint, torch.bfloat16, count=lambda done, total, unit: None, native=True)
    plain = load_file(folder / "model.safetensors")
    for weight, modules in matrices(weights):
        assert isinstance(weight, Quantised)
        stacked = torch.cat([plain[f"{module}.weight"] for module in modules])
        assert torch.equal(weight.dequantised(torch.bfloat16), stacked), modules
    assert torch.equal(weights.norm, plain["model.norm.weight"])
    ids = torch.tensor([0, 504, 49151])
    assert torch.equal(weights.embedding.rows(ids).bfloat16(), plain["model.embed_tokens.weight"][ids])


BYTES_WITHOUT_TOKEN = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
"""The model's vocabulary lacks these, so it cannot see a few control characters and the unassigned planes."""

texts = st.text() | st.text("0123456789 \n\t'an<|_>é日🙂", max_size=40)


@given(text=texts)
def test_both_tokenizers_agree(plain: Tokenizer, tokenizer, text: str) -> None:
    assert tokenizer(text)["input_ids"] == plain.encode(text).ids


@given(text=texts.filter(lambda text: not BYTES_WITHOUT_TOKEN & set(text.encode())))
def test_every_text_that_has_tokens_comes_back(plain: Tokenizer, text: str) -> None:
    assert plain.decode(plain.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_are_one_token_each_and_digits_stand_alone(folder: Path, plain: Tokenizer) -> None:
    assert plain.encode("<|im_start|>user 2026<|im_end|>").tokens == [
        *("<|im_start|>", "user", "Ġ", "2", "0", "2", "6", "<|im_end|>")
    ]
    config = json.loads((folder / "config.json").read_text())
    assert plain.token_to_id("<|im_start|>") == config["bos_token_id"]
    assert plain.token_to_id("<|im_end|>") == config["eos_token_id"]
