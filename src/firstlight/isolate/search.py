"""The search for the smallest set of switches that still stalls, and the smallest change that cures. Pure.

It is a generator: it yields the settings that it wants tried and is sent what became of them, so that the same code
is driven by real launches, by made-up oracles in tests, and by a bench that counts.

The order of the switches (suspects first) is cut to the shortest beginning that still stalls; the last switch of that
is needed, and is kept; so on with what stands before it, until what is kept stalls by itself. Each needed switch
costs log2(n) trials, fewer where the suspects are right. This is the divide and conquer of QuickXplain (Junker, AAAI
2004) on an order by suspicion, with galloping through the suspects; delta debugging's ddmin (Zeller and Hildebrandt,
TSE 2002) asks more for a few culprits among many. In the end every member of the result is taken out once: only then
is it called minimal, whatever the search assumed.

Where one setting stalls in one launch and comes up in another, halving would be led astray. From then on it is asked
what tells most of which guess is right (`blame.py`), until one is likely enough; the proofs are the same, each as
often as it takes.
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import combinations
from typing import TypeAlias

from firstlight.isolate.asking import Ask, Asking, NowAndThen, named
from firstlight.isolate.beliefs import Belief
from firstlight.isolate.blame import Guesses
from firstlight.isolate.found import End, Found
from firstlight.isolate.problem import Outcome, Setting, Space

TRIES_OF_THE_STALL = 8
"""How often the given command is tried before it is said not to stall: one that does in one launch of three comes
up so often in 4 of 100 isolations."""
ON_THE_WAY = 0.5
"""How sure it must be that a setting comes up while the search only looks where to look: a stall that is missed there
makes it longer, not wrong, since every culprit is taken out once more in the end."""
LIKELY = 0.97
"""How likely a guess must be to be followed where the stall shows only now and then."""
ALWAYS = 0.98
"""How likely it must be that several switches stall together and always, not some of them now and then."""
ALONE = 0.9
"""The same of a single switch, where only a stall that needs none could look like it."""
AGAIN_MAX = 16
CURES_MAX = 6
GROUPS_MAX = 6


Search: TypeAlias = Generator[Ask, Outcome, Found]


def search(space: Space, order: Sequence[str], suspects: int = 0) -> Search:
    """Find the culprits. `order` has all switches that may be flipped, most suspicious first; the first `suspects` of
    them are named by evidence, the rest only by guess."""
    return _Searcher(space, tuple(order), suspects).run()


class _Searcher:
    """What has been asked so far, and what follows from it."""

    def __init__(self, space: Space, order: tuple[str, ...], suspects: int) -> None:
        self._space = space
        self._order = order
        self._guesses = Guesses(space, order, suspects)
        self._suspects = suspects
        self._asking = Asking(space)
        self._doubts: dict[str, None] = {}

    def run(self) -> Search:
        full = self._space.sensible(self._order)
        first = yield from self._asking.prove_the_stall(full, TRIES_OF_THE_STALL)
        if first is not Belief.STALLS:
            return Found(
                end=End.NO_STALL if first is Belief.COMES_UP else End.OTHER_FAILURE, rate=self._asking.beliefs.rate
            )
        try:
            bottom = yield from self._asking.decide((), "everything switched off: it must come up", ON_THE_WAY)
            return (yield from self._halved(full, bottom))
        except NowAndThen:
            self._asking.halving = False
            return (yield from self._guessed(full))

    def _halved(self, full: Setting, bottom: Belief) -> Search:
        if bottom is Belief.STALLS:
            return self._not_an_option()
        culprits = yield from self._smallest(self._order)
        culprits, minimal = yield from self._proved_minimal(culprits)
        yield from self._confirm(culprits)
        cure = yield from self._cure(full, culprits)
        yield from self._confirm(culprits)
        return self._found(full, culprits, minimal, cure)

    def _guessed(self, full: Setting) -> Search:
        """The cure comes first: with a culprit off, its launches speak for the rest, too."""
        while True:
            self._doubts.clear()
            yield from self._asking.decide((), "everything switched off: it must come up", ON_THE_WAY)
            likeliest = yield from self._likeliest()
            if likeliest is None:
                culprits = yield from self._smallest(self._order)
            elif likeliest:
                culprits = tuple(name for name in self._order if name in likeliest)
            else:
                return self._not_an_option()
            cure = yield from self._cure(full, culprits)
            culprits, minimal = yield from self._proved_minimal(culprits)
            guesses = self._guesses.after(self._asking.beliefs.told)
            if not guesses or guesses[0].setting == frozenset(culprits) or likeliest is None:
                return self._found(full, culprits, minimal, cure)

    def _not_an_option(self) -> Found:
        cleared: Setting = frozenset()
        return Found(
            end=End.NOT_AN_OPTION, rate=self._asking.beliefs.rate, harmless=self._order, odds=self._odds_of(cleared)
        )

    def _found(self, full: Setting, culprits: tuple[str, ...], minimal: bool, cure: tuple[str, ...]) -> Found:
        baseline = self._asking.beliefs.of(frozenset(), ON_THE_WAY) is Belief.COMES_UP
        return Found(
            end=End.FOUND if baseline else End.NO_BASELINE,
            culprits=culprits,
            minimal=minimal and baseline,
            cure=self._all_that_goes(full, cure),
            harmless=tuple(name for name in self._order if name not in culprits),
            untried=tuple(one.name for one in self._space.switches if one.name not in self._order),
            doubts=(*self._doubts, *self._contradictions()),
            rate=self._asking.beliefs.rate,
            odds=self._odds_of(frozenset(culprits)),
        )

    def _odds_of(self, culprits: Setting) -> float:
        """How likely it is that these are to blame, and no others."""
        told = self._asking.beliefs.told
        if self._asking.halving:
            return self._guesses.sure_of(culprits, told)
        return next((guess.odds for guess in self._guesses.after(told) if guess.setting == culprits), 0.0)

    # The smallest set that stalls

    def _smallest(self, order: Sequence[str]) -> Generator[Ask, Outcome, tuple[str, ...]]:
        """A small set within `order`, all of which stalls, that still does."""
        kept: tuple[str, ...] = ()
        rest = tuple(order)
        while rest:
            if kept:
                alone = yield from self._asking.decide(kept, f"{named(kept)} alone", ON_THE_WAY)
                if alone is Belief.STALLS:
                    break
            length = yield from self._shortest_beginning(rest, kept)
            needed = self._space.closure((rest[length - 1], *kept))
            kept = tuple(name for name in order if name in needed)
            rest = tuple(name for name in rest[: length - 1] if name not in needed)
        return kept

    def _shortest_beginning(self, rest: tuple[str, ...], kept: tuple[str, ...]) -> Generator[Ask, Outcome, int]:
        """How many of `rest` it takes, with `kept`, to stall: all of them do, none does not."""
        low, high = 0, len(rest)
        step = 1
        while step <= self._suspects and low + step < high and not kept:
            why = f"the first {low + step} suspected alone"
            belief = yield from self._asking.decide((*kept, *rest[: low + step]), why, ON_THE_WAY)
            if belief is Belief.STALLS:
                high = low + step
                break
            low += step
            step *= 2
        while high - low > 1:
            middle = (low + high) // 2
            why = f"half of what is left ({high - low} switches)" + (f", with {named(kept)}" if kept else "")
            belief = yield from self._asking.decide((*kept, *rest[:middle]), why, ON_THE_WAY)
            if belief is Belief.STALLS:
                high = middle
            else:
                low = middle
        return high

    def _proved_minimal(self, culprits: tuple[str, ...]) -> Generator[Ask, Outcome, tuple[tuple[str, ...], bool]]:
        """Take out each one; what still stalls without it is smaller, and is tried again. Those without which it
        fails in another way may only go together: so they are taken out together, too.
        """
        unresolved: list[str] = []
        for name in culprits:
            fewer, belief = yield from self._without((name,), culprits)
            if belief is Belief.STALLS:
                return (yield from self._proved_minimal(fewer))
            if belief is Belief.UNRESOLVED:
                unresolved.append(name)
        for several in _groups(unresolved):
            fewer, belief = yield from self._without(several, culprits)
            if belief is Belief.STALLS:
                return (yield from self._proved_minimal(fewer))
        for name in unresolved:
            self._doubts[f"without {name} it fails in another way: whether {name} is needed was not shown"] = None
        return culprits, not unresolved

    def _without(
        self, names: Sequence[str], culprits: tuple[str, ...]
    ) -> Generator[Ask, Outcome, tuple[tuple[str, ...], Belief]]:
        left = self._space.sensible(one for one in culprits if one not in names)
        belief = yield from self._asking.decide(left, f"{named(culprits)} without {named(names)}")
        return tuple(one for one in culprits if one in left), belief

    def _confirm(self, culprits: tuple[str, ...]) -> Generator[Ask, Outcome, None]:
        """Several switches seem to stall only together where one of them does now and then, too; and everything off
        seems to help where it only came up by chance."""
        whole = frozenset(culprits)
        wanted = ALWAYS if len(culprits) > 1 else ALONE
        for _ in range(AGAIN_MAX):
            if self._guesses.sure_of(whole, self._asking.beliefs.told) >= wanted:
                return
            parts = [self._space.sensible(whole - {name}) for name in culprits]
            fair = [one for one in parts if self._asking.beliefs.of(one) is Belief.COMES_UP]
            again = self._guesses.betrayal(whole, fair, self._asking.beliefs.told)
            yield from self._asking.ask(again, f"{named(sorted(again))} again: is it always like this?")

    def _likeliest(self) -> Generator[Ask, Outcome, Setting | None]:
        """The set that is most likely to blame, once that is likely enough and it was seen to stall by itself; None
        if no guess explains what was seen, or nothing more could be told."""
        while guesses := self._guesses.after(self._asking.beliefs.told):
            likeliest = guesses[0]
            barred = [one for one in self._asking.beliefs.told if self._asking.beliefs.of(one) is Belief.UNRESOLVED]
            wanted: Setting | None = likeliest.setting
            why = f"{named(sorted(likeliest.setting))} alone, the likeliest"
            if likeliest.odds < LIKELY:
                wanted = self._guesses.question(guesses, barred)
                why = f"it tells most; the likeliest is {named(sorted(likeliest.setting))} ({likeliest.odds:.0%})"
            elif Outcome.SAME in self._asking.beliefs.told.get(likeliest.setting, ()):
                return likeliest.setting
            if wanted is None or wanted in barred:
                return None
            yield from self._asking.ask(wanted, why)
        return None

    # The smallest change that cures

    def _cure(self, full: Setting, culprits: tuple[str, ...]) -> Generator[Ask, Outcome, tuple[str, ...]]:
        """What to switch off in the command as given. Several causes may each stall it."""
        off: tuple[str, ...] = ()
        for _ in range(CURES_MAX):
            more = yield from self._one_that_helps(full - frozenset(off), culprits)
            off = (*off, more)
            belief = yield from self._asking.decide(
                full - frozenset(off), f"the command as given without {named(off)}"
            )
            if belief is Belief.COMES_UP:
                return (yield from self._no_more_than_needed(full, off))
            if belief is Belief.UNRESOLVED:
                break
            left = tuple(name for name in self._order if name not in off)
            culprits = yield from self._smallest(left)
            self._doubts["more than one cause stalls it: without the culprits it still does"] = None
        self._doubts["no change of a few switches was shown to bring it up"] = None
        return ()

    def _one_that_helps(self, given: Setting, culprits: tuple[str, ...]) -> Generator[Ask, Outcome, str]:
        """The culprit whose switching off costs least and brings it up; the cheapest one if none does by itself."""
        cheapest = sorted(culprits, key=lambda name: self._cost(given, name))
        for name in cheapest:
            belief = yield from self._asking.decide(given - {name}, f"the command as given without {name}")
            if belief is Belief.COMES_UP:
                return name
            if belief is Belief.STALLS:
                break
        return cheapest[0]

    def _no_more_than_needed(self, full: Setting, off: tuple[str, ...]) -> Generator[Ask, Outcome, tuple[str, ...]]:
        for name in off if len(off) > 1 else ():
            fewer = tuple(one for one in off if one != name)
            belief = yield from self._asking.decide(full - frozenset(fewer), f"with {name} as given again")
            if belief is Belief.COMES_UP:
                return (yield from self._no_more_than_needed(full, fewer))
        return off

    def _cost(self, given: Setting, name: str) -> tuple[int, int, int]:
        """Small for a switch that can be off without changing what is served, and without others."""
        off = self._all_that_goes(given, (name,))
        return sum(len(self._space.switch(one).effects) for one in off), len(off), self._order.index(name)

    def _all_that_goes(self, given: Setting, off: Iterable[str]) -> tuple[str, ...]:
        """With switches that are off, those that need them."""
        gone = given - self._space.sensible(given - frozenset(off))
        return tuple(name for name in self._order if name in gone)

    def _contradictions(self) -> list[str]:
        return [
            f"{named(sorted(less))} stalls, and with {named(sorted(more - less))} as well it comes up"
            for less, more in self._asking.beliefs.contradictions()
        ]


def _groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Several of them at a time: all, then every two."""
    pairs = list(combinations(names, 2)) if len(names) > 2 else []
    return [*([tuple(names)] if len(names) > 1 else []), *pairs[:GROUPS_MAX]]
