"""The pages of docs/causes/ as text: what each cause rests on, and how the causes fare on public reports."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.corpus.case import Case, FirstRun, Outcome, all_cases, outcome, right, symptoms, wrong

from firstlight.core.words import printable
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.clues import Advice, Cause, Clue, Nature

FOLDER = Path(__file__).parents[2] / "docs" / "causes"

_WRITTEN = "<!-- Written by `python -m tests.corpus`; do not edit. -->"
_CAUSES = """
What firstlight can say of a stall, and what each verdict rests on. A clue that *decides* establishes its cause; with
clues that only *support* it the cause is supported; clues against leave it open or exclude it. Clues *before* are
asked by `firstlight check`, before a start. Where none is seen, the answer is unknown, with what to collect next.
[corpus.md](corpus.md) tells how this fares on public reports.
"""
_CORPUS = """
Each row is a public report, rebuilt as the bundle that such a machine would have given: from its facts, in own words,
with made-up names, amid the usual processes and log lines. The causes were written, or mended, with these reports at
hand, so this table shows that they hold. How they do on reports that nobody has seen is told below it.
"""
_COUNTS = """
Of {decided} reports in which something in sight points to the cause, the cause is named in {named} (established in
{established}). Of {undecided} that hold nothing of the kind, firstlight says unknown in {quiet}.
Wrong verdicts: {false}. Symptoms, which only say where it shows, are left out of the verdicts here.
"""
_FIRST = """
## Reports that nobody had at hand

The reports of these lots were rebuilt before anybody looked at how their causes are found; but who rebuilt the
seventh had read the causes, and who rebuilt the ninth and the eleventh their titles. They were run only then, and the
causes mended, by mechanism, after each lot. Most reports of the sixth hold little that would tell. So each lot's
first run tells how firstlight fares on reports that nobody has seen; the table above tells how it fares on them now.
*Wrong* counts reports of which a cause was established that is not theirs, *false* those that should have been
unknown and had a cause supported.

| lot | reports | cause in sight | established | supported | missed | not in sight | unknown | wrong | false |
|---|---|---|---|---|---|---|---|---|---|
"""
LOTS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
_NATURES = {
    Nature.DEATH: "somebody is gone",
    Nature.HELD: "somebody is held",
    Nature.MACHINE: "the machine lacks or refuses something",
    Nature.NETWORK: "somebody cannot be reached",
    Nature.DEVICE: "a GPU, its driver, or the way between two",
    Nature.DIVERGED: "ranks went different ways",
    Nature.SLOW: "it works, and takes long",
    Nature.SYMPTOM: "where it shows, not why",
    Nature.DETAIL: "how one process waits",
}


@cache
def pages() -> dict[Path, str]:
    """Every page by its path."""
    return {FOLDER / "README.md": causes_page(all_causes()), FOLDER / "corpus.md": corpus_page(all_cases())}


def causes_page(causes: Sequence[Cause]) -> str:
    """What each cause rests on, and what to do."""
    index = [f"- [{one.id}](#{one.id}) ({_NATURES[one.nature]})" for one in causes]
    return "\n".join(
        [
            "# Causes",
            _WRITTEN,
            _CAUSES,
            *index,
            *(row for one in causes for row in _section(one)),
            "",
        ]
    )


def _section(cause: Cause) -> list[str]:
    advice = cause.advice if isinstance(cause.advice, Advice) else Advice()
    kinds = (
        ("to do", advice.steps),
        ("to confirm", advice.confirm),
        ("to work around it", advice.work_around),
        ("to repair it", advice.repair),
    )
    title = cause.title if isinstance(cause.title, str) else "the title tells what was seen"
    return [
        "",
        f"## {cause.id}",
        "",
        _with_words(f"{title[:1].upper()}{title[1:]}."),
        "",
        "| clue | weight |",
        "|---|---|",
        *(f"| {_cell(clue.question)} | {_weight(clue)} |" for clue in cause.clues),
        "",
        *(f"- {kind}: {_with_words(words)}" for kind, told in kinds for words in told),
        *([] if isinstance(cause.advice, Advice) else ["- to do: told by what was seen"]),
        *(f"- trap: {words}" for words in cause.traps),
    ]


def _with_words(text: str) -> str:
    """The fields that a finding fills in, as words for them."""
    return text.replace("{who}", "WHO").replace("{what}", "WHAT").replace("{pid}", "PID")


def _weight(clue: Clue) -> str:
    if clue.before:
        return "before: surely" if clue.decisive else "before"
    if clue.against:
        return "rules out" if clue.decisive else "speaks against"
    return "decides" if clue.decisive else "supports"


def corpus_page(cases: Sequence[Case]) -> str:
    """How the causes fare on public reports."""
    told = [(case, outcome(case.bundle)) for case in cases]
    decided = [(case, said) for case, said in told if case.decided]
    counts = _COUNTS.format(
        decided=len(decided),
        named=sum(right(case, said) for case, said in decided),
        established=sum(case.cause in said.established for case, said in decided),
        undecided=len(told) - len(decided),
        quiet=sum(right(case, said) for case, said in told if not case.decided),
        false=sum(bool(wrong(case, said)) for case, said in told),
    )
    return "\n".join(
        [
            "# Public reports of silent stalls, and what firstlight says of them",
            _WRITTEN,
            _CORPUS.rstrip(),
            counts,
            "| report | cause | what is seen, or would have told | verdict | |",
            "|---|---|---|---|---|",
            *(_row(case, said) for case, said in told),
            _FIRST.rstrip(),
            *(_lot(number, name) for number, name in enumerate(LOTS, start=1)),
            "",
            *_members(),
            "",
        ]
    )


def _lot(number: int, name: str) -> str:
    run: FirstRun = import_module(f"tests.corpus.lots.{name}.cases").FIRST_RUN
    return f"| {number} | {' | '.join(map(str, run.figures))} |"


def _members() -> Iterator[str]:
    for number, name in enumerate(LOTS, start=1):
        cases: Sequence[Case] = import_module(f"tests.corpus.lots.{name}.cases").CASES
        yield f"- lot {number}: {', '.join(case.id for case in cases)}"


def _row(case: Case, said: Outcome) -> str:
    seen = case.shows or f"not seen: {case.lacks}"
    mark = "**wrong**" if wrong(case, said) else ("right" if right(case, said) else "missed")
    return f"| [{case.id}]({case.url}) | {case.cause} | {_cell(seen)} | {_verdict(said)} | {mark} |"


def _verdict(said: Outcome) -> str:
    words = zip(("established", "supported", "open"), said, strict=True)
    told = ((word, ids - symptoms()) for word, ids in words)
    return "; ".join(f"{_listed(ids)} {word}" for word, ids in told if ids) or "unknown"


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(sorted(ids))


def _cell(text: str) -> str:
    return printable(text, 300).replace("|", "\\|")
