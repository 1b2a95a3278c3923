"""How many tokens to draft: always the same number, or as many as pay at the present load.

Speculation pays while a row more in a pass costs less than the token that it may bring. Both depend on the machine,
the drafter, the text and the number of sequences, so `Auto` measures: the seconds of a round, and the drafts that
hold. It looks at other choices only as far as a small part of the time that went by allows, so that a useless drafter
costs no more than that.
"""

from collections import deque
from statistics import median

CLEARLY = 1.02
"""How much faster another choice must be before it is taken."""
ALLOWANCE_ROUNDS = 2.5
"""Plain rounds that the first look at all choices may cost."""
ALLOWANCE_PART = 0.008
"""Part of the time that later looks may cost."""
ROUNDS_A_LOOK = 3
FIRST_INTERVAL, LAST_INTERVAL = 64, 2048
"""Rounds between two looks; doubled whenever a look changed nothing."""
KEPT_TIMES, KEPT_AT_A_LOOK = 15, 2
MEMORY = 48
"""Rounds of a sequence after which half of what was accepted is forgotten."""
BORROWED = 6.0
"""Rounds of a sequence that what other choices accepted is worth."""
UNKNOWN_LOSS = 0.5
"""What a choice is thought to lose, in plain rounds, before it was tried."""
LONGEST_ROUND = 2.0
"""What a round is thought to take at most, in plain rounds, before it was tried often enough to know."""


class Always:
    """The same number of drafts at any load."""

    def __init__(self, drafts: int) -> None:
        self._drafts = drafts

    def draft_tokens(self, batch: int) -> int:
        return self._drafts

    def record(self, batch: int, drafts: int, tokens: int, seconds: float) -> None:
        """Nothing: there is nothing to decide."""


class Auto:
    """The number of drafts, up to `most`, that gives the most tokens a second; 0 unless another is clearly faster."""

    def __init__(self, most: int) -> None:
        self._choices = sorted({0, 1, 2, most // 2, most} & set(range(most + 1)))
        self._acceptance = Acceptance()
        self._loads: dict[int, Load] = {}
        self._asked = 1

    def draft_tokens(self, batch: int) -> int:
        self._asked = batch
        return self._load().next()

    def record(self, batch: int, drafts: int, tokens: int, seconds: float) -> None:
        """Belongs to the last answer of `draft_tokens`, even if its sequences were computed in several groups."""
        if batch and tokens >= batch and seconds > 0:
            self._acceptance.record(batch, drafts, tokens - batch)
            self._load().record(drafts, seconds / batch)

    def _load(self) -> "Load":
        """What is known about 1, 2, 3-4, 5-8, … sequences at once."""
        return self._loads.setdefault((self._asked - 1).bit_length(), Load(self._choices, self._acceptance))


class Acceptance:
    """How many drafts hold, by how many are made. It does not depend on the load.

    What is known of one number of drafts tells something about the others: until there is more, each draft is taken
    to hold as often as any, if those before it did.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, float] = {}
        self._held: dict[int, float] = {}
        self._each = 0.0

    def record(self, rounds: int, drafts: int, held: int) -> None:
        """`held` drafts of `rounds` times `drafts`."""
        if not drafts:
            return
        self.fade(0.5 ** (rounds / MEMORY))
        self._rounds[drafts] = self._rounds.get(drafts, 0.0) + rounds
        self._held[drafts] = self._held.get(drafts, 0.0) + held
        self._each = self._solve()

    def fade(self, kept: float) -> None:
        """Trust what is known less."""
        for known in (self._rounds, self._held):
            for drafts in known:
                known[drafts] *= kept

    def expected(self, drafts: int) -> float:
        """Drafts that hold in a round of a sequence."""
        rounds, held = self._rounds.get(drafts, 0.0), self._held.get(drafts, 0.0)
        return (held + BORROWED * _run(self._each, drafts)) / (rounds + BORROWED)

    def _solve(self) -> float:
        """The chance of each draft with which as many would have held as did."""
        total, low, high = sum(self._held.values()), 0.0, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            expected = sum(rounds * _run(middle, drafts) for drafts, rounds in self._rounds.items())
            low, high = (middle, high) if expected < total else (low, middle)
        return low


def _run(each: float, drafts: int) -> float:
    """Drafts that hold from the first on, if each does with the chance `each`."""
    return sum(each**position for position in range(1, drafts + 1))


class Load:
    """The choices at one load: what each of them costs, which one is taken, and when the others are looked at.

    Times are seconds of a round for each sequence in it.
    """

    def __init__(self, choices: list[int], acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._times: dict[int, deque[float]] = {drafts: deque(maxlen=KEPT_TIMES) for drafts in choices}
        self._taken = 0
        self._plan = deque([0] * ROUNDS_A_LOOK)
        self._plan_looks()
        self._interval, self._until_look = FIRST_INTERVAL, FIRST_INTERVAL
        self._taken_before = 0
        self._new = True
        self._elapsed, self._spent = 0.0, 0.0

    def next(self) -> int:
        """How many drafts the next round has."""
        while self._plan:
            drafts = self._plan[0]
            if drafts == self._taken or self._affordable(drafts):
                return drafts
            self._plan.popleft()
        return self._taken

    def record(self, drafts: int, seconds: float) -> None:
        self._times[drafts].append(seconds)
        self._elapsed += seconds
        if self._plan and self._plan[0] == drafts:
            self._plan.popleft()
            # What it really took, as a drafter may have to catch up; but a disturbance must not end the first look.
            self._spent += self._loss(drafts, self._seconds(drafts) if self._new else seconds)
        self._taken = self._best()
        if not self._plan:
            self._count_down()

    def _count_down(self) -> None:
        self._new = False
        self._until_look -= 1
        if self._until_look > 0:
            return
        changed, self._taken_before = self._taken != self._taken_before, self._taken
        self._interval = FIRST_INTERVAL if changed else min(2 * self._interval, LAST_INTERVAL)
        self._until_look = self._interval
        self._look()

    def _look(self) -> None:
        """Measure all choices but the one that is taken, which is measured all the time."""
        self._acceptance.fade(0.5)
        for drafts, times in self._times.items():
            while drafts != self._taken and len(times) > KEPT_AT_A_LOOK:
                times.popleft()
        self._plan_looks()

    def _plan_looks(self) -> None:
        """In turns with the choice that is taken, so that both see the machine alike."""
        for drafts in self._times:
            if drafts != self._taken:
                self._plan.extend([drafts, self._taken] * ROUNDS_A_LOOK)

    def _best(self) -> int:
        """The fastest, if it is clearly faster than the one that is taken; and none that is slower than plain."""
        rates = {drafts: self._rate(drafts) for drafts, times in self._times.items() if len(times) >= ROUNDS_A_LOOK}
        if 0 not in rates or self._taken not in rates:
            return self._taken
        best = max(rates, key=rates.__getitem__)
        taken = best if rates[best] > CLEARLY * rates[self._taken] else self._taken
        return taken if rates[taken] >= rates[0] else 0

    def _rate(self, drafts: int) -> float:
        """Tokens a second. The median does not mind a round that was disturbed."""
        return (1 + self._acceptance.expected(drafts)) / median(self._times[drafts])

    def _seconds(self, drafts: int) -> float:
        """What a round with so many drafts is thought to take."""
        plain, times = median(self._times[self._taken] or [0.0]), self._times[drafts]
        if len(times) >= ROUNDS_A_LOOK:
            return median(times)
        return min(*times, LONGEST_ROUND * plain) if times else (1 + UNKNOWN_LOSS) * plain

    def _loss(self, drafts: int, seconds: float) -> float:
        """What a round of so many `seconds` loses against the choice that is taken."""
        if not self._times[self._taken]:
            return 0.0
        return max(0.0, seconds - (1 + self._acceptance.expected(drafts)) / self._rate(self._taken))

    def _affordable(self, drafts: int) -> bool:
        loss = self._loss(drafts, self._seconds(drafts))
        allowed = ALLOWANCE_ROUNDS * median(self._times[self._taken] or [0.0]) + ALLOWANCE_PART * self._elapsed
        return not loss or self._spent + loss <= allowed
