"""What the scheduler has done so far, for /metrics and for the log."""

from dataclasses import dataclass, field


@dataclass
class Counts:
    """The first four are as of now, the others since the start."""

    running: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_total: int = 0
    prefix_query_tokens: int = 0
    """Tokens of prompts (and of pre-empted sequences) that were given a seat."""
    prefix_hit_tokens: int = 0
    """Those among them that lay in known pages and were not computed again."""
    preemptions: int = 0
    prefill_tokens: int = 0
    decode_passes: int = 0
    drafts: int = 0
    """Times that a sequence's drafts were judged."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    """How often the first, second, … draft was accepted; over `drafts`, the share of each position."""

    ties: int = 0
    """Greedy choices of answers that have ended where another token scored exactly as high."""

    def judged(self, proposed: int, accepted: int) -> None:
        """One sequence's drafts were judged; of the `proposed`, the first `accepted` hold."""
        self.drafts += 1
        self.draft_tokens += proposed
        self.accepted_tokens += accepted
        while len(self.accepted_per_position) < proposed:
            self.accepted_per_position.append(0)
        for position in range(accepted):
            self.accepted_per_position[position] += 1

    def acceptance_since(self, drafts: int, accepted_per_position: list[int]) -> str:
        """How drafts were judged since these counts were taken, in words for the log; empty if none was.

        A position's share counts a draft as judged even if an earlier one failed, as vLLM's figures do; the mean
        acceptance length is what a round gives, its one sure token included.
        """
        rounds = self.drafts - drafts
        if not rounds:
            return ""
        before = accepted_per_position + [0] * (len(self.accepted_per_position) - len(accepted_per_position))
        shares = [(now - then) / rounds for now, then in zip(self.accepted_per_position, before, strict=True)]
        each = ", ".join(f"{share:.3f}" for share in shares)
        return f"speculation: {rounds} rounds, mean acceptance length {1 + sum(shares):.2f}, per position {each}"
