"""Runs passes on one rank: picks the path, gathers the scores of all ranks, keeps the states that were asked for."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from firstlight.embedded.model.passes import Pass, Result
from firstlight.embedded.worker.ranks import Ranks

FEW_ROWS = 64
"""Prompts up to this length are computed as decode rows are; beyond it torch's matrix products are faster."""


class ForwardPath(Protocol):
    """A way to compute a pass: model/torch_path.py, model/native_path.py or model/cuda_graphs.py."""

    def hidden(self, work: Pass, beat: Callable[[], None]) -> tuple[Tensor, dict[int, Tensor]]: ...
    def normed(self, x_TD: Tensor) -> Tensor: ...
    def scores(self, x_TD: Tensor) -> Tensor: ...


class Runner:
    """One rank's part of every pass. On rank 0 the result is whole; on the others it is empty-handed."""

    def __init__(
        self,
        *,
        many_rows: ForwardPath,
        few_rows: ForwardPath,
        ranks: Ranks,
        layers: int,
        vocabulary: int,
        beat: Callable[[], None],
    ) -> None:
        self._many_rows = many_rows
        self._few_rows = few_rows
        self._ranks = ranks
        self._layers = layers
        self._vocabulary = vocabulary
        self._beat = beat

    @torch.inference_mode()
    def run(self, work: Pass) -> Result:
        """Scores of the wanted rows (W, V) and the tapped states (T, D) by number, all float32."""
        self._ranks.begin(work.number, work.kind)
        path = self._path(work)
        x_TD, states = path.hidden(work, self._beat)
        if self._layers + 1 in work.tapped:
            states[self._layers + 1] = path.normed(x_TD).float()
        if not work.wanted:
            return Result(torch.empty(0, self._vocabulary), states)
        part_WV = path.scores(x_TD if len(work.wanted) == len(x_TD) else x_TD[work.wanted])
        logits_WV = self._ranks.gather_columns(part_WV, "scores")
        return Result(logits_WV[:, : self._vocabulary], states)

    def _path(self, work: Pass) -> ForwardPath:
        """By the shape of the pass alone: what a row is computed with must not depend on what else runs."""
        few = work.kind == "decode" or len(work.tokens) <= FEW_ROWS
        return self._few_rows if few else self._many_rows
