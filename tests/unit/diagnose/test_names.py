"""How processes and ranks are called."""

import pytest

from firstlight.core.vocabulary import Role
from firstlight.diagnose.names import called, listed, numbers


@pytest.mark.parametrize(
    ("role", "rank", "label", "name", "words"),
    [
        (Role.WORKER, 1, "TP1", "x", "worker rank 1 (pid 9)"),
        (Role.OTHER, 2, "", "x", "worker rank 2 (pid 9)"),
        (Role.ENGINE, -1, "EngineCore", "x", "engine core (pid 9)"),
        (Role.FRONT, -1, "", "vllm", "front (pid 9)"),
        (Role.OTHER, -1, "", "bash", "bash (pid 9)"),
        (Role.OTHER, -1, "", "", "process (pid 9)"),
    ],
)
def test_a_process_in_a_few_words(role: Role, rank: int, label: str, name: str, words: str) -> None:
    assert called(role, rank, label, name, 9) == words


def test_ranks_are_folded() -> None:
    assert numbers([2]) == "rank 2"
    assert numbers([1, 0]) == "ranks 0 and 1"
    assert numbers([0, 1, 2, 3, 7]) == "ranks 0-3 and 7"


def test_lists_read_like_sentences() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
