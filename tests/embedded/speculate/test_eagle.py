"""The EAGLE-3 drafter against a slow reference: pieces of transformers, the whole sequence again for every guess."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from firstlight.embedded.kernels.native import Kernels, Unavailable, load
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.linear import Dense
from firstlight.embedded.speculate.eagle import EagleDrafter
from firstlight.embedded.speculate.eagle_checkpoint import DraftCheckpoint, DraftWeights, load_draft, open_draft
from firstlight.embedded.speculate.eagle_native import NativeNetwork
from firstlight.embedded.speculate.eagle_network import Network, Parts, Slots
from firstlight.embedded.speculate.eagle_torch import TorchNetwork

PAGES = 64
ROPE: dict[str, dict[str, Any]] = {
    "NoneType": {},
    "Llama3Scaling": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "LinearScaling": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}, "head_dim": 24},
}


class Sequence:
    """What a drafter sees of a request."""

    def __init__(self, request: int, tokens: list[int], pages: list[int]) -> None:
        self.request = request
        self.tokens = tokens
        self.pages = pages


class Reference:
    """One drafter without pages, caches or batches."""

    def __init__(self, checkpoint: DraftCheckpoint, weights: DraftWeights, embedding: Tensor) -> None:
        layer = checkpoint.config.layer
        default = {"rope_type": "default", "rope_theta": layer.rope_theta}
        raw = ROPE[type(layer.rope_scaling).__name__].get("rope_scaling", {})
        config = LlamaConfig(
            hidden_size=layer.hidden_size,
            intermediate_size=layer.intermediate_size,
            num_attention_heads=layer.heads,
            num_key_value_heads=layer.kv_heads,
            head_dim=layer.head_dim,
            rms_norm_eps=layer.norm_eps,
            max_position_embeddings=4096,
            rope_parameters=default | raw,
            attn_implementation="eager",
        )
        q, k, v = weights.qkv.tensor.split([layer.heads * layer.head_dim, *[layer.kv_heads * layer.head_dim] * 2])
        gate, up = weights.gate_up.tensor.chunk(2)
        self.attention = LlamaAttention(config, 0)
        for name, weight in {"q": q, "k": k, "v": v, "o": weights.output.tensor}.items():
            setattr(self.attention, f"{name}_proj", linear(weight))
        self.mlp = LlamaMLP(config)
        self.mlp.gate_proj, self.mlp.up_proj, self.mlp.down_proj = map(linear, (gate, up, weights.down.tensor))
        self.rotary = LlamaRotaryEmbedding(config)
        norms = (weights.token_norm, weights.state_norm, weights.mlp_norm, weights.norm)
        self.token_norm, self.state_norm, self.mlp_norm, self.norm = (rms(weight, layer.norm_eps) for weight in norms)
        self.fuse, self.words = weights.fuse.tensor, weights.words
        self.head = weights.head.tensor if weights.head else embedding
        self.embedding = embedding

    @torch.no_grad()
    def propose(self, tokens: list[int], features: Tensor, count: int) -> list[int]:
        """`features` (slots, A * D) are the target's states of all tokens but the last."""
        states, read = features @ self.fuse.T, list(tokens[1:])
        drafts: list[int] = []
        for _ in range(count):
            out = self.layer(states, read)[-1:]
            word = int((self.norm(out) @ self.head.T).argmax())
            drafts.append(word if self.words is None else int(self.words[word]))
            states, read = torch.cat((states, out)), [*read, drafts[-1]]
        return drafts

    @torch.no_grad()
    def layer(self, states: Tensor, read: list[int]) -> Tensor:
        both = torch.cat((self.token_norm(self.embedding[read]), self.state_norm(states)), -1)[None]
        mask = torch.full((len(read), len(read)), -torch.inf).triu(1)[None, None]
        rotation = self.rotary(both, torch.arange(len(read))[None])
        x = states + self.attention(both, rotation, mask)[0][0]
        return x + self.mlp(self.mlp_norm(x))


def linear(weight: Tensor) -> nn.Linear:
    module = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    module.weight = nn.Parameter(weight)
    return module


def rms(weight: Tensor, eps: float) -> nn.Module:
    module = LlamaRMSNorm(len(weight), eps)
    module.weight = nn.Parameter(weight)
    return module


class Bench:
    """A drafter, its reference, and the states of a target that does not exist."""

    def __init__(
        self, folder: Path, target: Path, kernels: Kernels | None, dtype: torch.dtype = torch.float32
    ) -> None:
        self.random = torch.Generator().manual_seed(21)
        checkpoint = open_draft(folder, read_config(target))
        weights = load_draft(checkpoint, torch.float32)
        embedding = torch.randn(300, 64, generator=self.random)
        self.taps = checkpoint.config.taps
        self.reference = Reference(checkpoint, weights, embedding)
        own = Dense(embedding)
        parts = Parts.load(checkpoint, dtype, embedding=own, head=own, pages=PAGES, positions=1024)
        self.network: Network = TorchNetwork(parts) if kernels is None else NativeNetwork(parts, kernels)
        self.drafter = EagleDrafter(self.network, self.taps, PAGES, most_waiting=200)
        self.free = torch.randperm(PAGES, generator=self.random).tolist()

    def sequence(self, length: int, room: int = 16) -> tuple[Sequence, dict[int, Tensor]]:
        """A sequence with pages for some guesses, and the states of all its tokens but the last."""
        pages = [self.free.pop() for _ in range(-(-(length + room) // 16))]
        tokens = torch.randint(300, (length,), generator=self.random).tolist()
        return Sequence(len(self.free), tokens, pages), self.states(length - 1)

    def states(self, count: int) -> dict[int, Tensor]:
        return {tap: torch.randn(count, 64, generator=self.random) * 0.1 * (1 + tap) for tap in self.taps}

    def learn(self, sequence: Sequence, states: dict[int, Tensor], start: int = 0, end: int | None = None) -> None:
        self.drafter.learn(sequence, start, {tap: rows[start:end] for tap, rows in states.items()})

    def expected(self, sequence: Sequence, states: dict[int, Tensor], count: int) -> list[int]:
        features = torch.cat([states[tap] for tap in self.taps], -1)
        return self.reference.propose(sequence.tokens, features, count)


@pytest.fixture(params=["torch", "native"])
def kernels(request: pytest.FixtureRequest) -> Kernels | None:
    if request.param == "torch":
        return None
    loaded = load()
    if isinstance(loaded, Unavailable):
        pytest.skip(f"no C operations: {loaded.reason}")
    return loaded


@pytest.fixture
def bench_of(
    make_drafter: Callable[..., Path], small_target: dict[str, Any], tmp_path: Path, kernels: Kernels | None
) -> Callable[..., Bench]:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(small_target))

    def made(dtype: torch.dtype = torch.float32, **changes: Any) -> Bench:
        return Bench(make_drafter(tmp_path / "drafter", small_target, **changes), target, kernels, dtype)

    return made


@pytest.fixture
def bench(bench_of: Callable[..., Bench]) -> Bench:
    return bench_of()


@pytest.mark.parametrize("words", [96, None])
@pytest.mark.parametrize("rope", ROPE)
def test_guesses_are_those_of_the_reference(bench_of: Callable[..., Bench], words: int | None, rope: str) -> None:
    bench = bench_of(words=words, **ROPE[rope])
    sequence, states = bench.sequence(50)
    bench.learn(sequence, states)
    expected = bench.expected(sequence, states, 6)
    assert bench.drafter.propose([sequence], [6]) == [expected]


@pytest.mark.parametrize(
    ("rope", "dtype", "close"),
    [
        *((rope, torch.float32, 1e-4) for rope in ROPE),
        ("NoneType", torch.bfloat16, 0.1),
        ("NoneType", torch.float16, 0.01),
    ],
)
def test_states_are_those_of_the_reference(
    bench_of: Callable[..., Bench], rope: str, dtype: torch.dtype, close: float
) -> None:
    bench = bench_of(dtype, **ROPE[rope])
    sequence, states = bench.sequence(50)
    features = torch.cat([states[tap] for tap in bench.taps], -1)
    fused = bench.network.learn(features, [Slots(0, sequence.tokens[1:], sequence.pages)])
    torch.testing.assert_close(fused.float(), features @ bench.reference.fuse.T, atol=close, rtol=close)
    guessed, _ = bench.network.guess(fused[-1:], [Slots(48, sequence.tokens[-1:], sequence.pages)])
    expected = bench.reference.layer(fused.float(), sequence.tokens[1:])[-1:]
    torch.testing.assert_close(guessed.float(), expected, atol=close, rtol=close)


def test_many_sequences_are_guessed_for_together(bench: Bench) -> None:
    work = [bench.sequence(length) for length in (2, 17, 33, 90, 16)]
    for sequence, states in work:
        bench.learn(sequence, states)
    counts = [3, 1, 0, 6, 2]
    drafts = bench.drafter.propose([sequence for sequence, _ in work], counts)
    assert drafts == [bench.expected(*one, count) for one, count in zip(work, counts, strict=True)]


def test_learning_goes_on_in_pieces_and_guesses_are_overwritten(bench: Bench) -> None:
    """A prompt in two pieces, then rounds in which some guesses turn out wrong."""
    sequence, states = bench.sequence(120, room=40)
    tokens = sequence.tokens
    bench.learn(sequence, states, 0, 64)
    bench.learn(sequence, states, 64, 99)
    known = 99
    for step in (1, 3, 1, 2, 4):
        sequence.tokens = tokens[: known + 1]
        seen = {tap: rows[:known] for tap, rows in states.items()}
        assert bench.drafter.propose([sequence], [4]) == [bench.expected(sequence, seen, 4)]
        sequence.tokens = tokens[: known + step + 1]
        bench.learn(sequence, states, known, known + step)
        known += step


def test_a_sequence_that_shares_pages_shares_what_was_learnt(bench: Bench) -> None:
    first, states = bench.sequence(60)
    bench.learn(first, states)
    second = Sequence(2, first.tokens[:40] + [7] * 12, first.pages[:2] + [bench.free.pop() for _ in range(3)])
    others = {tap: torch.cat((states[tap][:39], rows)) for tap, rows in bench.states(12).items()}
    bench.learn(second, others, 32)
    assert bench.drafter.propose([second, first], [5, 5]) == [
        bench.expected(second, others, 5),
        bench.expected(first, states, 5),
    ]


def test_rows_that_wait_are_computed_before_their_sequence_is_forgotten(bench: Bench) -> None:
    first, states = bench.sequence(33)
    bench.learn(first, states, 0, 32)
    bench.drafter.forget(first)
    second = Sequence(2, first.tokens, first.pages[:2] + [bench.free.pop() for _ in range(2)])
    bench.learn(second, states, 31)
    assert bench.drafter.propose([second], [4]) == [bench.expected(second, states, 4)]


def test_nothing_is_guessed_for_a_sequence_whose_last_states_are_unknown(bench: Bench) -> None:
    known, states = bench.sequence(20)
    unknown, _ = bench.sequence(20)
    bench.learn(known, states)
    assert bench.drafter.propose([unknown, known], [3, 3])[0] == []
    known.tokens = [*known.tokens, 5]
    assert bench.drafter.propose([known], [3]) == [[]]
    bench.drafter.forget(known)
    known.tokens.pop()
    assert bench.drafter.propose([known], [3]) == [[]]


def test_rounds_without_guesses_wait_until_one_is_asked_for(bench: Bench) -> None:
    sequence, states = bench.sequence(160)
    for start in range(0, 159, 3):
        bench.learn(sequence, states, start, start + 3)
    assert bench.drafter.propose([sequence], [3]) == [bench.expected(sequence, states, 3)]


def test_what_waits_is_bounded_and_the_longest_goes_on_without_guesses(bench: Bench) -> None:
    long, states = bench.sequence(190)
    short, others = bench.sequence(40)
    bench.learn(short, others)
    for start in range(0, 189, 9):
        bench.learn(long, states, start, start + 9)
    assert bench.drafter.propose([long, short], [3, 3]) == [[], bench.expected(short, others, 3)]
    long.tokens = [*long.tokens, 1, 2]
    bench.learn(long, bench.states(2), 189)
    assert bench.drafter.propose([long], [3]) == [[]]


def test_an_idle_drafter_computes_nothing_and_knows_what_it_missed(bench: Bench) -> None:
    """A sequence that ended while speculation was off leaves pages that nobody may guess by."""
    other, rows = bench.sequence(300)
    for start in range(270):
        bench.learn(other, rows, start, start + 1)
        bench.drafter.forget(other)
    first, states = bench.sequence(96)
    bench.learn(first, states)
    bench.drafter.forget(first)
    second = Sequence(2, first.tokens, first.pages[:2] + [bench.free.pop() for _ in range(6)])
    bench.learn(second, states, 32)
    third = Sequence(3, first.tokens, [bench.free.pop() for _ in range(8)])
    bench.learn(third, states)
    assert bench.drafter.propose([second, third], [3, 3]) == [[], bench.expected(third, states, 3)]
    shared = Sequence(4, first.tokens, third.pages[:4] + [bench.free.pop() for _ in range(4)])
    bench.learn(shared, states, 64)
    assert bench.drafter.propose([shared], [3]) == [bench.expected(shared, states, 3)]


def test_a_page_that_is_used_again_is_unknown_again(bench: Bench) -> None:
    first, states = bench.sequence(60)
    bench.learn(first, states)
    bench.drafter.propose([first], [1])
    bench.drafter.forget(first)
    again, others = Sequence(2, first.tokens[:40], first.pages), bench.states(39)
    bench.learn(again, others, 0, 20)
    sharing = Sequence(3, first.tokens, first.pages[:2] + [bench.free.pop() for _ in range(3)])
    bench.learn(sharing, states, 32)
    assert bench.drafter.propose([sharing], [3]) == [[]]


def test_a_drafter_without_a_head_needs_the_targets(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(words=None, change=lambda tensors: tensors.__delitem__("lm_head.weight"))
    sequence, states = bench.sequence(30)
    bench.learn(sequence, states)
    assert bench.drafter.propose([sequence], [4]) == [bench.expected(sequence, states, 4)]
