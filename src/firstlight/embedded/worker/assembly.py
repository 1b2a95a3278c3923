"""Puts one rank together, phase by phase, from a model folder to a scheduler that generates.

Everything heavy is imported in its phase, so that whoever watches sees what takes its time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.embedded.errors import ModelNotUsable, WrongUsage
from firstlight.embedded.log import Silence
from firstlight.embedded.machine import available_memory, usable_cpus
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import DTYPES, ModelConfig, read_config
from firstlight.embedded.options import NGRAM
from firstlight.embedded.worker.plan import Plan
from firstlight.embedded.worker.progress import Progress

if TYPE_CHECKING:
    import torch

    from firstlight.embedded.kernels.native import Kernels
    from firstlight.embedded.model.kv import KvTensors
    from firstlight.embedded.model.passes import Pass, Result
    from firstlight.embedded.model.weights import DecoderWeights
    from firstlight.embedded.speculate.eagle_checkpoint import DraftCheckpoint
    from firstlight.embedded.speculate.protocol import Drafter, Policy
    from firstlight.embedded.worker.ranks import Ranks
    from firstlight.embedded.worker.runner import Runner
    from firstlight.embedded.worker.scheduler import Scheduler

DEFAULT_MAX_MODEL_LEN = 8192
KV_SHARE = 0.4
"""Part of the available memory that the KV cache may take unless --kv-tokens says otherwise."""


@dataclass(frozen=True)
class Assembled:
    """One rank, ready to run passes. Only rank 0 schedules."""

    config: ModelConfig
    positions: int
    runner: "Runner"
    pages: int
    drafter: "Drafter | None"
    ranks: "Ranks"
    kernels: "Kernels | None"


def assemble(plan: Plan, progress: Progress | None = None, join: Callable[[], "Ranks"] | None = None) -> Assembled:
    """Load the model of `plan`. `join` brings this process into its group of ranks; without it there is one rank.

    Raises ModelNotUsable and WrongUsage, with a way out.
    """
    progress = progress or Progress(0, Silence("engine"), lambda stamp: None)
    with progress.phase("config"):
        config = read_config(plan.model)
        checkpoint = open_checkpoint(plan.model, config)
        positions = positions_of(plan.max_model_len, config)
    with progress.phase("import"):
        import torch

        from firstlight.embedded.model import devices, kv, layers, weights
        from firstlight.embedded.speculate.eagle import load_eagle
        from firstlight.embedded.worker.ranks import Ranks
    threads = plan.threads or max(1, usable_cpus() // plan.tp)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    dtype = getattr(torch, dtype_of(plan.dtype, config))
    ranks = Ranks.alone()
    if join is not None and plan.tp > 1:
        with progress.phase("rendezvous"):
            ranks = join()
    with progress.phase("model_init"):
        device = _device(ranks.rank)
        kernels = _kernels(threads, progress) if device.type == "cpu" else None
        cos, sin = layers.rotary_table(config, positions, torch.float32)
        rotation = cos.to(device), sin.to(device)
        draft = _draft_checkpoint(plan, config)
    with progress.phase("weights"):
        loaded = weights.load_weights(
            config,
            checkpoint,
            dtype,
            rank=ranks.rank,
            ranks=ranks.size,
            count=progress.count,
            native=kernels is not None or device.type != "cpu",
            dequantise=kernels.dequantise if kernels is not None else None,
        )
        if device.type != "cpu":
            loaded = devices.moved(loaded, device)
    with progress.phase("kv_cache"):
        pages = kv_pages(plan, positions, kv.page_bytes(config, dtype, ranks.size))
        cache = kv.KvTensors(config, pages + kv.SPARE_PAGES, dtype, ranks=ranks.size, device=device)
    runner = _runner(config, loaded, cache, rotation, ranks=ranks, kernels=kernels, progress=progress)
    drafter = _ngram() if plan.drafter == NGRAM else None
    if draft is not None and ranks.rank == 0:  # it is small, and its proposals travel with the next pass
        with progress.phase("draft_init"):
            drafter = load_eagle(
                draft,
                dtype,
                embedding=loaded.embedding,
                head=loaded.head if ranks.size == 1 else None,
                pages=pages,
                positions=positions,
                kernels=kernels,
                device=device,
            )
    with progress.phase("warmup"):
        warm_up(runner)
    return Assembled(config, positions, runner, pages, drafter, ranks, kernels)


def scheduler_of(plan: Plan, assembled: Assembled, run: "Callable[[Pass], Result]") -> "Scheduler":
    """Rank 0's scheduler; `run` has every rank run a pass."""
    from firstlight.embedded.model.native_path import MOST_ROWS
    from firstlight.embedded.worker.pages import PagePool
    from firstlight.embedded.worker.sampler import SequenceSampler
    from firstlight.embedded.worker.scheduler import Scheduler

    return Scheduler(
        run,
        PagePool(assembled.pages),
        max_num_seqs=plan.max_num_seqs,
        max_model_len=assembled.positions,
        sampler_factory=SequenceSampler,
        max_rows=MOST_ROWS,
        drafter=assembled.drafter,
        policy=_policy(plan) if assembled.drafter is not None else None,
    )


def _device(rank: int) -> "torch.device":
    """A GPU for each rank if there is any, else the CPU."""
    import torch

    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def _kernels(threads: int, progress: Progress) -> "Kernels | None":
    """The C operations, or torch's instead, which the log says once."""
    from firstlight.embedded.kernels.native import Unavailable, load

    kernels = load(tell=progress.say)
    if isinstance(kernels, Unavailable):
        progress.say(f"decoding goes through torch, more slowly: {kernels.reason}")
        return None
    kernels.threads = threads
    return kernels


def _runner(
    config: ModelConfig,
    weights: "DecoderWeights",
    cache: "KvTensors",
    rotation: "tuple[torch.Tensor, torch.Tensor]",
    *,
    ranks: "Ranks",
    kernels: "Kernels | None",
    progress: Progress,
) -> "Runner":
    from firstlight.embedded.model.cuda_graphs import GraphedPath
    from firstlight.embedded.model.native_path import NativePath
    from firstlight.embedded.model.torch_path import TorchPath
    from firstlight.embedded.worker.runner import ForwardPath, Runner

    total = ranks.sum if ranks.size > 1 else None
    many = TorchPath(config, weights, cache, rotation, total=total)
    few: ForwardPath = many
    if kernels is not None:
        few = NativePath(config, weights, cache, rotation, total=total, kernels=kernels)
    elif many.device.type == "cuda" and total is None:  # ranks meet on the host, which no graph can hold
        few = GraphedPath(many, spare_page=cache.pages - 1)
    return Runner(
        many_rows=many,
        few_rows=few,
        ranks=ranks,
        layers=config.layers,
        vocabulary=config.vocab_size,
        beat=progress.beat,
    )


def _draft_checkpoint(plan: Plan, config: ModelConfig) -> "DraftCheckpoint | None":
    """The drafter's folder, checked before the model's weights are read."""
    if plan.drafter in {"", NGRAM}:
        return None
    from firstlight.embedded.speculate.eagle_checkpoint import open_draft

    return open_draft(Path(plan.drafter), config)


def _policy(plan: Plan) -> "Policy":
    from firstlight.embedded.speculate.auto import Always, Auto

    return Always(plan.draft_tokens) if plan.speculate == "always" else Auto(plan.draft_tokens)


def _ngram() -> "Drafter":
    from firstlight.embedded.speculate.ngram import NgramDrafter

    return NgramDrafter()


def dtype_of(asked: str, config: ModelConfig) -> str:
    """The name of the weights' number format. Raises WrongUsage."""
    if asked not in {"auto", *DTYPES}:
        raise WrongUsage(f"the engine does not compute in {asked}", f"Ask for {', '.join(DTYPES)} or auto")
    return config.dtype if asked == "auto" else asked


def positions_of(asked: int, config: ModelConfig) -> int:
    """How long prompt and answer may be together. Raises WrongUsage."""
    if asked > config.max_positions:
        raise WrongUsage(
            f"--max-model-len {asked} is more than the model's own {config.max_positions} positions",
            "Leave it out, or ask for less",
        )
    return asked or min(config.max_positions, DEFAULT_MAX_MODEL_LEN)


def kv_pages(plan: Plan, positions: int, page_bytes: int) -> int:
    """Pages of the KV cache: what was asked for, or what all requests could fill but no more than a share of the
    memory. Raises WrongUsage if not even one request of full length would fit, rather than be killed for it later."""
    from firstlight.embedded.model.passes import PAGE

    one, available = -(-positions // PAGE), available_memory()
    share = int(available * KV_SHARE) // page_bytes
    pages = -(-plan.kv_tokens // PAGE) if plan.kv_tokens else min(one * plan.max_num_seqs, share)
    if pages < one:
        raise WrongUsage(
            f"the longest request, {positions} tokens, needs {one * page_bytes >> 20} MiB of KV cache, "
            f"and there would be room for {pages * PAGE} tokens only",
            "Set a smaller --max-model-len, or a larger --kv-tokens",
        )
    if pages * page_bytes > available:
        raise WrongUsage(
            f"a KV cache of {pages * PAGE} tokens needs {pages * page_bytes >> 20} MiB; "
            f"{available >> 20} MiB of memory are available",
            "Set a smaller --kv-tokens, --max-model-len or --max-num-seqs",
        )
    return pages


def warm_up(runner: "Runner") -> None:
    """Run a prompt and a token: pays one-off costs now, and shows broken weights before a user sees them."""
    import torch

    from firstlight.embedded.model.passes import Pass, Span

    prompt = Pass(number=-2, kind="prefill", tokens=[0, 0], spans=[Span(0, 2, [0])], wanted=[])
    token = Pass(number=-1, kind="decode", tokens=[0], spans=[Span(2, 1, [0])], wanted=[0])
    runner.run(prompt)
    if not torch.isfinite(runner.run(token).logits).all():
        raise ModelNotUsable(
            "the model's first scores are not finite numbers", "The weights are damaged, or need another --dtype"
        )
