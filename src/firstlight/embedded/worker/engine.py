"""The engine without HTTP: prompts in, tokens and states out, in one process.

The server's worker and this class are put together by the same function (`assembly.assemble`), so what is captured
here for a drafter is what the server computes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from firstlight.embedded.errors import EngineError
from firstlight.embedded.messages import Output, Sampling, Submit
from firstlight.embedded.worker.assembly import assemble, scheduler_of
from firstlight.embedded.worker.plan import Plan
from firstlight.embedded.worker.taps import TapRecord

GREEDY = Sampling(temperature=0.0)


@dataclass
class Answer:
    """What became of one prompt."""

    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    logprobs: list[float] = field(default_factory=list)
    states: dict[int, Tensor] = field(default_factory=dict)
    """Each tapped state by number (positions, D), float32: of all tokens but the last, which was never run."""


class Engine:
    """A model that generates, in this process."""

    def __init__(self, plan: Plan) -> None:
        """Load the model. Raises ModelNotUsable, WrongUsage."""
        assembled = assemble(plan)
        self.config = assembled.config
        self._scheduler = scheduler_of(plan, assembled, assembled.runner.run)
        self._numbers = 0

    def generate(
        self,
        prompts: Iterable[list[int]],
        *,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        stop_tokens: Iterable[int] = (),
        taps: tuple[int, ...] = (),
    ) -> list[Answer]:
        """One answer a prompt, in order. `taps` are numbers of states (see worker/taps.py). Raises EngineError."""
        answers: dict[int, Answer] = {}
        records: dict[int, TapRecord] = {}
        for prompt in prompts:
            self._numbers += 1
            answers[self._numbers] = Answer()
            record = TapRecord(taps) if taps else None
            if record is not None:
                records[self._numbers] = record
            self._scheduler.submit(
                Submit(
                    request=self._numbers,
                    prompt=prompt,
                    max_tokens=max_tokens,
                    stop_tokens=list(stop_tokens),
                    sampling=sampling,
                ),
                taps=record,
            )
        while self._scheduler.busy:
            self._scheduler.admit()
            for output in self._scheduler.step():
                _take(answers[output.request], output)
        for number, record in records.items():
            answers[number].states = record.whole()
        return list(answers.values())


def _take(answer: Answer, output: Output) -> None:
    if output.error:
        raise EngineError(output.error)
    answer.tokens.append(output.token)
    answer.finish = output.finish
    if output.logprob is not None:
        answer.logprobs.append(output.logprob)
