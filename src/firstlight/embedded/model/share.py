"""What each rank holds of a model: whole heads, whole columns of the MLP, and a part of the vocabulary."""

from typing import NamedTuple

from firstlight.embedded.errors import WrongUsage
from firstlight.embedded.model.config import ModelConfig


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
    extents = {"key-value heads": config.kv_heads, "columns inside the MLP": config.intermediate_size}
    for what, extent in extents.items():
        if extent % ranks:
            raise WrongUsage(
                f"{extent} {what} cannot be shared by {ranks} ranks", f"Ask for a number that divides {extent}"
            )
    if config.quantization is None:
        return
    group = config.quantization.group
    columns = {"o_proj": config.heads * config.head_dim, "down_proj": config.intermediate_size}
    for module, extent in columns.items():
        if (extent // ranks) % group:
            raise WrongUsage(
                f"{extent} columns of {module}, quantised in groups of {group}, cannot be shared by {ranks} ranks",
                f"Ask for a number that divides {extent // group}",
            )
