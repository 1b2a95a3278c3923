"""Which switches may be to blame where a stall shows only now and then, how likely that is, and what to try next.
Pure.

Every small set of switches is a guess: all settings that contain it stall, at a rate that nobody knows, and no others
do. A stall refutes each guess that it does not contain; a setting that comes up speaks against all that it contains.
With any rate between 0 and 1 as likely as any other, a guess under which S launches stalled and U came up has the
likelihood B(S + 1, U + 1). What is tried next is the setting whose outcome tells most, as in a game of twenty
questions with unreliable answers (Rényi 1961).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from firstlight.isolate.problem import Outcome, Setting, Space

SIZES = (0.08, 0.62, 0.23, 0.07)
"""How likely it is, before any trial, that the stall needs no switch; one; two; three."""
LARGER = 0.25
"""How likely each larger size is, against the one before."""
HIDDEN = 0.01
"""How likely it is that more options hide a stall that fewer show."""
SEVERAL = 0.01
"""How likely it is that another cause, of its own, stalls the same."""
NOW_AND_THEN = 0.4
"""How likely it is, before any trial, that a stall does not show in every launch."""
GUESSES_MAX = 3000
LIVELY = 48
"""Guesses less likely than so many others do not decide what is tried next."""
SUSPECTED = 4.0
"""How much likelier a switch is to blame that evidence names."""
AS_TELLING = 0.8
"""A trial that proves something as well may tell a little less."""

Told: TypeAlias = Mapping[Setting, Sequence[Outcome]]


class Guess(NamedTuple):
    """A set of switches that may be to blame: how likely that is, and how often it would stall."""

    setting: Setting
    odds: float
    rate: float


class Guesses:
    """All guesses about a command. The first `suspects` of `order` are named by evidence."""

    def __init__(self, space: Space, order: Sequence[str], suspects: int) -> None:
        self._space = space
        self._names = tuple(order)
        weights = {name: SUSPECTED if index < suspects else 1.0 for index, name in enumerate(order)}
        self._priors = dict(_priors(space, weights))

    def after(self, told: Told) -> tuple[Guess, ...]:
        """The guesses that no stall refutes, the likeliest first; none if every one is refuted."""
        found = {one: (prior * math.exp(likely), rate) for one, prior, likely, rate in self._likelihoods(told)}
        total = sum(weight for weight, _ in found.values())
        guesses = (Guess(setting, weight / total, rate) for setting, (weight, rate) in found.items() if total)
        return tuple(sorted(guesses, key=lambda guess: -guess.odds))

    def sure_of(self, culprits: Setting, told: Told) -> float:
        """How likely it is that `culprits` are to blame, where they stalled in every launch and nothing speaks
        against that: some of them that stall now and then would explain it, too."""
        steady = (1 - NOW_AND_THEN) * (self._priors.get(culprits) or self._prior_of_many(len(culprits)))
        if any(culprits <= setting and Outcome.UP in outcomes for setting, outcomes in told.items()):
            steady *= HIDDEN
        if any(not culprits <= setting and Outcome.SAME in outcomes for setting, outcomes in told.items()):
            steady *= SEVERAL
        found = {one: NOW_AND_THEN * prior * math.exp(likely) for one, prior, likely, _ in self._likelihoods(told)}
        return (steady + found.get(culprits, 0.0)) / (steady + sum(found.values()))

    def betrayal(self, culprits: Setting, parts: Iterable[Setting], told: Told) -> Setting:
        """Which to try again, the culprits or a part of them, so that a stall that shows now and then would betray
        itself soonest: by coming up with all of them, or by stalling with fewer."""
        guesses = [guess for guess in self.after(told) if guess.setting < culprits]

        def betrays(setting: Setting) -> float:
            guilty = [guess for guess in guesses if guess.setting <= setting]
            return sum(guess.odds * (1 - guess.rate if setting == culprits else guess.rate) for guess in guilty)

        return max((culprits, *parts), key=betrays)

    def question(self, guesses: Sequence[Guess], barred: Iterable[Setting]) -> Setting | None:
        """What to try next; None if no setting but the `barred` would tell anything."""
        lively = _Lively(guesses[:LIVELY])
        full = self._space.sensible(self._names)
        likeliest = guesses[0].setting
        proofs = [likeliest, *(self._space.sensible(full - {name}) for name in sorted(likeliest))]
        climbed = [self._climbed(begin, lively) for begin in (full, likeliest)]
        not_these = {*barred, full}
        telling = [(one, lively.tells(one)) for one in (*proofs, *climbed) if one not in not_these]
        most = max((bits for _, bits in telling), default=0.0)
        return next((one for one, bits in telling if bits >= AS_TELLING * most > 0), None)

    def _prior_of_many(self, size: int) -> float:
        """Of one among the many sets that are too large to be guessed."""
        return SIZES[-1] * LARGER ** max(0, size - len(SIZES) + 1) / math.comb(len(self._names), size)

    def _likelihoods(self, told: Told) -> Iterator[tuple[Setting, float, float, float]]:
        """Each guess that no stall refutes, with its prior, the logarithm of its likelihood, and its rate."""
        stalls = sum(outcomes.count(Outcome.SAME) for outcomes in told.values())
        came_up = [(setting, outcomes.count(Outcome.UP)) for setting, outcomes in told.items()]
        stalled = [setting for setting, outcomes in told.items() if Outcome.SAME in outcomes]
        within = frozenset(self._names).intersection(*stalled)
        for setting, prior in self._priors.items():
            if setting <= within:
                ups = sum(count for larger, count in came_up if setting <= larger)
                yield setting, prior, _log_beta(stalls + 1, ups + 1), (stalls + 1) / (stalls + ups + 2)

    def _climbed(self, begin: Setting, lively: "_Lively") -> Setting:
        """From a setting, one switch after the other is flipped as long as that tells more."""
        here, told = begin, lively.tells(begin)
        while True:
            near = [self._space.sensible(here ^ {name}) for name in lively.names]
            best = max(near, key=lively.tells, default=here)
            if (tells := lively.tells(best)) <= told + 1e-9:
                return here
            here, told = best, tells


class _Lively:
    """Guesses that decide what is tried next."""

    def __init__(self, guesses: Sequence[Guess]) -> None:
        total = sum(guess.odds for guess in guesses)
        self.names = sorted({name for guess in guesses for name in guess.setting})
        self._terms = [
            (guess.setting, guess.odds * guess.rate / total, guess.odds * _bits(guess.rate) / total)
            for guess in guesses
        ]

    def tells(self, setting: Setting) -> float:
        """How many bits the outcome of a trial would tell of which guess is right."""
        guilty = [(stalls, noise) for one, stalls, noise in self._terms if one <= setting]
        return _bits(sum(stalls for stalls, _ in guilty)) - sum(noise for _, noise in guilty)


def _priors(space: Space, weights: Mapping[str, float]) -> Iterator[tuple[Setting, float]]:
    left = GUESSES_MAX
    seen: set[Setting] = set()
    for size, share in enumerate(SIZES):
        sets = list(combinations(weights, size)) if math.comb(len(weights), size) <= left else []
        left -= len(sets)
        likely = [math.prod(weights[name] for name in one) for one in sets]
        for one, weight in zip(sets, likely, strict=True):
            if (closed := space.closure(one)) not in seen:
                seen.add(closed)
                yield closed, share * weight / sum(likely)


def _bits(chance: float) -> float:
    return -sum(one * math.log2(one) for one in (chance, 1 - chance) if one > 0)


def _log_beta(one: float, other: float) -> float:
    return math.lgamma(one) + math.lgamma(other) - math.lgamma(one + other)
