"""How long prompts and answers may be."""

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.crew import Crew


class Limits:
    """What one request may ask for; `output` 0 is whatever fits."""

    def __init__(self, crew: Crew, output: int) -> None:
        self._crew = crew
        self.output = output

    @property
    def together(self) -> int:
        """Tokens of prompt and answer."""
        return self._crew.ready.max_model_len if self._crew.ready else 0

    def check_prompt(self, prompt: list[int]) -> None:
        """Raises RequestRefused if it is empty, leaves no room for an answer, or has what is no token."""
        vocabulary = self._crew.ready.vocab_size if self._crew.ready else 0
        if not prompt:
            raise RequestRefused("the prompt is empty", param="prompt")
        if len(prompt) >= self.together:
            raise self._too_long(prompt, 1, "prompt")
        if not all(0 <= token < vocabulary for token in prompt):
            raise RequestRefused(f"a token of the prompt is not in the vocabulary of {vocabulary}", param="prompt")

    def answer(self, prompt: list[int], asked: int | None, default: int | None) -> int:
        """Tokens that the answer may have. Raises RequestRefused if more were asked for than there can be."""
        room = self.together - len(prompt)
        if asked is None:
            return min(room, self.output or room, default or room)
        if asked > room:
            raise self._too_long(prompt, asked, "max_tokens")
        if self.output and asked > self.output:
            raise RequestRefused(f"an answer has at most {self.output} tokens here", param="max_tokens")
        return asked

    def _too_long(self, prompt: list[int], asked: int, param: str) -> RequestRefused:
        return RequestRefused(
            f"the prompt has {len(prompt)} tokens and {asked} more were asked for; "
            f"the server takes {self.together} together",
            param=param,
            code="context_length_exceeded",
        )
