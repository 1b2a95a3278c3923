"""Who is served next: first come, first served, as many at once as there are slots, one step each in turn."""

from collections import deque
from collections.abc import Callable

import torch

from firstlight.embedded.messages import Output, Submit
from firstlight.embedded.model.decoder import Model
from firstlight.embedded.worker.kv_cache import KvCache
from firstlight.embedded.worker.slot_sequence import Sequence

PREFILL_PIECE = 512
"""Prompt tokens run at once; a long prompt holds up the others for one piece at a time."""


class Scheduler:
    """Requests that wait and requests that run."""

    def __init__(self, model: Model, cache: KvCache, beat: Callable[[], None]) -> None:
        self._model = model
        self._cache = cache
        self._beat = beat
        self._waiting: deque[Submit] = deque()
        self._running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    def submit(self, request: Submit) -> None:
        self._waiting.append(request)

    def cancel(self, request: int) -> None:
        """Forget a request; unknown ones have already finished."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.request != request)
        for sequence in [running for running in self._running if running.request == request]:
            self._release(sequence)

    def admit(self) -> list[int]:
        """Give free slots to those that wait longest; returns the requests that got one."""
        admitted = []
        while self._waiting and self._cache.free:
            sequence = Sequence(self._waiting.popleft(), self._cache.take())
            self._running.append(sequence)
            admitted.append(sequence.request)
        return admitted

    def step(self) -> list[Output]:
        """One piece of prompt or one token for every running request."""
        outputs = [output for sequence in list(self._running) if (output := self._advance(sequence))]
        for sequence in [running for running in self._running if running.finish]:
            self._release(sequence)
        return outputs

    def _advance(self, sequence: Sequence) -> Output | None:
        due = torch.tensor(sequence.due(PREFILL_PIECE))
        hidden_TD = self._model.forward(due, sequence.slot, sequence.cached, self._beat)
        sequence.cached += due.numel()
        if not sequence.complete:
            return None
        token = sequence.extend(self._model.logits(hidden_TD[-1:])[0])
        return Output(request=sequence.request, token=token, finish=sequence.finish)

    def _release(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._cache.give_back(sequence.slot)
