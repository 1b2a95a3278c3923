"""What each rank holds of a model: whole heads, whole columns of the MLP, and a part of the vocabulary."""

from typing import NamedTuple

from firstlight.embedded.errors import WrongUsage
from firstlight.embedded.model.config import ModelConfig

ZEROS_OF_A_WORD = 8
"""Zero points are packed along the rows, so many to a word; a word is not cut."""


class Share(NamedTuple):
    """Rank `rank` of `ranks`."""

    rank: int = 0
    ranks: int = 1

    def of(self, extent: int) -> slice:
        """This rank's part of rows or columns that divide evenly."""
        each = extent // self.ranks
        return slice(self.rank * each, (self.rank + 1) * each)

    def of_vocabulary(self, vocab_size: int) -> slice:
        """This rank's rows of the head, whole words of them; some may lie beyond the vocabulary, so that all have as
        many."""
        each = -(-vocab_size // (self.ranks * ZEROS_OF_A_WORD)) * ZEROS_OF_A_WORD if self.ranks > 1 else vocab_size
        return slice(self.rank * each, (self.rank + 1) * each)


def check_share(config: ModelConfig, ranks: int) -> None:
    """Raises WrongUsage if the model cannot be dealt out evenly, naming the numbers."""
    queries, keys, inner = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.intermediate_size
    _check(f"{config.kv_heads} key-value heads", config.kv_heads, ranks)
    _check(f"{inner} columns inside the MLP", inner, ranks)
    quantization = config.quantization
    if quantization is None or ranks == 1:
        return
    for module, extent in {"o_proj": queries, "down_proj": inner}.items():
        _check(f"{extent} columns of {module} in groups of {quantization.group}", extent // quantization.group, ranks)
    if quantization.method == "compressed-tensors" and not quantization.symmetric:
        for module, extent in {"q_proj": queries, "k_proj": keys, "gate_proj": inner}.items():
            what = f"{extent} rows of {module} with zero points packed by {ZEROS_OF_A_WORD}"
            _check(what, 1 if extent % ZEROS_OF_A_WORD else extent // ZEROS_OF_A_WORD, ranks)


def _check(what: str, parts: int, ranks: int) -> None:
    if parts % ranks:
        raise WrongUsage(f"{what} cannot be shared by {ranks} ranks", f"Ask for a number that divides {parts}")
