"""The answer in words: what each end comes to, and that nothing is said that was not shown."""

from collections.abc import Sequence

import msgspec
import pytest

from firstlight.core.report import Finding
from firstlight.isolate.explain import Answer, explained, lines, setting_words
from firstlight.isolate.found import End, Found
from firstlight.isolate.odds import Rate
from firstlight.isolate.problem import Level, Outcome, Space, Switch
from firstlight.isolate.trial import Trial

NAMES = ("a", "b", "c")


def switch(name: str, *weaker: str, fixed: str = "", effects: tuple[str, ...] = ()) -> Switch:
    levels = [Level(label=f"--{name}"), *(Level(label=one) for one in weaker), Level(label=f"without --{name}")]
    return Switch(name=name, kind="option", levels=tuple(levels), fixed=fixed, effects=effects)


SPACE = Space(
    switches=(
        *(switch(name) for name in "ab"),
        switch("c", "--c 4", effects=("numerics",)),
        switch("port", fixed="it is where it listens"),
    )
)
FACT = Finding(id="file_lock_held", title="pid 7 holds the lock", verdict="established")
HINT = Finding(id="other", title="perhaps another", verdict="supported")


def trial(number: int, *setting: str, outcome: Outcome = Outcome.UP, caches: str = "warm") -> Trial:
    return Trial(
        number=number,
        setting=setting,
        why="",
        outcome=outcome,
        what="it said why",
        seconds=10.0,
        run="r",
        report="/r",
        caches=caches,
    )


TRIALS = (
    trial(1, *NAMES, outcome=Outcome.SAME),
    trial(2),
    trial(3, "a", "c", outcome=Outcome.SAME),
    trial(4, "a"),
    trial(5, "c"),
    trial(6, "b", "c"),
)
PAIR = Found(
    end=End.FOUND,
    culprits=("a", "c"),
    minimal=True,
    cure=("a",),
    harmless=("b",),
    untried=("port",),
    rate=Rate(stalls=2, trials=2),
)


def answer(found: Found = PAIR, trials: Sequence[Trial] = TRIALS, weakened: dict[str, int] | None = None) -> Answer:
    return explained(found, SPACE, trials, weakened=weakened or {}, findings=(HINT, FACT), stall="stuck")


def text(one: Answer) -> str:
    return "\n".join(lines(one))


def test_the_headline_names_culprits_and_cure() -> None:
    assert answer().headline == "--a and --c together stall it; it comes up without --a"


def test_a_weaker_value_is_the_cure_where_it_is_enough() -> None:
    cured = answer(Found(end=End.FOUND, culprits=("c",), cure=("c",)), weakened={"c": 1})
    assert cured.headline == "--c stalls it; it comes up with --c 4"
    assert "changes numerics" in text(cured)


def test_every_claim_has_its_trials() -> None:
    assert answer().proofs == (
        "as given: same stall (trial 1)",
        "everything off: came up (trial 2)",
        "a and c alone: same stall (trial 3)",
        "c without a: came up (trial 5)",
        "a without c: came up (trial 4)",
        "as given without a: came up (trial 6)",
    )


def test_what_was_not_tried_says_why() -> None:
    assert answer().untried == (("--port", "it is where it listens"),)


def test_only_what_is_established_is_behind_it_where_something_is() -> None:
    assert answer().facts == (FACT,)


def test_not_an_option_names_the_fact_of_the_host() -> None:
    told = answer(Found(end=End.NOT_AN_OPTION, harmless=NAMES))
    assert told.exit_code == 1
    assert told.headline.endswith("stalls the same: pid 7 holds the lock")


def test_nothing_to_isolate() -> None:
    told = answer(Found(end=End.NO_STALL), [trial(1, *NAMES)])
    assert told.exit_code == 0
    assert "came up in 1 launch" in told.headline


def test_another_failure_says_which() -> None:
    told = answer(Found(end=End.OTHER_FAILURE), [trial(1, *NAMES, outcome=Outcome.OTHER)])
    assert told.exit_code == 3
    assert told.headline.endswith("it said why")


def test_a_stall_now_and_then_tells_its_count_and_its_odds() -> None:
    flaky = Found(end=End.FOUND, culprits=("a",), cure=("a",), rate=Rate(stalls=3, trials=9))
    told = text(answer(flaky))
    assert "3 of 9 launches" in told
    assert "%" in told
    assert "now and then" not in text(answer())


@pytest.mark.parametrize(("caches", "word"), [("cold", "6 of them with empty caches"), ("warm", "with your caches")])
def test_cold_and_warm_are_told_apart(caches: str, word: str) -> None:
    trials = [trial(one.number, *one.setting, outcome=one.outcome, caches=caches) for one in TRIALS]
    assert word in text(answer(trials=trials))


def test_words_of_a_setting_are_the_shorter_way_to_say_it() -> None:
    said = [setting_words(trial(1, *setting), NAMES) for setting in (NAMES, (), ("a", "b"), ("c",))]
    assert said == ["as given", "everything switched off", "without c", "only c"]


def test_commands_can_be_pasted_into_a_shell() -> None:
    typed = ("A=b c", "env", "-u", "X", "vllm", "serve", "M", "--x", '{"y": 1}')
    told = text(msgspec.structs.replace(answer(), reproduce=typed))
    assert """A='b c' env -u X vllm serve M --x '{"y": 1}'""" in told
    told = text(msgspec.structs.replace(answer(), reproduce=("A=b c", "bash", "-c", "B=1 exec vllm serve M")))
    assert "A='b c' bash -c 'B=1 exec vllm serve M'" in told


def test_escapes_of_a_hostile_server_do_not_reach_the_terminal() -> None:
    hostile = trial(1, *NAMES, outcome=Outcome.OTHER)
    told = explained(
        Found(end=End.OTHER_FAILURE), SPACE, [hostile], weakened={}, doubts=("\x1b[2Jgone",), findings=()
    )
    assert "\x1b" not in text(told)
