"""Makes room for one rank's weights, and notes which part of which file belongs there."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.checkpoint import Checkpoint
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.filling import Fill, FillKernels, FillNumbers, FillTorch, QuantisedPart, Task
from firstlight.embedded.model.linear import Dense, Dequantise, Embedding, Quantised, TorchPacked, Weight
from firstlight.embedded.model.quantised import TORCH_ROWS_MULTIPLE, padded_columns
from firstlight.embedded.model.reading import Cut, Job
from firstlight.embedded.model.safetensors_file import StoredTensor
from firstlight.embedded.model.share import ZEROS_OF_A_WORD, Share

CutOf = Callable[[StoredTensor], Cut]


class Placer:
    """Each method returns a weight whose memory is filled when the jobs have run."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        share: Share,
        *,
        native: bool,
        unpack: Dequantise | None,
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._share = share
        self._native = native
        self._unpack = unpack
        self.tasks: list[Task] = []

    def jobs(self) -> Iterator[Job]:
        """In the order of the files, so that disks read forwards."""
        for task in sorted(self.tasks, key=lambda task: (task.cuts[0].source.file, task.cuts[0].source.start)):
            yield from task.jobs()

    @property
    def cuts(self) -> list[Cut]:
        return [cut for task in self.tasks for cut in task.cuts]

    # --- vectors ----------------------------------------------------------------------------------------------------

    def vector(self, name: str) -> Tensor:
        """A norm or a bias, whole on every rank."""
        stored = self._checkpoint[name]
        vector = torch.empty(stored.shape, dtype=self._dtype)
        self.tasks.append(Fill(Cut.of(stored), vector[None]))
        return vector

    def bias_by_rows(self, modules: Sequence[str]) -> Tensor:
        """The biases of stacked projections, dealt out as their rows are."""
        stored = [self._checkpoint[f"{module}.bias"] for module in modules]
        cuts = [Cut.of(tensor, columns=self._share.of(tensor.shape[0])) for tensor in stored]
        widths = [cut.shape[1] for cut in cuts]
        bias = torch.empty(sum(widths), dtype=self._dtype)
        self.tasks += [Fill(cut, part[None]) for cut, part in zip(cuts, torch.split(bias, widths), strict=True)]
        return bias

    def bias_once(self, module: str) -> Tensor | None:
        """A bias of something that all ranks add up: on rank 0 only."""
        return self.vector(f"{module}.bias") if self._share.rank == 0 else None

    # --- matrices ---------------------------------------------------------------------------------------------------

    def by_rows(self, modules: Sequence[str]) -> Weight:
        """Projections of the same input, stacked; each is dealt out by rows."""
        return self._matrix(modules, lambda stored: Cut.of(stored, rows=self._share.of(stored.shape[0])))

    def by_columns(self, module: str) -> Weight:
        return self._matrix([module], lambda stored: Cut.of(stored, columns=self._share.of(stored.shape[1])))

    def embedding_and_head(self) -> tuple[Embedding, Weight]:
        """The embedding, whole, and the head, its rows dealt out and filled up with zeros; a tied head is a view."""
        own = self._share.of_vocabulary(self._config.vocab_size)
        everything, each = slice(0, self._config.vocab_size), own.stop - own.start
        if self._config.tied:
            whole = self._vocabulary("model.embed_tokens", everything, each * self._share.ranks)
            return whole.part(everything), whole.part(own)
        return self._vocabulary("model.embed_tokens", everything, 0), self._vocabulary("lm_head", own, each)

    def _vocabulary(self, module: str, rows: slice, height: int) -> Dense | Quantised:
        """Rows of the embedding or the head, at least `height` of them; those beyond the vocabulary are zero."""

        def cut(stored: StoredTensor) -> Cut:
            return Cut.of(stored, rows=rows)

        if self._bits([module]) == 0:
            stored = cut(self._checkpoint[f"{module}.weight"])
            numbers = torch.zeros(max(height, stored.shape[0]), stored.shape[1], dtype=self._dtype)
            self.tasks.append(Fill(stored, numbers[: stored.shape[0]]))
            return Dense(numbers)
        part = self._part(module, cut, lambda stored: Cut.of(stored, rows=_words(rows)))
        if self._native:
            return self._for_kernels([part], max(height, part.shape[0]))
        return self._as_numbers([part], max(height, part.shape[0]))

    def _matrix(self, modules: Sequence[str], cut_of: CutOf) -> Weight:
        if self._bits(modules) == 0:
            cuts = [cut_of(self._checkpoint[f"{module}.weight"]) for module in modules]
            heights = [cut.shape[0] for cut in cuts]
            matrix = torch.empty(sum(heights), cuts[0].shape[1], dtype=self._dtype)
            self.tasks += [Fill(cut, part) for cut, part in zip(cuts, torch.split(matrix, heights), strict=True)]
            return Dense(matrix)
        parts = [self._part(module, cut_of) for module in modules]
        height = sum(part.shape[0] for part in parts)
        if self._native:
            return self._for_kernels(parts, height)
        if parts[0].bits == 4 and self._dtype == torch.bfloat16 and height % TORCH_ROWS_MULTIPLE == 0:
            return self._for_torch(parts, height)
        return self._as_numbers(parts, height)

    def _bits(self, modules: Sequence[str]) -> int:
        """0 for plain numbers. Stacked projections must be alike."""
        scheme = self._config.quantization
        bits = {scheme.bits(module) if scheme else 0 for module in modules}
        if len(bits) != 1:
            raise ModelNotUsable(
                f"of {', '.join(modules)} some are quantised and some are not; this engine computes them as one"
            )
        return bits.pop()

    def _part(self, module: str, cut_of: CutOf, zero_points: CutOf | None = None) -> QuantisedPart:
        """`zero_points` cuts those where `cut_of` would not: it speaks of rows, and they are words of eight rows."""
        minimum = self._checkpoint.get(f"{module}.weight_minimum")
        zero_point = self._checkpoint.get(f"{module}.weight_zero_point")
        return QuantisedPart(
            packed=cut_of(self._checkpoint[f"{module}.weight_packed"]),
            scale=cut_of(self._checkpoint[f"{module}.weight_scale"]),
            minimum=None if minimum is None else cut_of(minimum),
            zero_point=None if zero_point is None else (zero_points or cut_of)(zero_point),
            bits=self._bits([module]),
        )

    def _for_kernels(self, parts: Sequence[QuantisedPart], height: int) -> Quantised:
        columns, bits = parts[0].shape[1], parts[0].bits
        scale = torch.zeros(height, parts[0].scale.shape[1], dtype=_scale_dtype(parts))
        minimum = torch.zeros_like(scale) if bits == 4 else None
        words = padded_columns(columns) // 4 if bits == 4 else columns
        packed = torch.zeros(height, words, dtype=torch.uint16 if bits == 4 else torch.int8)
        weight = Quantised(packed, scale, minimum, self._group, bits, (height, columns), self._unpack)
        for part, rows in _stacked(parts):
            place = weight.part(rows)
            self.tasks.append(FillKernels(part, place.packed, place.scale, place.minimum))
        return weight

    def _for_torch(self, parts: Sequence[QuantisedPart], height: int) -> TorchPacked:
        columns = parts[0].shape[1]
        packed = torch.empty(height, columns // 2, dtype=torch.uint8)
        scales_and_zeros = torch.zeros(columns // self._group, height, 2, dtype=self._dtype)
        self.tasks.append(FillTorch(parts, packed, scales_and_zeros))
        return TorchPacked(packed, scales_and_zeros, self._group, (height, columns))

    def _as_numbers(self, parts: Sequence[QuantisedPart], height: int) -> Dense:
        numbers = torch.zeros(height, parts[0].shape[1], dtype=self._dtype)
        self.tasks += [FillNumbers(part, numbers[rows]) for part, rows in _stacked(parts)]
        return Dense(numbers)

    @property
    def _group(self) -> int:
        assert self._config.quantization is not None
        return self._config.quantization.group


def _stacked(parts: Sequence[QuantisedPart]) -> Iterator[tuple[QuantisedPart, slice]]:
    """Each part with its rows in the stack."""
    start = 0
    for part in parts:
        yield part, slice(start, start + part.shape[0])
        start += part.shape[0]


def _words(rows: slice) -> slice:
    """The words that hold the zero points of some rows, which begin with a whole word."""
    return slice(rows.start // ZEROS_OF_A_WORD, -(-rows.stop // ZEROS_OF_A_WORD))


def _scale_dtype(parts: Sequence[QuantisedPart]) -> torch.dtype:
    """That of the files, in which eight times a scale is exact; float32 where the minimum is a longer product."""
    stored = {part.scale.dtype for part in parts}
    computed = any(part.zero_point is not None for part in parts)
    return torch.float32 if computed or len(stored) > 1 else stored.pop()
