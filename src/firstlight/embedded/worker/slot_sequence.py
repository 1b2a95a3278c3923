"""One request inside the worker: its tokens, how far the cache has them, and when it ends."""

from torch import Tensor

from firstlight.embedded.messages import Submit
from firstlight.embedded.worker.kv_cache import KvSlot
from firstlight.embedded.worker.slot_sampler import Sampler


class Sequence:
    """Prompt and generated tokens of a request that has a slot."""

    def __init__(self, submit: Submit, slot: KvSlot) -> None:
        self.request = submit.request
        self.slot = slot
        self.cached = 0
        """Positions whose keys and values are in the slot."""
        self.finish = ""
        self._tokens = list(submit.prompt)
        self._generated = 0
        self._max_tokens = submit.max_tokens
        self._stop_tokens = frozenset(submit.stop_tokens)
        self._sampler = Sampler(submit.sampling)

    def due(self, at_most: int) -> list[int]:
        """The next tokens to run through the model: a piece of the prompt, or the one generated last."""
        return self._tokens[self.cached : self.cached + at_most]

    @property
    def complete(self) -> bool:
        """Whether the cache holds all tokens, so that the scores of the last one tell the next."""
        return self.cached == len(self._tokens)

    def extend(self, logits_V: Tensor) -> int:
        """Choose the next token and note whether it is the last."""
        token = self._sampler.choose(logits_V)
        self._tokens.append(token)
        self._generated += 1
        if token in self._stop_tokens:
            self.finish = "stop"
        elif self._generated >= self._max_tokens:
            self.finish = "length"
        return token
