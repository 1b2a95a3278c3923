"""What each rank holds of a model: whole heads, whole columns of the MLP, and a part of the vocabulary."""

from typing import NamedTuple

from firstlight.embedded.errors import WrongUsage
from firstlight.embedded.model.config import ModelConfig

ZEROS_OF_A_WORD = 8
"""Zero points are packed along the rows, so many to a word."""


class Share(NamedTuple):
    """Rank `rank` of `ranks`."""

    rank: int = 0
    ranks: int = 1

    def of(self, extent: int) -> slice:
        """This rank's part of rows or columns that divide evenly."""
        each = extent // self.ranks
        return slice(self.rank * each, (self.rank + 1) * each)

    def of_vocabulary(self, vocab_size: int) -> slice:
        """This rank's rows of the head; the last may lie beyond the vocabulary, so that all have as many."""
        each = -(-vocab_size // self.ranks)
        return slice(self.rank * each, (self.rank + 1) * each)


def check_share(config: ModelConfig, ranks: int) -> None:
    """Raises WrongUsage if the model cannot be dealt out evenly, naming the numbers."""
    _check("key-value heads", config.kv_heads, 1, ranks)
    _check("columns inside the MLP", config.intermediate_size, 1, ranks)
    if config.quantization is None or ranks == 1:
        return
    queries, keys, inner = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.intermediate_size
    for module, extent in {"o_proj": queries, "down_proj": inner}.items():
        _check(f"columns of {module}, quantised in groups,", extent, config.quantization.group, ranks)
    if config.quantization.method == "compressed-tensors" and not config.quantization.symmetric:
        for module, extent in {"q_proj": queries, "k_proj": keys, "gate_proj": inner}.items():
            _check(f"rows of {module}, whose zero points are packed,", extent, ZEROS_OF_A_WORD, ranks)


def _check(what: str, extent: int, unit: int, ranks: int) -> None:
    """Whether `extent` is a multiple of `unit` on each rank."""
    if extent % (unit * ranks):
        by = f" by {unit}" if unit > 1 else ""
        raise WrongUsage(
            f"{extent} {what} cannot be shared{by} by {ranks} ranks",
            f"Ask for a number that divides {extent // unit}",
        )
