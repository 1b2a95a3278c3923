"""Weigh the clues of every cause and draw the verdicts, by one table for all. Pure."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty, GapReason
from firstlight.core.words import gap_words, printable
from firstlight.diagnose.clues import Advice, Cause, Clue, Nature, Sighting
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.whose import located, placed

QUOTES_MAX = 8
TOLD = (Certainty.ESTABLISHED, Certainty.SUPPORTED, Certainty.OPEN)
"""What is worth a finding of its own, the surest first."""
_LEAVES_OPEN = (Certainty.EXCLUDED, Certainty.NOT_SEEN, Certainty.NOT_EXAMINED)


class Answer(NamedTuple):
    """What a clue came to: what was seen, or the gaps that kept it from telling."""

    clue: Clue
    seen: tuple[Sighting, ...]
    gaps: tuple[Gap, ...]


class Weighed(NamedTuple):
    """One cause with the answers of its clues, for one site of it, and where it was asked: in the whole, or on one
    machine; several that say the same are one."""

    cause: Cause
    answers: tuple[Answer, ...]
    scenes: tuple[Scene, ...]

    @property
    def seen(self) -> tuple[Sighting, ...]:
        """All that speaks for it, what decides first."""
        speaking = sorted(
            (one for one in self.answers if not one.clue.against), key=lambda one: not one.clue.decisive
        )
        return tuple(dict.fromkeys(sighting for one in speaking for sighting in one.seen))

    @property
    def certainty(self) -> Certainty:
        """The first line of the table that applies."""
        asked = [one for one in self.answers if not one.clue.against]
        seen_for = [one.clue for one in asked if one.seen]
        seen_against = [one.clue for one in self.answers if one.clue.against and one.seen]
        decided = any(clue.decisive for clue in seen_for)
        if asked and all(one.gaps and not one.seen for one in asked):
            return Certainty.NOT_EXAMINED
        if any(clue.decisive for clue in seen_against) and not decided:
            return Certainty.EXCLUDED
        if seen_for and seen_against:
            return Certainty.OPEN
        if decided:
            return Certainty.ESTABLISHED
        return Certainty.SUPPORTED if seen_for else Certainty.NOT_SEEN

    @property
    def fill(self) -> "_Filler":
        return _Filler(self.scenes[0], self.seen)

    @property
    def title(self) -> str:
        title = self.cause.title
        return self.fill(title if isinstance(title, str) else title(self.scenes[0], self.seen))


class Verdicts(NamedTuple):
    """`findings` are what is worth telling, the surest and most telling first; `others` has the word for every other
    cause by its id. `cause` is the finding that explains: the first that is established, else the first supported one
    that is no mere symptom; None if why is not known. `evident` as of that cause. `stuck` if something is established
    that is no mere slowness. `accused` are the pids that
    each finding is about first. `hidden` counts for each gap the causes that it kept from being examined."""

    findings: tuple[Finding, ...]
    others: tuple[tuple[str, str], ...]
    cause: Finding | None = None
    evident: bool = False
    stuck: bool = False
    accused: tuple[tuple[int, ...], ...] = ()
    hidden: tuple[tuple[Gap, int], ...] = ()


def weigh(scene: Scene, causes: Iterable[Cause], *, before: bool = False) -> Verdicts:
    """Put the clues of all `causes` to a scene: those for a start under way, or `before` it those that foresee."""
    weighed = _weighed(scene, tuple(causes), before=before)
    sure = [one for one in weighed if one.certainty is Certainty.ESTABLISHED]
    explained = {id_ for one in sure for id_ in one.cause.explains}
    told = [one for one in weighed if one.certainty in TOLD]
    kept = [one for one in told if one in sure or one.cause.id not in explained]
    kept.sort(key=_order)
    findings = tuple(_finding(one, needs_advice=_needs_advice(one, sure)) for one in kept)
    at = next((at for at, one in enumerate(kept) if _explains(one)), None)
    found = {finding.id for finding in findings}
    others = {one.cause.id: str(one.certainty) for one in sorted(weighed, key=_openness) if one.cause.id not in found}
    others |= {one.cause.id: "explained by another" for one in told if one not in kept and one.cause.id not in found}
    accused = tuple(tuple(dict.fromkeys(sighting.pids[0] for sighting in one.seen if sighting.pids)) for one in kept)
    return Verdicts(
        findings,
        others=tuple(sorted(others.items())),
        cause=None if at is None else findings[at],
        evident=at is not None and kept[at].cause.evident,
        stuck=any(one.cause.nature is not Nature.SLOW for one in kept if one.certainty is Certainty.ESTABLISHED),
        accused=accused,
        hidden=_hidden(weighed),
    )


def _hidden(weighed: list[Weighed]) -> tuple[tuple[Gap, int], ...]:
    """The gaps that kept causes from being examined, the one that hid most first, whosever it was."""
    counts: Counter[str] = Counter()
    gaps: dict[str, Gap] = {}
    for one in weighed:
        if one.certainty is Certainty.NOT_EXAMINED:
            found = {gap.what: gap for answer in one.answers for gap in answer.gaps}
            counts.update(found.keys())
            gaps = found | gaps
    return tuple((gaps[what], count) for what, count in counts.most_common())


def _explains(one: Weighed) -> bool:
    """Whether it says why, and not only where."""
    if one.certainty is Certainty.SUPPORTED:
        return one.cause.nature.explains
    return one.certainty is Certainty.ESTABLISHED


def _needs_advice(one: Weighed, sure: list[Weighed]) -> bool:
    """A symptom needs none where a cause is established for the same processes, nor an end where its cause is."""
    nature = one.cause.nature
    if nature.explains and nature is not Nature.DEATH:
        return True
    others = [other for other in sure if other is not one and (nature is not Nature.DEATH or _tells_more(other))]
    settled = {pid for other in others for sighting in other.seen for pid in sighting.pids}
    return not settled & {pid for sighting in one.seen for pid in sighting.pids}


def _tells_more(one: Weighed) -> bool:
    """Whether it says more than that somebody has ended."""
    return one.cause.nature.explains and one.cause.nature is not Nature.DEATH


def _openness(one: Weighed) -> int:
    """Of what several machines say of a cause, that which leaves most open."""
    return _LEAVES_OPEN.index(one.certainty) if one.certainty in _LEAVES_OPEN else -1


def _order(one: Weighed) -> tuple[int, Nature, int]:
    return TOLD.index(one.certainty), one.cause.nature, -len(one.seen)


def _weighed(scene: Scene, causes: tuple[Cause, ...], *, before: bool) -> list[Weighed]:
    """Every cause in the whole, or on each machine, one machine after the other: what is asked of it is kept."""
    sites: dict[str, list[Weighed]] = {cause.id: [] for cause in causes}
    for where in dict.fromkeys((scene, *scene.machines)):
        for cause in causes:
            if where in ((scene,) if cause.together else scene.machines):
                sites[cause.id] += _sites(cause, where, before=before)
    return [one for cause in causes for one in _folded(sites[cause.id])]


def _folded(sites: list[Weighed]) -> Iterable[Weighed]:
    """Machines that come to the same finding are named in one."""
    alike: dict[object, Weighed] = {}
    for at, one in enumerate(sites):
        foldable = one.scenes[0].over and not one.cause.each and one.certainty in TOLD
        key = (one.certainty, one.title) if foldable else at
        alike[key] = _as_one(alike[key], one) if key in alike else one
    return alike.values()


def _as_one(one: Weighed, other: Weighed) -> Weighed:
    answers = (
        Answer(mine.clue, (*mine.seen, *its.seen), (*mine.gaps, *its.gaps))
        for mine, its in zip(one.answers, other.answers, strict=True)
    )
    return Weighed(one.cause, tuple(answers), (*one.scenes, *other.scenes))


def _sites(cause: Cause, scene: Scene, *, before: bool) -> list[Weighed]:
    """The cause once, or once for each set of processes for which something was seen."""
    answers = tuple(_answer(clue, scene) for clue in cause.clues if clue.before is before)
    if not answers:
        return []
    firsts = dict.fromkeys(sighting.pids[:1] for one in answers if not one.clue.against for sighting in one.seen)
    if not cause.each or len(firsts) < 2:
        return [Weighed(cause, answers, (scene,))]
    return [Weighed(cause, tuple(_only(one, first) for one in answers), (scene,)) for first in firsts]


def _only(one: Answer, first: tuple[int, ...]) -> Answer:
    return one._replace(seen=tuple(sighting for sighting in one.seen if sighting.pids[:1] in {first, ()}))


def _told(clue: Clue, scene: Scene) -> list[Sighting | Gap]:
    """What a clue says. One that fails is our fault, and must not take the answers of all others with it."""
    try:
        return list(clue.ask(scene))
    except Exception as error:  # noqa: BLE001 - whatever it is, the others still answer
        told = f"a fault in firstlight, {type(error).__name__}: {error}"
        return [Gap(what="the answer", reason=GapReason.FAILED, detail=printable(told, 200))]


def _answer(clue: Clue, scene: Scene) -> Answer:
    told = _told(clue, scene)
    seen = tuple(dict.fromkeys(placed(one, scene) for one in told if isinstance(one, Sighting)))
    return Answer(clue, seen, () if seen else tuple(dict.fromkeys(one for one in told if isinstance(one, Gap))))


def _finding(one: Weighed, *, needs_advice: bool) -> Finding:
    cause, seen, scene = one.cause, one.seen, one.scenes[0]
    fill = _Filler(scene, seen, lacking="…")
    against = [sighting.quote for answer in one.answers if answer.clue.against for sighting in answer.seen]
    given = cause.advice if isinstance(cause.advice, Advice) else cause.advice(scene, seen)
    advice = _by_kind(given) if needs_advice else ()
    return Finding(
        id=cause.id,
        title=located(one.title, one.scenes),
        verdict=str(one.certainty),
        pids=tuple(dict.fromkeys(pid for sighting in seen for pid in sighting.pids)),
        evidence=tuple(dict.fromkeys(sighting.quote for sighting in seen))[:QUOTES_MAX],
        against=tuple(dict.fromkeys(against))[:QUOTES_MAX],
        unseen=tuple(f"{answer.clue.question} {gap_words(answer.gaps[0])}" for answer in one.answers if answer.gaps),
        advice=tuple(f"{kind}{fill(words)}" for kind, told in advice for words in told),
        traps=cause.traps,
    )


def _by_kind(advice: Advice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("", advice.steps),
        ("To confirm: ", advice.confirm),
        ("To work around it: ", advice.work_around),
        ("To repair it: ", advice.repair),
    )


_FIELD = re.compile(r"\{(?:who|pid|what)\}")


class _Filler:
    """Puts the names of what was seen into the words of a cause; `lacking` where nobody knows what it is about."""

    def __init__(self, scene: Scene, seen: tuple[Sighting, ...], lacking: str = "") -> None:
        blamed = tuple(dict.fromkeys(sighting.pids[0] for sighting in seen if sighting.pids))
        what = next((sighting.what for sighting in seen if sighting.what), "")
        self._words = {
            "{who}": scene.names.all(blamed) if blamed else "the server",
            "{pid}": str(blamed[0]) if blamed else "PID",
            "{what}": printable(what, 200) or lacking,
        }

    def __call__(self, words: str) -> str:
        """At one pass: what is put in may look like a field itself."""
        return _FIELD.sub(lambda found: self._words[found[0]], words)
