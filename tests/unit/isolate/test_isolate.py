"""What is done around the search: smaller scenes, weaker values, the ladder; driven by made-up answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firstlight.core.report import Finding
from firstlight.isolate.commands import Commands
from firstlight.isolate.isolate import isolate
from firstlight.isolate.ladder import climb_down, lines, rungs
from firstlight.isolate.problem import Outcome, Setting
from firstlight.isolate.shrink import SLOW_S, rank_switches, smaller, steps_for
from firstlight.isolate.trial import Trial

Rule = Callable[[Setting, Mapping[str, int], tuple[str, ...]], Outcome]


class Sitting:
    """Answers by a rule instead of by launches, each of which takes `seconds`."""

    def __init__(self, commands: Commands, rule: Rule, seconds: float = 1.0) -> None:
        self.space = commands.space
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self.known: Any = None
        self.scene: tuple[str, ...] = ()
        self.notebook = SimpleNamespace(unfinished=(), past=(), path=Path("/n"), lost="")
        self._rule = rule
        self._seconds = seconds

    def ask(self, setting: Setting, why: str, levels: Mapping[str, int] | None = None, scene: Any = None) -> Trial:
        told = self.scene if scene is None else scene
        trial = Trial(
            number=len(self.trials) + 1,
            setting=tuple(sorted(setting)),
            levels=tuple(sorted((levels or {}).items())),
            scene=told,
            why=why,
            outcome=self._rule(setting, levels or {}, told),
            what="",
            seconds=self._seconds,
            run="r",
            report="",
        )
        self.trials.append(trial)
        return trial

    def hand_out_again(self, trials: list[Trial]) -> None:
        del trials

    def note(self, what: str) -> None:
        self.notes.append(what)

    def say(self, what: str) -> None:
        del what


def commands(*argv: str) -> Commands:
    return Commands.read(argv, {})


VLLM = ("vllm", "serve", "M", "-tp", "8", "--max-num-seqs", "64", "--speculative-config", "{}")
"""Its engine has features that can be switched off besides."""


def stalls_if(*names: str) -> Rule:
    return lambda setting, levels, scene: Outcome.SAME if set(names) <= setting else Outcome.UP


def level_of(given: Commands, label: str) -> tuple[str, int]:
    """The switch and the index of the level with that label."""
    return next(
        (one.name, index)
        for one in given.space.switches
        for index, level in enumerate(one.levels)
        if level.label == label
    )


def tp(given: Commands) -> str:
    return level_of(given, "-tp 8")[0]


def test_a_value_is_weakened_to_the_nearest_that_cures() -> None:
    given = commands(*VLLM)
    name, enough = level_of(given, "-tp 2")

    def rule(setting: Setting, levels: Mapping[str, int], scene: tuple[str, ...]) -> Outcome:
        guilty = name in setting and levels.get(name, 0) < enough
        return Outcome.SAME if guilty else Outcome.UP

    answer = isolate(Sitting(given, rule), given)  # type: ignore[arg-type]
    assert answer.culprits == ("-tp 8",)
    assert [change.instead for change in answer.cure] == ["-tp 2"]
    assert answer.cured == ("vllm", "serve", "M", "-tp", "2", *VLLM[5:])


def test_a_value_that_no_weaker_one_cures_is_left_out() -> None:
    given = commands(*VLLM)
    answer = isolate(Sitting(given, stalls_if(tp(given))), given)  # type: ignore[arg-type]
    assert [change.instead for change in answer.cure] == ["without -tp"]


def test_a_slow_stall_is_searched_with_less_around_it_and_confirmed_with_all() -> None:
    given = commands(*VLLM)
    sitting = Sitting(given, stalls_if("speculation"), seconds=SLOW_S)
    answer = isolate(sitting, given)  # type: ignore[arg-type]
    assert answer.culprits == ("--speculative-config {}",)
    assert any("dummy weights" in note for note in sitting.notes)
    first, *_, last = sitting.trials
    assert (first.scene, last.scene) == ((), ())
    assert last.outcome is Outcome.UP
    assert "-tp 8" in answer.harmless


def test_with_a_suspect_named_the_search_is_over_sooner_than_a_smaller_scene() -> None:
    given = commands(*VLLM)
    sitting = Sitting(given, stalls_if("speculation"), seconds=SLOW_S)
    fifo = Finding(id="fifo_without_writer", title="nobody writes", verdict="established")
    sitting.known = SimpleNamespace(findings=(fifo,), phase="draft_init", headline="")
    answer = isolate(sitting, given)  # type: ignore[arg-type]
    assert answer.facts == (fifo,)
    assert len(sitting.trials) == 5, "its fake hands the first trial out anew"
    assert not any(trial.scene for trial in sitting.trials)


def test_a_fast_stall_is_not_searched_with_less() -> None:
    given = commands(*VLLM)
    sitting = Sitting(given, stalls_if("speculation"))
    isolate(sitting, given)  # type: ignore[arg-type]
    assert not any(trial.scene for trial in sitting.trials)


def test_a_cure_that_only_holds_with_less_is_doubted() -> None:
    given = commands(*VLLM)

    def rule(setting: Setting, levels: Mapping[str, int], scene: tuple[str, ...]) -> Outcome:
        return Outcome.SAME if "speculation" in setting or not scene else Outcome.UP

    answer = isolate(Sitting(given, rule, seconds=SLOW_S), given)  # type: ignore[arg-type]
    assert any("does not cure" in doubt for doubt in answer.doubts)


def test_no_scene_is_kept_in_which_the_stall_is_another() -> None:
    given = commands(*VLLM)
    full = given.space.sensible(given.space.names)
    sitting = Sitting(given, lambda setting, levels, scene: Outcome.OTHER)
    assert smaller(sitting, given, full) == frozenset()  # type: ignore[arg-type]
    assert sitting.scene == ()


def test_ranks_are_the_switches_without_which_there_are_fewer() -> None:
    given = commands(*VLLM)
    assert rank_switches(given, given.space.sensible(given.space.names)) == {tp(given)}


def test_a_scene_that_the_command_speaks_of_itself_is_no_step() -> None:
    command, _ = commands(*VLLM, "--load-format", "safetensors").launch(frozenset(), {}, (), 0)
    assert "dummy weights" not in steps_for(command)


def test_each_rung_keeps_what_those_above_it_changed() -> None:
    given = commands(*VLLM)
    sitting = Sitting(given, stalls_if(tp(given)))
    ladder = climb_down(sitting, given)  # type: ignore[arg-type]
    assert [row.outcome for row in ladder.rows] == [Outcome.SAME, Outcome.SAME, Outcome.SAME, Outcome.UP, Outcome.UP]
    assert ladder.exit_code == 0
    assert "one rank" in ladder.headline
    last = sitting.trials[-1]
    assert "speculation" not in last.setting
    assert last.scene == ("no graphs, debug logs", "dummy weights")
    assert "one rank" in "\n".join(lines(ladder))


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.SAME, 1), (Outcome.OTHER, 3), (Outcome.UP, 0)])
def test_a_ladder_tells_a_shell_what_became_of_it(outcome: Outcome, code: int) -> None:
    given = commands(*VLLM)
    ladder = climb_down(Sitting(given, lambda setting, levels, scene: outcome), given)  # type: ignore[arg-type]
    assert ladder.exit_code == code


def test_what_a_server_has_not_is_no_rung() -> None:
    given = commands("./serve", "--fast")
    full = given.space.sensible(given.space.names)
    assert [bool(rung.missing) for rung in rungs(given, full)] == [False, True, True, True, True]
