"""A worker process that answers prompts through a pipe, as the engines' workers do."""

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from firstlight.testing.stage import start

Answer = Callable[[str], str]


class PipedWorker:
    """A child process called `name` that answers one prompt at a time with `answer(prompt)`.

    The parent keeps the child's end of the pipe open too. That is the classic mistake: when the child dies, the
    parent's `recv` never sees the end of the pipe and waits for ever.
    """

    def __init__(self, name: str, answer: Answer) -> None:
        self._ours, self._theirs = multiprocessing.Pipe()
        self._one_at_a_time = threading.Lock()
        self.process = start(name, _work, self._theirs, answer)

    def generate(self, prompt: str) -> str:
        """Hand the prompt over and wait for the answer, without a deadline."""
        with self._one_at_a_time:
            self._ours.send(prompt)
            return str(self._ours.recv())


def _work(pipe: Connection, answer: Answer) -> None:
    while True:
        pipe.send(answer(pipe.recv()))
