"""The padding of decode passes for CUDA graphs, on the CPU: padded or not, a pass gives the same."""

from pathlib import Path

import torch

from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.cuda_graphs import GraphedPath, shape_of
from firstlight.embedded.model.kv import KvTensors
from firstlight.embedded.model.layers import rotary_table
from firstlight.embedded.model.passes import Pass, Span
from firstlight.embedded.model.torch_path import TorchPath
from firstlight.embedded.model.weights import load_weights

PAGES = 12


def path_on(folder: Path) -> TorchPath:
    config = read_config(folder)
    weights = load_weights(config, open_checkpoint(folder, config), torch.float32, count=lambda *_: None)
    cache = KvTensors(config, PAGES + 1, torch.float32)
    return TorchPath(config, weights, cache, rotary_table(config, 256, torch.float32), total=None)


def prompt(first: int, count: int, pages: list[int]) -> Pass:
    tokens = list(range(first, first + count))
    return Pass(number=1, kind="prefill", tokens=tokens, spans=[Span(0, count, pages)], wanted=[])


@torch.no_grad()
def test_a_padded_pass_gives_the_same(tiny_model: Path) -> None:
    plain, padded = path_on(tiny_model), path_on(tiny_model)
    graphed = GraphedPath(padded, spare_page=PAGES)
    for path in (plain, padded):
        path.hidden(prompt(5, 30, [3, 1]), lambda: None)
        path.hidden(prompt(90, 17, [4, 2]), lambda: None)
    for step in range(4):  # the second time on, a shape that is known
        work = Pass(
            number=2 + step,
            kind="decode",
            tokens=[9, 8, 7, 6],
            spans=[Span(30 + step, 3, [3, 1, 5]), Span(17 + step, 1, [4, 2])],
            wanted=[],
            tapped=[0, 1, 2],
        )
        x_TD, states = graphed.hidden(work, lambda: None)
        expected, expected_states = plain.hidden(work, lambda: None)
        torch.testing.assert_close(x_TD, expected, rtol=1e-5, atol=1e-5)
        for state in work.tapped:
            torch.testing.assert_close(states[state], expected_states[state], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(graphed.scores(x_TD), plain.scores(expected), rtol=1e-4, atol=1e-4)


def test_shapes_are_few() -> None:
    shapes = {
        shape_of(Pass(number=1, kind="decode", tokens=[0] * rows, spans=[Span(0, rows, [0] * pages)], wanted=[]))
        for rows in range(1, 65)
        for pages in range(1, 100, 7)
    }
    assert len(shapes) == 7 * 4
