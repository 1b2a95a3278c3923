"""The worker: one process, one working thread, which loads the model and then generates.

Started by the front as `python -m firstlight.embedded.worker --rank 0 --model PATH --control-fd N …`. Everything,
messages included, is done by the one thread, so its stamps (`progress`) stop when the work stops. The thread waits
for requests at most `IDLE_S` at a time and stamps each round, so a stopped or stuck worker is noticed idle too.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.embedded.channel import Channel
from firstlight.embedded.errors import EngineError, ModelNotUsable, PeerGone, WrongUsage
from firstlight.embedded.log import Log
from firstlight.embedded.machine import name_process, usable_cpus
from firstlight.embedded.messages import Cancel, Failed, Ready, Started, Step, Submit
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import ModelConfig, read_config
from firstlight.embedded.worker.progress import Progress

if TYPE_CHECKING:
    from firstlight.embedded.model.decoder import Model
    from firstlight.embedded.worker.kv_cache import KvCache
    from firstlight.embedded.worker.slot_scheduler import Scheduler

IDLE_S = 1.0
PR_SET_PDEATHSIG = 1
DEFAULT_MAX_MODEL_LEN = 8192


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    _die_with_parent()
    name_process(f"fl-worker-{options.rank}")
    log = Log(f"worker rank={options.rank}")
    os.set_inheritable(options.control_fd, False)
    channel = Channel(socket.socket(fileno=options.control_fd))
    try:
        _work(options, log, channel)
    except PeerGone:
        log.say("info", "the front has ended; so does this worker")
        return 0
    except EngineError as error:
        return _fail(log, channel, str(error))
    except Exception as error:  # noqa: BLE001 (the last border: said in the log and to the front, then the end)
        log.say("error", traceback.format_exc())
        return _fail(log, channel, f"{type(error).__name__}: {error}")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="firstlight.embedded.worker", description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--max-model-len", type=int, default=0)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    return parser.parse_known_args(arguments)[0]


def _die_with_parent() -> None:
    """Ask the kernel to end this process when the front ends, even if this process is stopped by then (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _fail(log: Log, channel: Channel, message: str) -> int:
    log.say("error", message)
    with contextlib.suppress(EngineError):
        channel.send(Failed(message=message))
    return 1


def _work(options: argparse.Namespace, log: Log, channel: Channel) -> None:
    progress = Progress(options.rank, log, channel.send)
    with progress.phase("config"):
        config = read_config(options.model)
        checkpoint = open_checkpoint(options.model, config)
        positions = _positions(options.max_model_len, config)
    with progress.phase("import"):
        import torch

        from firstlight.embedded.model import decoder as model
        from firstlight.embedded.model import weights
        from firstlight.embedded.worker import kv_cache, slot_scheduler
    torch.set_num_threads(options.threads or usable_cpus())
    torch.set_grad_enabled(False)
    dtype = getattr(torch, config.dtype if options.dtype == "auto" else options.dtype)
    with progress.phase("model_init"):
        decoder = model.Model(config, dtype, positions)
    with progress.phase("weights"):
        weights.load(decoder, checkpoint, progress.count)
    with progress.phase("kv_cache"):
        cache = kv_cache.KvCache(config, options.max_num_seqs, positions, dtype)
    with progress.phase("warmup"):
        _warm_up(decoder, cache, progress)
    progress.enter("serving")
    channel.send(Ready(max_model_len=positions, vocab_size=config.vocab_size))
    _serve(channel, slot_scheduler.Scheduler(decoder, cache, progress.beat), progress)


def _positions(asked: int, config: ModelConfig) -> int:
    """How long prompt and answer may be together."""
    if asked > config.max_positions:
        raise WrongUsage(
            f"--max-model-len {asked} is more than the model's own {config.max_positions} positions",
            "Leave it out, or ask for less",
        )
    return asked or min(config.max_positions, DEFAULT_MAX_MODEL_LEN)


def _warm_up(model: "Model", cache: "KvCache", progress: Progress) -> None:
    """Run a prompt and a token: pays one-off costs now, and shows broken weights before a user sees them."""
    import torch

    slot = cache.take()
    model.forward(torch.tensor([0, 0]), slot, 0, progress.beat)
    hidden_TD = model.forward(torch.tensor([0]), slot, 2, progress.beat)
    cache.give_back(slot)
    if not torch.isfinite(model.logits(hidden_TD)).all():
        raise ModelNotUsable(
            "the model's first scores are not finite numbers", "The weights are damaged, or need another --dtype"
        )


def _serve(channel: Channel, scheduler: "Scheduler", progress: Progress) -> None:
    """Take messages, work, report; an idle round reports too. Ends with PeerGone when the front does."""
    while True:
        for message in channel.receive(0 if scheduler.busy else IDLE_S):
            if isinstance(message, Submit):
                scheduler.submit(message)
            elif isinstance(message, Cancel):
                scheduler.cancel(message.request)
        for request in scheduler.admit():
            channel.send(Started(request=request))
        channel.send(Step(outputs=scheduler.step(), stamp=progress.stamp()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
