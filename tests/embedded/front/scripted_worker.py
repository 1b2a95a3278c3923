"""A worker that computes nothing: it speaks the messages of the real one, and each prompt says what it shall do.

    echo TEXT       answer TEXT, a token a step           draft N TEXT   the same, N tokens a step
    flood           'x' without end, as fast as taken     pace N         'x', N tokens a second
    hold            no answer                             error TEXT     two tokens, then an end with that error
    asked           the request as it came, in JSON       cancelled      the numbers of cancelled requests
    count           counters first, then 'x'                die            end with exit code 7
    fail TEXT       say that the worker failed, and end        babble         say what is no message
    linger          say that the worker failed, and stay

Token scores, where asked for: the n-th token has -n/8, the others of its rank follow, an eighth apart.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
from tokenizers import Tokenizer

from firstlight.embedded.channel import HEADER, Channel, frame
from firstlight.embedded.errors import EngineError, PeerGone
from firstlight.embedded.messages import (
    Cancel,
    Counters,
    Failed,
    Output,
    Ready,
    Stamp,
    Started,
    Step,
    Submit,
    TopToken,
)
from firstlight.embedded.worker.board import Board, OwnStamp

END = 256
VOCABULARY = 300
COUNTERS = Counters(
    pages_used=3,
    pages_total=40,
    prefix_hit_tokens=64,
    prefix_query_tokens=100,
    preemptions=2,
    prefill_tokens=36,
    drafts=10,
    draft_tokens=30,
    accepted_tokens=17,
    accepted_per_position=[9, 6, 2],
    ties=1,
)
IDLE_S = 0.2
BUSY_S = 0.001


class Script:
    """What the worker does with its requests, a round at a time."""

    def __init__(self, tokenizer: Tokenizer, control_fd: int) -> None:
        self._tokenizer = tokenizer
        self._control_fd = control_fd
        self._answers: dict[int, Iterator[list[Output]]] = {}
        self._cancelled: list[int] = []
        self.counters: Counters | None = None

    @property
    def busy(self) -> bool:
        return bool(self._answers)

    def submit(self, asked: Submit) -> None:
        word, _, rest = self._tokenizer.decode(asked.prompt).partition(" ")
        self._answers[asked.request] = self._answer(asked, word, rest)

    def cancel(self, request: int) -> None:
        self._cancelled.append(request)
        self._answers.pop(request, None)

    def step(self) -> list[Output]:
        outputs: list[Output] = []
        for request, answer in list(self._answers.items()):
            fresh = next(answer, None)
            if fresh is None or (fresh and fresh[-1].finish):
                del self._answers[request]
            outputs += fresh or []
        return outputs

    def _answer(self, asked: Submit, word: str, rest: str) -> Iterator[list[Output]]:
        number, _, text = rest.partition(" ")
        scripts: dict[str, Callable[[], Iterator[list[Output]]]] = {
            "echo": lambda: self._say(asked, rest, 1),
            "draft": lambda: self._say(asked, text, int(number)),
            "flood": lambda: self._flood(asked),
            "pace": lambda: self._pace(asked, float(rest)),
            "hold": hold,
            "count": lambda: self._count(asked),
            "fail": lambda: end_with(rest),
            "babble": lambda: self._say_raw(HEADER.pack(5) + b"hello"),
            "linger": lambda: self._say_raw(frame(Failed(message="out of order"))),
            "error": lambda: self._fail(asked, rest),
            "asked": lambda: self._say(asked, msgspec.json.encode(asked).decode(), 64),
            "cancelled": lambda: self._say(asked, repr(self._cancelled), 64),
        }
        return scripts[word]() if word in scripts else os._exit(7)

    def _say(self, asked: Submit, text: str, a_step: int) -> Iterator[list[Output]]:
        tokens = self._tokenizer.encode(text).ids
        outputs = [self._output(asked, index, token) for index, token in enumerate(tokens[: asked.max_tokens])]
        if len(tokens) >= asked.max_tokens:
            outputs[-1] = msgspec.structs.replace(outputs[-1], finish="length")
        else:
            outputs.append(Output(request=asked.request, token=END, finish="stop"))
        for start in range(0, len(outputs), a_step):
            yield outputs[start : start + a_step]

    def _flood(self, asked: Submit) -> Iterator[list[Output]]:
        x = self._tokenizer.encode("x").ids[0]
        for index in range(asked.max_tokens - 1):
            yield [self._output(asked, index, x)]
        yield [msgspec.structs.replace(self._output(asked, asked.max_tokens, x), finish="length")]

    def _pace(self, asked: Submit, a_second: float) -> Iterator[list[Output]]:
        """In time with all other such answers, as in a batch."""
        for outputs in self._flood(asked):
            yield outputs
            beat = int(time.monotonic() * a_second)
            while int(time.monotonic() * a_second) == beat:
                yield []

    def _count(self, asked: Submit) -> Iterator[list[Output]]:
        self.counters = COUNTERS
        yield from self._say(asked, "x", 1)

    def _say_raw(self, raw: bytes) -> Iterator[list[Output]]:
        os.write(self._control_fd, raw)
        return hold()

    def _fail(self, asked: Submit, text: str) -> Iterator[list[Output]]:
        x = self._tokenizer.encode("x").ids[0]
        yield [self._output(asked, 0, x)]
        yield [self._output(asked, 1, x)]
        yield [Output(request=asked.request, token=0, finish="error", error=text)]

    def _output(self, asked: Submit, index: int, token: int) -> Output:
        wanted = asked.sampling.logprobs
        if wanted is None:
            return Output(request=asked.request, token=token)
        first = -(index + 1) / 8
        top = [TopToken((token + rank) % END, first - rank / 8) for rank in range(wanted)]
        return Output(request=asked.request, token=token, logprob=first, top=top)


def end_with(words: str) -> NoReturn:
    raise EngineError(words)


def hold() -> Iterator[list[Output]]:
    while True:
        yield []


def lead(options: argparse.Namespace, channel: Channel) -> None:
    """Rank 0: takes requests."""
    script = Script(Tokenizer.from_file(str(options.model / "tokenizer.json")), options.control_fd)
    channel.send(Ready(max_model_len=options.max_model_len or 8192, vocab_size=VOCABULARY))
    steps = 0
    while True:
        for message in channel.receive(BUSY_S if script.busy else IDLE_S):
            if isinstance(message, Submit):
                script.submit(message)
                channel.send(Started(request=message.request))
            elif isinstance(message, Cancel):
                script.cancel(message.request)
        outputs = script.step()
        if script.counters is not None:
            channel.send(script.counters)
            script.counters = None
        if outputs or not script.busy:
            steps += 1
            channel.send(Step(outputs=outputs, stamp=stamp(options.rank, steps)))


def follow(options: argparse.Namespace, channel: Channel) -> None:
    """Any other rank: shows that it lives, and says on the board what it waits for."""
    shared = OwnStamp(Board(options.board_fd), options.rank)
    shared.enter("serving")
    shared.begin(41, "the wait for rank 0")
    while True:
        channel.send(stamp(options.rank, 1))
        channel.receive(IDLE_S)


def stamp(rank: int, steps: int) -> Stamp:
    return Stamp(rank=rank, phase="serving", at=time.monotonic(), steps=steps)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--board-fd", type=int)
    parser.add_argument("--max-model-len", type=int)
    options, _ = parser.parse_known_args()
    channel = Channel(socket.socket(fileno=options.control_fd))
    try:
        (lead if options.rank == 0 else follow)(options, channel)
    except PeerGone:
        return 0
    except EngineError as error:
        channel.send(Failed(message=str(error)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
