"""The blocks of a GGUF file kept as they are: 4-bit matrices (Q4_1) and an 8-bit embedding (Q8_0), in safetensors.

Nothing is rounded: the numbers that the folder stands for are those of the GGUF file, bit by bit. A matrix X of N
rows and K columns, in groups of 32 columns, becomes

    X.weight_packed   Q4_1: I32 (N, K/8), eight numbers 0..15 a word, the first in its lowest bits
                      Q8_0: I8 (N, K)
    X.weight_scale    F16 (N, K/32)
    X.weight_minimum  F16 (N, K/32), with Q4_1 only

and stands for scale * q + minimum. The words are those of compressed-tensors' `pack-quantized`. config.json says so:

    "quantization_config": {"quant_method": "gguf-blocks", "linear": "Q4_1", "embedding": "Q8_0", "group_size": 32}

Source of the blocks: the GGUF specification and `gguf.quants` (0.19). A block of Q4_1 is a scale and a minimum
(float16), then 16 bytes, of which byte j has number j in its lower and number 16 + j in its upper half; a block of
Q8_0 is a scale, then 32 signed bytes.
"""

from collections.abc import Iterator
from functools import partial

import gguf
import numpy as np

from firstlight.embedded.demo.safetensors_write import Entry
from firstlight.embedded.errors import EngineError

GROUP = 32
QUANTIZATION = {"quant_method": "gguf-blocks", "linear": "Q4_1", "embedding": "Q8_0", "group_size": GROUP}
_VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")
_Q4_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", GROUP // 2)])
_Q8_0 = np.dtype([("scale", "<f2"), ("numbers", "i1", GROUP)])
_KINDS = {gguf.GGMLQuantizationType.Q4_1: _Q4_1, gguf.GGMLQuantizationType.Q8_0: _Q8_0}


class BlocksNotKept(EngineError):
    """A tensor of the GGUF file is of a kind that is not kept as blocks; the sentence says which."""


def entries_of(name: str, rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> Iterator[Entry]:
    """The tensors that stand for a matrix; `rows` are its raw bytes (N, bytes of a row). Raises BlocksNotKept."""
    wanted = gguf.GGMLQuantizationType.Q8_0 if name in _VOCABULARY else gguf.GGMLQuantizationType.Q4_1
    if kind != wanted:
        raise BlocksNotKept(f"the tensor {name} is {kind.name}; only {wanted.name} is kept as blocks")
    blocks = np.ascontiguousarray(rows).view(_KINDS[kind])
    height, groups = blocks.shape
    if kind == gguf.GGMLQuantizationType.Q8_0:
        yield Entry(f"{name}_packed", "I8", (height, groups * GROUP), lambda: blocks["numbers"].reshape(height, -1))
    else:
        yield Entry(f"{name}_packed", "I32", (height, groups * GROUP // 8), partial(words_of, blocks["pairs"]))
        yield Entry(f"{name}_minimum", "F16", (height, groups), lambda: blocks["minimum"])
    yield Entry(f"{name}_scale", "F16", (height, groups), lambda: blocks["scale"])


def words_of(pairs: np.ndarray) -> np.ndarray:
    """Words (N, K/8) of the bytes (N, K/32, 16) of Q4_1: neighbouring numbers become neighbouring nibbles."""
    numbers = np.concatenate((pairs & 15, pairs >> 4), axis=-1)
    words: np.ndarray = (numbers[..., 0::2] | numbers[..., 1::2] << 4).view("<i4")
    return words.reshape(len(pairs), -1)
