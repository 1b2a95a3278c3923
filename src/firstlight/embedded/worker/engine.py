"""The engine without HTTP: prompts in, tokens and states out, in one process.

The server's worker and this class are put together by the same function (`assembly.assemble`), so what is captured
here for a drafter is what the server computes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from firstlight.embedded.errors import EngineError, WrongUsage
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
        if plan.tp != 1:
            raise WrongUsage(f"this engine is one process, not {plan.tp} ranks", "Serve it with --tp instead")
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
        """One answer a prompt, in order. `taps` are numbers of states (see worker/taps.py).

        Raises EngineError; what was asked with it is forgotten, and the engine can be asked again.
        """
        prompts = list(prompts)
        self._check(prompts, taps)
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
        try:
            self._run(answers)
        finally:
            for number in answers:
                self._scheduler.cancel(number)
        for number, record in records.items():
            answers[number].states = record.whole()
        return list(answers.values())

    def _run(self, answers: dict[int, Answer]) -> None:
        while self._scheduler.busy:
            self._scheduler.admit()
            for output in self._scheduler.step():
                _take(answers[output.request], output)

    def _check(self, prompts: list[list[int]], taps: tuple[int, ...]) -> None:
        """What the server's front checks before a worker sees it. Raises EngineError."""
        vocabulary, last = self.config.vocab_size, self.config.layers + 1
        if wrong := [token for prompt in prompts for token in prompt if not 0 <= token < vocabulary]:
            raise EngineError(f"token {wrong[0]} of a prompt is not in the vocabulary of {vocabulary}")
        if outside := [state for state in taps if not 0 <= state <= last]:
            raise EngineError(f"there is no state {outside[0]} to tap; this model has states 0 to {last}")


def _take(answer: Answer, output: Output) -> None:
    if output.error:
        raise EngineError(output.error)
    answer.tokens.append(output.token)
    answer.finish = output.finish
    if output.logprob is not None:
        answer.logprobs.append(output.logprob)
