"""The engine's C products against torch's own, for each way to write a weight: a layer of SmolLM2 in both, in turns.

    python benches/bench_kernels.py [--threads N] [--times N]

The layers' weights together are larger than any cache, so a layer is read from memory as in decoding. Both multiply a
layer's four weights with M rows; torch has int4 weights in its own packing (no minimum, groups of 32). GB/s are those
of ours at the least time, beside the read bandwidth measured in the same run; ratios are torch's time over ours.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.embedded.kernels import native
from firstlight.embedded.model.linear import Dense, Quantised
from firstlight.embedded.model.quantised import pack4
from pairs import in_turns, machine
from read_bandwidth import read_bandwidth

SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
"""Rows and columns of SmolLM2's qkv, output, gate and up, and down weights."""
LAYERS = 30
ROWS = (1, 2, 4, 8, 16, 32)
GROUP = 32


class Layer(NamedTuple):
    """One layer in both forms."""

    ours: list[Any]
    theirs: list[Any]


def dense_layer(dtype: torch.dtype) -> Layer:
    tensors = [torch.randn(shape).to(dtype) for shape in SHAPES]
    return Layer([Dense(tensor) for tensor in tensors], tensors)


def int4_layer() -> Layer:
    ours, theirs = [], []
    for rows, columns in SHAPES:
        q = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
        scale = torch.rand(rows, columns // GROUP).half() / 100
        ours.append(Quantised(pack4(q), scale, -8 * scale, GROUP, 4, (rows, columns)))
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.to(torch.int32), 1)
        scale_and_zero = torch.stack((scale.T.bfloat16(), torch.zeros_like(scale.T).bfloat16()), dim=-1).contiguous()
        theirs.append((packed, scale_and_zero))
    return Layer(ours, theirs)


def torch_product(weight: Any, x: Tensor) -> Tensor:
    if isinstance(weight, Tensor):
        return torch.nn.functional.linear(x.to(weight.dtype), weight)
    packed, scale_and_zero = weight
    out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x.bfloat16(), packed, GROUP, scale_and_zero)
    return out


def ours(kernels: native.Kernels, layers: list[Layer], count: int) -> Callable[[], float]:
    """Runs the next layer, and returns seconds."""
    x = {columns: torch.randn(count, columns) for _, columns in SHAPES}
    out = {rows: torch.empty(count, rows) for rows, _ in SHAPES}
    programs = []
    for layer in layers:
        program = kernels.program()
        for weight, (rows, columns) in zip(layer.ours, SHAPES, strict=True):
            program.linear(weight, x[columns], out[rows])
        programs.append(program)
    order, rows_of_run = cycle(programs), native.Rows.without_pages(count)
    return lambda: seconds(order, lambda program: program.run(rows_of_run))


def theirs(layers: list[Layer], count: int) -> Callable[[], float]:
    x = {columns: torch.randn(count, columns).bfloat16() for _, columns in SHAPES}
    order = cycle(layers)

    def multiply(layer: Layer) -> None:
        for weight, (_, columns) in zip(layer.theirs, SHAPES, strict=True):
            torch_product(weight, x[columns])

    return lambda: seconds(order, multiply)


def seconds(order: Iterator[Any], run: Callable[[Any], Any]) -> float:
    thing = next(order)
    began = time.perf_counter()
    run(thing)
    return time.perf_counter() - began


def compare(name: str, kernels: native.Kernels, layers: list[Layer], bandwidth: float, times: int) -> None:
    size = sum(weight.bytes for weight in layers[0].ours)
    for count in ROWS:
        pairs = in_turns(ours(kernels, layers, count), theirs(layers, count), times)
        ratios = sorted(second / first for first, second in zip(*pairs, strict=True))
        best, tenth = min(pairs.first), len(ratios) // 10
        print(
            f"  {name:<9} M={count:<3} {1e6 * best:6.0f} us a layer, {size / best / 1e9:5.1f} GB/s "
            f"({100 * size / best / bandwidth:3.0f} % of reading), "
            f"torch / ours {statistics.median(ratios):5.2f} x ({ratios[tenth]:.2f} .. {ratios[-1 - tenth]:.2f}, "
            f"the middle four fifths of {times} pairs), {min(pairs.second) / best:.2f} x at their least",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=150)
    chosen = parser.parse_args()
    kernels = native.load()
    if isinstance(kernels, native.Unavailable):
        sys.exit(kernels.reason)
    torch.set_num_threads(chosen.threads)
    kernels.threads = chosen.threads
    print(__doc__)
    print(machine())
    bandwidth = read_bandwidth()
    print(f"  reading memory: {bandwidth / 1e9:.1f} GB/s on all CPUs; products with {chosen.threads} threads")
    for name, make in (
        ("bfloat16", lambda: dense_layer(torch.bfloat16)),
        ("float32", lambda: dense_layer(torch.float32)),
        ("4-bit", int4_layer),
    ):
        compare(name, kernels, [make() for _ in range(LAYERS)], bandwidth, chosen.times)


if __name__ == "__main__":
    main()
