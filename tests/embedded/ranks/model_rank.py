"""One rank of a real model, without the front: rank 0 generates answers to the prompts that it is given."""

import argparse
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firstlight.embedded.messages import Output, Sampling, Submit
from firstlight.embedded.model.passes import Pass, Result
from firstlight.embedded.worker.assembly import Assembled, assemble, scheduler_of
from firstlight.embedded.worker.board import OwnStamp
from firstlight.embedded.worker.peers import Follower, Leader
from firstlight.embedded.worker.plan import Plan
from firstlight.embedded.worker.progress import Progress
from firstlight.embedded.worker.ranks import Ranks
from firstlight.embedded.worker.rounds import follow
from firstlight.embedded.worker.taps import TapRecord

MAX_TOKENS = 16


def live(
    options: argparse.Namespace,
    progress: Progress,
    stamp: OwnStamp,
    sockets: list[socket.socket],
    join: Callable[[], Ranks],
) -> list[dict[str, Any]]:
    """Rank 0's answers; the others have none."""
    plan = Plan(
        model=Path(options.model),
        threads=1,
        max_model_len=1024,
        max_num_seqs=4,
        drafter=options.drafter,
        speculate="always",
        tp=options.ranks,
    )
    assembled = assemble(plan, progress, join)
    others = assembled.ranks.meeting.others
    if assembled.ranks.rank:
        follow(assembled, Follower(sockets[0], others, stamp, options.deadline))
        return []
    leader = Leader(sockets, others, stamp, options.deadline)
    answers = generate(plan, assembled, leader, options.prompt)
    leader.stop()
    return answers


def generate(plan: Plan, assembled: Assembled, leader: Leader, prompts: list[str]) -> list[dict[str, Any]]:
    """All prompts at once, greedily: tokens, logarithms and the states after the first layer and before the norm."""

    def run(work: Pass) -> Result:
        leader.send(work)
        return assembled.runner.run(work)

    scheduler = scheduler_of(plan, assembled, run)
    layers = assembled.config.layers
    records = [TapRecord((1, layers)) for _ in prompts]
    outputs: list[list[Output]] = [[] for _ in prompts]
    for request, prompt in enumerate(prompts):
        submit = Submit(
            request=request,
            prompt=list(prompt.encode()),
            max_tokens=MAX_TOKENS,
            stop_tokens=[],
            sampling=Sampling(temperature=0.0, logprobs=0),
        )
        scheduler.submit(submit, taps=records[request])
    while scheduler.busy:
        scheduler.admit()
        for output in scheduler.step():
            outputs[output.request].append(output)
    return [
        {
            "tokens": [output.token for output in answer],
            "logprobs": [output.logprob for output in answer],
            "states": {number: state.tolist() for number, state in record.whole().items()},
        }
        for answer, record in zip(outputs, records, strict=True)
    ]
