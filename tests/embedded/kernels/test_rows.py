"""Norms, SwiGLU, placing and attending agree with torch, alone and in company."""

import pytest
import torch
from tests.embedded.kernels.reference import Span, attention
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels
from firstlight.embedded.model.layers import rms_norm, rotate

PAGES = 40


@pytest.mark.parametrize("width", [64, 576, 75])
def test_add_norm_and_copy(kernels: Kernels, width: int) -> None:
    x, delta, weight = torch.randn(5, width), torch.randn(5, width), torch.randn(width)
    summed, normed, plain, tapped = x + delta, torch.empty(5, width), torch.empty(5, width), torch.empty(5, width)
    program = kernels.program()
    program.copy(x, delta, tapped)
    program.add_norm(x, None, weight, 1e-5, plain)
    program.add_norm(x, delta, weight, 1e-5, normed)
    expected_plain = rms_norm(x, weight, 1e-5)
    program.run_rows(5)
    torch.testing.assert_close(plain, expected_plain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(normed, rms_norm(summed, weight, 1e-5), rtol=1e-5, atol=1e-6)
    assert torch.equal(x, summed)
    assert torch.equal(tapped, summed)


@pytest.mark.parametrize("width", [96, 37])
def test_swiglu(kernels: Kernels, width: int) -> None:
    gate_up = torch.randn(3, 2 * width) * 8
    gate_up[0, :4] = torch.tensor([-200.0, -90.0, 90.0, 200.0])
    out = torch.empty(3, width)
    program = kernels.program()
    program.swiglu(gate_up, out)
    program.run_rows(3)
    gate, up = gate_up.double().chunk(2, dim=-1)
    torch.testing.assert_close(out.double(), torch.nn.functional.silu(gate) * up, rtol=1e-6, atol=1e-30)


class Attention:
    """Pages with a past, and a program that places and attends."""

    def __init__(  # noqa: PLR0917
        self, kernels: Kernels, heads: int, kv_heads: int, size: int, dtype: torch.dtype, rows: int
    ) -> None:
        self.kernels, self.heads, self.kv_heads, self.size = kernels, heads, kv_heads, size
        self.keys = torch.randn(PAGES, kv_heads, 16, size).to(dtype)
        self.values = torch.randn(PAGES, kv_heads, 16, size).to(dtype)
        angles = torch.outer(torch.arange(PAGES * 16.0), 0.1 ** torch.arange(size // 2))
        self.cos, self.sin = angles.cos(), angles.sin()
        self.qkv = torch.randn(rows, (heads + 2 * kv_heads) * size)
        self.scale = size**-0.5

    def run(
        self, qkv: Tensor, spans: list[Span], window: int = 0, norms: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        q_norm, k_norm = norms or (None, None)
        out = torch.full((len(qkv), self.heads * self.size), torch.nan)
        program = self.kernels.program()
        program.place(qkv, q_norm, k_norm, 1e-6, self.cos, self.sin, self.keys, self.values)
        program.attend(qkv, self.keys, self.values, out, window, self.scale)
        program.run(self.kernels.rows(spans))
        return out


def expected_placing(
    case: Attention, qkv: Tensor, positions: Tensor, norms: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv.view(len(qkv), -1, case.size).split([case.heads, case.kv_heads, case.kv_heads], dim=1)
    if norms is not None:
        q, k = rms_norm(q, norms[0], 1e-6), rms_norm(k, norms[1], 1e-6)
    cos, sin = case.cos[positions], case.sin[positions]
    return rotate(q, cos, sin), rotate(k, cos, sin), v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [(9, 3, 64), (4, 4, 8), (8, 2, 80)])
@pytest.mark.parametrize("window", [0, 5, 40])
@pytest.mark.parametrize("normed", [False, True])
def test_place_and_attend(
    kernels: Kernels, dtype: torch.dtype, heads: tuple[int, int, int], window: int, normed: bool
) -> None:
    case = Attention(kernels, *heads, dtype, 7)
    norms = (torch.rand(case.size) + 0.5, torch.rand(case.size) + 0.5) if normed else None
    spans = [Span(0, 1, [3]), Span(45, 4, [30, 2, 9, 11]), Span(31, 2, [7, 1, 5])]
    before = case.qkv.clone()
    out = case.run(case.qkv, spans, window, norms)
    positions = torch.tensor([0, 45, 46, 47, 48, 31, 32])
    q, k, v = expected_placing(case, before, positions, norms)
    torch.testing.assert_close(case.qkv[:, : q[0].numel()].view(q.shape), q, rtol=1e-5, atol=1e-5)
    row = 0
    for span in spans:
        for own in range(span.count):
            position = span.start + own
            page, slot = span.pages[position // 16], position % 16
            torch.testing.assert_close(case.keys[page, :, slot], k[row].to(dtype), rtol=2**-7, atol=1e-5)
            assert torch.equal(case.values[page, :, slot], v[row].to(dtype))
            expected = attention(case.qkv[row], case.keys, case.values, span, own, window, case.scale)
            torch.testing.assert_close(out[row].double(), expected, rtol=2e-5, atol=2e-5)
            row += 1


def test_a_row_is_the_same_in_any_company(kernels: Kernels) -> None:
    case = Attention(kernels, 6, 2, 64, torch.bfloat16, 12)
    spans = [Span(100 + i, 1, list(range(10 * (i % 4), 10 * (i % 4) + 10))) for i in range(12)]
    before = case.qkv.clone()
    alone = torch.cat([case.run(before[i : i + 1].clone(), [spans[i]]) for i in range(12)])
    for threads in (1, 2, 3):
        kernels.threads = threads
        for count in range(1, 13):
            assert torch.equal(case.run(before[:count].clone(), spans[:count]), alone[:count])
    kernels.threads = 1


def test_what_lies_behind_a_row_does_not_matter(kernels: Kernels) -> None:
    """Pages may hold anything beyond the positions that were written, even NaN."""
    case = Attention(kernels, 4, 2, 32, torch.bfloat16, 1)
    case.keys[1, :, 5:], case.values[1, :, 5:] = torch.nan, torch.nan
    assert case.run(case.qkv, [Span(20, 1, [0, 1])]).isfinite().all()


def test_far_positions(kernels: Kernels) -> None:
    case = Attention(kernels, 3, 1, 64, torch.bfloat16, 1)
    span = Span(PAGES * 16 - 1, 1, list(range(PAGES)))
    out = case.run(case.qkv, [span])
    expected = attention(case.qkv[0], case.keys, case.values, span, 0, 0, case.scale)
    torch.testing.assert_close(out[0].double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("span", [Span(16, 1, [0]), Span(0, 1, [PAGES]), Span(0, 1, [-1])])
def test_rows_outside_the_pages_are_refused(kernels: Kernels, span: Span) -> None:
    case = Attention(kernels, 3, 1, 64, torch.float32, 1)
    with pytest.raises(ValueError, match="outside the cache"):
        case.run(case.qkv, [span])


def test_what_is_not_a_number_is_not_hidden(kernels: Kernels) -> None:
    case = Attention(kernels, 4, 2, 32, torch.bfloat16, 1)
    case.keys[0, 1, 3, 5] = torch.nan
    out = case.run(case.qkv, [Span(20, 1, [0, 1])])
    assert out[0, :64].isfinite().all()
    assert out[0, 64:].isnan().all()
