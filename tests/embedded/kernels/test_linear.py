"""Products agree with torch, and a row's bits depend on nothing but the row."""

from typing import Any

import pytest
import torch
from tests.embedded.kernels.reference import Plain, random_quantised
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels

KINDS = ["float32", "bfloat16", "float16", "4-bit", "8-bit"]
SHAPES = [(12, 64), (7, 33), (130, 576), (9, 200), (1, 1), (64, 96)]


def weight_of(
    kind: str, rows: int, columns: int, group: int = 32, scale: torch.dtype = torch.float16
) -> tuple[Any, Tensor]:
    """A weight and its numbers in float32."""
    if kind in {"4-bit", "8-bit"}:
        quantised = random_quantised(rows, columns, 4 if kind == "4-bit" else 8, group, scale)
        return quantised, quantised.numbers
    tensor = torch.randn(rows, columns).to(getattr(torch, kind))
    return Plain(tensor), tensor.float()


def product(kernels: Kernels, weight: Any, x: Tensor, width: int, bias: Tensor | None = None) -> Tensor:
    out = torch.full((len(x), width), torch.nan)
    program = kernels.program()
    program.linear(weight, x, out, bias)
    program.run_rows(len(x))
    return out


def close(out: Tensor, expected: Tensor, x: Tensor, numbers: Tensor) -> bool:
    """As close as sums in float32 can be, which depends on how large their terms are."""
    terms = x.abs().double() @ numbers.abs().double().T
    return bool(((out - expected).abs() <= 1e-6 * terms + 1e-6).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_torch(kernels: Kernels, kind: str, shape: tuple[int, int]) -> None:
    weight, numbers = weight_of(kind, *shape)
    x, bias = torch.randn(17, shape[1]), torch.randn(shape[0])
    # With AVX512-BF16, x is rounded for weights in bfloat16; which it is depends on the machine, not on the row.
    meant = [x, x.bfloat16().float()] if kind == "bfloat16" else [x]
    expected = [rows.double() @ numbers.double().T + bias.double() for rows in meant]
    outs = {count: product(kernels, weight, x[:count], shape[0], bias) for count in (1, 2, 5, 17)}
    assert any(all(close(out, rows[:count], x[:count], numbers) for count, out in outs.items()) for rows in expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [576, 200])
def test_a_row_is_the_same_in_any_company(kernels: Kernels, kind: str, columns: int) -> None:
    weight, _ = weight_of(kind, 30, columns)
    x = torch.randn(40, columns)
    kernels.threads = 1
    alone = torch.cat([product(kernels, weight, row[None], 30) for row in x])
    for threads in (1, 2, 3):
        kernels.threads = threads
        for count in range(1, 41):
            assert torch.equal(product(kernels, weight, x[:count], 30), alone[:count]), (threads, count)
    kernels.threads = 1


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("scale", [torch.float16, torch.float32])
def test_groups_and_scales(kernels: Kernels, bits: int, group: int, scale: torch.dtype) -> None:
    weight = random_quantised(10, 384, bits, group, scale)
    x = torch.randn(9, 384)
    for count in (1, 9):
        expected = x[:count].double() @ weight.numbers.double().T
        assert close(product(kernels, weight, x[:count], 10), expected, x[:count], weight.numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("bits", "columns"), [(4, 192), (4, 72), (8, 192), (8, 72)])
def test_dequantised_numbers(kernels: Kernels, bits: int, columns: int, dtype: torch.dtype) -> None:
    weight = random_quantised(11, columns, bits, 32, torch.float16)
    out = torch.full((11, columns), torch.nan, dtype=dtype)
    kernels.threads = 2
    kernels.dequantise(weight, out)
    kernels.threads = 1
    # A machine without fused multiply-add rounds once more.
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    torch.testing.assert_close(out.float(), weight.numbers, rtol=tolerance, atol=1e-6)


def test_nothing_beyond_the_row_is_read(kernels: Kernels) -> None:
    """The column behind the last one holds NaN, in x and in the weight."""
    x, tensor = torch.full((3, 72), torch.nan), torch.full((5, 72), torch.nan)
    x[:, :70], tensor[:, :70] = torch.randn(3, 70), torch.randn(5, 70)
    out = product(kernels, Plain(tensor[:, :70]), x[:, :70], 5)
    torch.testing.assert_close(out, x[:, :70] @ tensor[:, :70].T, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused(kernels: Kernels) -> None:
    program = kernels.program()
    with pytest.raises(ValueError, match="does not fit"):
        program.linear(Plain(torch.zeros(4, 8)), torch.zeros(2, 9), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="must be float32"):
        program.linear(Plain(torch.zeros(4, 8)), torch.zeros(2, 8, dtype=torch.bfloat16), torch.zeros(2, 4))
    program.linear(Plain(torch.zeros(4, 8)), torch.zeros(2, 8), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="3 rows do not fit buffers of 2"):
        program.run_rows(3)
