"""Trials asked for and answered: by the notebook where it has them, else by a launch; with an eye on the budget."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from firstlight.attempt import Interrupts, Observer, Traces
from firstlight.clock import Clock
from firstlight.core.process import ProcessId
from firstlight.core.report import Report
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import Outcome as End
from firstlight.errors import FirstlightError
from firstlight.isolate.between import Between, await_end
from firstlight.isolate.notebook import Begun, Concluded, Ended, Known, Notebook, Noted, Past, Running
from firstlight.isolate.problem import Outcome, Setting, Space
from firstlight.isolate.surroundings import await_port, free_port, own_caches
from firstlight.isolate.trial import Launched, Trial, established, launch, outcome_of


class Commands(Protocol):
    """Makes a command of a setting."""

    @property
    def space(self) -> Space: ...

    def launch(
        self, setting: Setting, levels: Mapping[str, int], scene: tuple[str, ...], port: int
    ) -> tuple[ServerCommand, Mapping[str, str]]:
        """The command and its whole environment: switches in `setting` as given, those of `levels` weakened so far,
        the others off, with the small scene of that name. It listens on `port` unless that is 0 or it cannot be told
        to; the command says."""
        ...

    def typed(self, setting: Setting, levels: Mapping[str, int]) -> tuple[str, ...]:
        """What a person would type for a setting, secrets replaced."""
        ...


class Watcher(Observer, Protocol):
    """Whoever shows an isolation."""

    def begun(self, begun: Begun, so_far: str) -> None:
        """A trial is launched."""
        ...

    def ended(self, trial: Trial, *, remembered: bool) -> None:
        """A trial has ended, now or in an earlier sitting."""
        ...

    def said(self, what: str) -> None:
        """Something worth a line."""
        ...


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. Times in seconds; 0 is no limit."""

    deadline_s: float = 1800.0
    budget_s: float = 0.0
    trials_max: int = 0
    fresh_caches: bool = False
    keep_port: bool = False


class Interrupted(FirstlightError):
    """Ctrl-C between or during trials."""

    exit_code = 130


class BudgetPassed(FirstlightError):
    """The time or the launches that were granted are used up."""

    exit_code = 5


class DeadlineTooShort(FirstlightError):
    """Not even the command as given came to an end within the deadline of a trial."""

    exit_code = 5


class Sitting:
    """From the first question to the last, or to the interruption."""

    def __init__(
        self,
        commands: Commands,
        wishes: Wishes,
        notebook: Notebook,
        *,
        watcher: Watcher,
        clock: Clock,
        interrupts: Interrupts,
    ) -> None:
        self.space = commands.space
        self.notebook = notebook
        self.known: Report | None = notebook.known
        self.trials: list[Trial] = []
        self.notes: list[str] = list(notebook.notes)
        self.scene: tuple[str, ...] = ()
        self.watcher = watcher
        self._commands = commands
        self._wishes = wishes
        self._clock = clock
        self._interrupts = interrupts
        self._past = Past(notebook.past)
        self._remembered = {trial.number for trial in notebook.past}
        self._numbers = max((*self._remembered, *(one.number for one in notebook.unfinished)), default=0)
        self._began = clock.monotonic()
        self._launches = 0

    @property
    def launched(self) -> int:
        """How many launches this sitting made."""
        return self._launches

    def ask(
        self,
        setting: Setting,
        why: str,
        levels: Mapping[str, int] | None = None,
        scene: tuple[str, ...] | None = None,
    ) -> Trial:
        """What becomes of a setting.

        Raises:
            Interrupted, BudgetPassed: it was not tried to the end.
            Poisoned: the next could not be tried fairly.
        """
        asked = Begun(
            at=self._clock.wall(),
            number=self._numbers + 1,
            setting=tuple(sorted(setting)),
            why=why,
            levels=tuple(sorted((levels or {}).items())),
            scene=self.scene if scene is None else scene,
        )
        trial = self._past.take(asked)
        if trial is None:
            return self._try(asked)
        if trial not in self.trials:
            self.trials.append(trial)
            self.watcher.ended(trial, remembered=True)
        return trial

    def hand_out_again(self, trials: list[Trial]) -> None:
        """Whoever asks the same next is answered by these."""
        left = [one for one in self.notebook.past if one not in self.trials]
        self._past = Past([*trials, *left])

    def note(self, what: str) -> None:
        """Say something now, and in the end."""
        if what not in self.notes:
            self.notes.append(what)
            self.notebook.write(Noted(at=self._clock.wall(), what=what))
        self.say(what)

    def conclude(self, headline: str) -> None:
        """There is an answer."""
        self.notebook.write(Concluded(at=self._clock.wall(), headline=headline))

    def say(self, what: str) -> None:
        """Say something now."""
        self.watcher.said(what)

    def so_far(self) -> str:
        """What the trials have shown, in a sentence."""
        stalls = [trial for trial in self.trials if trial.outcome is Outcome.SAME and not trial.levels]
        if len(self.trials) < 2 or not stalls:
            return ""
        least = min(stalls, key=lambda trial: len(trial.setting)).setting
        everything = len(self.space.sensible(self.space.names))
        if not least:
            return "it stalls with everything off"
        if len(least) == everything:
            return f"{len(self.trials)} launches, and no smaller set stalls yet"
        return f"{len(least)} of {everything} switches still stall" + (
            f": {', '.join(least)}" if len(least) < 6 else ""
        )

    def _try(self, asked: Begun) -> Trial:
        self._may_go_on()
        if not self._launches:
            self._await_leftovers()
        self._numbers = asked.number
        self.notebook.write(asked)
        self.watcher.begun(asked, self.so_far())
        return self._launched(asked)

    def _may_go_on(self) -> None:
        if self._interrupts.count:
            raise Interrupted("interrupted")
        if self._wishes.trials_max and self._launches >= self._wishes.trials_max:
            raise BudgetPassed(f"the {self._wishes.trials_max} launches of --max-trials are used up")
        if self._left_s() <= 0:
            raise BudgetPassed(f"the budget of {self._wishes.budget_s:g} s has passed")

    def _left_s(self) -> float:
        if not self._wishes.budget_s:
            return float("inf")
        return self._wishes.budget_s - (self._clock.monotonic() - self._began)

    def _launched(self, asked: Begun) -> Trial:
        self._launches += 1
        port = 0 if self._wishes.keep_port else free_port()
        setting = frozenset(asked.setting)
        command, environ = self._commands.launch(setting, dict(asked.levels), asked.scene, port)
        caches = self.notebook.folder.path / "caches" / str(asked.number)
        if self._wishes.fresh_caches:
            environ = {**environ, **own_caches(caches)}
        await_port(command.port, environ, self._clock)
        between = Between(self._clock, environ, command.port)
        own_s, left_s = self._wishes.deadline_s, self._left_s()
        began = self._clock.monotonic()
        launched = Launched(self.watcher, lambda first: self._note_server(asked.number, first))
        report = launch(
            command,
            environ,
            known=self.known.signature if self.known else None,
            deadline_s=max(0.1, min(own_s or left_s, left_s)) if own_s or self._wishes.budget_s else 0.0,
            launched=launched,
            clock=self._clock,
            interrupts=self._interrupts,
        )
        self._stop_if_cut_short(report)
        trial = self._noted(asked, report, launched.folder, self._clock.monotonic() - began)
        for what in between.clean(launched):
            self.note(what)
        shutil.rmtree(caches, ignore_errors=True)
        return trial

    def _note_server(self, number: int, first: ProcessId) -> None:
        self.notebook.write(Running(at=self._clock.wall(), number=number, server=first))

    def _await_leftovers(self) -> None:
        """What an earlier sitting that was killed left running is being ended by its guard, and must be gone.

        Raises:
            Poisoned: it is not.
        """
        await_end(Traces(self._clock, {}), dict.fromkeys(self.notebook.running, "the server"), self._clock)

    def _stop_if_cut_short(self, report: Report) -> None:
        if report.outcome is End.INTERRUPTED:
            raise Interrupted("interrupted during a trial")
        if report.outcome is End.DEADLINE and self._left_s() <= 0:
            raise BudgetPassed(f"the budget of {self._wishes.budget_s:g} s has passed during a trial")

    def _noted(self, asked: Begun, report: Report, folder: str, seconds: float) -> Trial:
        outcome = outcome_of(report, self.known)
        if outcome is Outcome.SAME and self.known is None:
            self.known = report
            self.notebook.write(Known(at=self._clock.wall(), report=report))
        trial = Trial(
            number=asked.number,
            setting=asked.setting,
            levels=asked.levels,
            scene=asked.scene,
            why=asked.why,
            outcome=outcome,
            what=report.headline,
            seconds=round(seconds, 1),
            run=report.run,
            report=str(Path(folder, "report.json")) if folder else "",
            signature=report.signature if report.outcome is End.STALLED else None,
            caches="cold" if self._wishes.fresh_caches else "warm",
            findings=established(report) if outcome is Outcome.OTHER else (),
            late=report.outcome is End.DEADLINE,
        )
        self.notebook.write(Ended(at=self._clock.wall(), trial=trial))
        self.trials.append(trial)
        self.watcher.ended(trial, remembered=False)
        return trial
