"""What the scheduler asks of speculation, and what speculation may know of a sequence.

Words: a *row* is one token run through the model at one position. A decode pass gives a sequence with k drafts
1 + k rows: its last token and then its drafts. Row i tells what follows row i, so row 0 judges draft 0.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from firstlight.embedded.messages import TopToken


class Chosen(Protocol):
    """A token that was chosen; `logprob` and `top` (likeliest first) only if the request asked for them."""

    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float | None: ...
    @property
    def top(self) -> Sequence[TopToken]: ...


class Sampler(Protocol):
    """Chooses the tokens of one request; keeps its random numbers and penalties for the request's whole life."""

    @property
    def ties(self) -> int:
        """Greedy choices so far where another token scored exactly as high."""
        ...

    def accept(self, logits_RV: Tensor, drafts: list[int]) -> Sequence[Chosen]:
        """Judge drafts by the scores of 1 + len(drafts) rows.

        Returns the drafts accepted from the first on, and one token more: 1 to 1 + len(drafts) tokens. Whatever
        this raises ends the request, and only it.
        """
        ...


class Drafted(Protocol):
    """A sequence as a drafter sees it. One object for the request's whole life, so it may be a key (by identity)."""

    @property
    def request(self) -> int:
        """The request's number."""
        ...

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer so far; not to be changed."""
        ...

    @property
    def pages(self) -> list[int]:
        """Its page table: position p lies in page pages[p // PAGE]. Not to be changed."""
        ...


class Drafter(Protocol):
    """Proposes tokens. It may keep keys and values of its own, in memory laid out by the same page tables."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Numbers of the states that `learn` needs of every row; empty if it looks at tokens alone."""
        ...

    @property
    def drops_last_page(self) -> bool:
        """Whether what it keeps for the last position of a page depends on the token after the page.

        If so, a page is shared only where that token is the same too, and the last page of a prefix drops out.
        """
        ...

    def propose(self, sequences: list[Drafted], counts: list[int]) -> list[list[int]]:
        """At most counts[i] tokens that may follow all tokens of sequences[i], likeliest guess; fewer or none too.

        All positions but the last token's were learnt or, being in shared pages, were learnt for another sequence.
        The page table covers positions up to len(tokens) - 1 + counts[i].
        """
        ...

    def learn(self, sequence: Drafted, start: int, states: dict[int, Tensor]) -> None:
        """Rows at positions `start`… are final: states[k] (rows, D) for each k in `taps`.

        The token after each of the rows is in `sequence.tokens`. Positions come in order; those that lie in pages
        shared with an earlier sequence are left out. Also called for the last rows of a sequence that has ended,
        for its pages may be shared later.
        """
        ...

    def forget(self, sequence: Drafted) -> None:
        """The sequence has ended or is about to lose its pages. If it comes again, it is learnt from its start."""
        ...


class Policy(Protocol):
    """How many tokens to draft."""

    def draft_tokens(self, batch: int) -> int:
        """Drafts for each of `batch` sequences in the next round; 0 is no speculation."""
        ...

    def record(self, batch: int, drafts: int, tokens: int, seconds: float) -> None:
        """A round with `drafts` asked for each of `batch` sequences gave `tokens` tokens, drafting included."""
        ...
