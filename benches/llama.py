"""llama-cpp-python beside the servers: `llama_program.py`, asked over its pipes. FIRSTLIGHT_LLAMA_PYTHON has it."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from processes import tree

LLAMA_PYTHON = os.environ.get("FIRSTLIGHT_LLAMA_PYTHON", "")
PROGRAM = Path(__file__).with_name("llama_program.py")
ANSWER_S = 600
END_S = 20


class Llama:
    """The running program."""

    name = "llama-cpp-python"

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._questions, self._answers = process.stdin, process.stdout

    @property
    def pids(self) -> set[int]:
        return tree(self._process.pid)

    def answer(self) -> str:
        """The next line. Exits if there is none in ten minutes, or the program has ended."""
        if select.select([self._answers], [], [], ANSWER_S)[0] and (line := self._answers.readline()):
            return line.strip()
        return sys.exit(f"{self.name} said nothing for {ANSWER_S} s, or has ended")

    def decode_per_s(self, tokens: int) -> float:
        return self._per_s("decode", tokens)

    def prefill_per_s(self, tokens: int) -> float:
        return self._per_s("prefill", tokens)

    def _per_s(self, what: str, tokens: int) -> float:
        print(what, tokens, file=self._questions, flush=True)
        return float(self.answer())


def has_llama() -> bool:
    """Says so if not."""
    if Path(LLAMA_PYTHON).is_file():
        return True
    print("  left out: FIRSTLIGHT_LLAMA_PYTHON names no Python that has llama-cpp-python\n")
    return False


@contextlib.contextmanager
def llama(gguf: Path) -> Iterator[Llama]:
    command = [LLAMA_PYTHON, str(PROGRAM), str(gguf), str(os.cpu_count())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        running = Llama(process)
        running.answer()
        yield running
    finally:
        process.kill()
        process.communicate(timeout=END_S)
