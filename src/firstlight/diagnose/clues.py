"""What a cause is made of: clues, each a named question put to a bundle, and what to do if they are seen. Pure.

A clue answers with sightings, each quoting an observation; with a gap where something kept it from telling; or with
nothing, if it looked and nothing was there. It is decisive or supporting, and speaks for its cause or against it.
`weigh` draws the verdict from the answers by one table; no cause has a verdict of its own.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from firstlight.core.gap import Gap
from firstlight.diagnose.scene import Scene


class Sighting(NamedTuple):
    """An observation that answers a clue: `quote` is a line of evidence as people read it, `pids` the processes
    concerned, the one to blame first; `what` the file, port, library or option that it is about."""

    quote: str
    pids: tuple[int, ...] = ()
    what: str = ""


Ask: TypeAlias = Callable[[Scene], Iterable[Sighting | Gap]]
"""Puts a clue's question to a scene. What was seen counts; a gap counts only where nothing was seen."""


class Clue(NamedTuple):
    """A question ("is /dev/shm full?"). `before` if it is asked before a server is started, and only then."""

    question: str
    ask: Ask
    decisive: bool
    against: bool = False
    before: bool = False


def decides(question: str, ask: Ask) -> Clue:
    """A clue that establishes its cause by itself. The facts must leave nothing else: the last line of a log never
    does, and neither does an option whose removal helped."""
    return Clue(question, ask, decisive=True)


def supports(question: str, ask: Ask) -> Clue:
    """A clue that speaks for its cause, while something unseen could still speak against it."""
    return Clue(question, ask, decisive=False)


def speaks_against(question: str, ask: Ask) -> Clue:
    """A clue that leaves its cause open even where others speak for it."""
    return Clue(question, ask, decisive=False, against=True)


def rules_out(question: str, ask: Ask) -> Clue:
    """A clue that excludes its cause unless a decisive one speaks for it."""
    return Clue(question, ask, decisive=True, against=True)


def foresees(question: str, ask: Ask, *, surely: bool = False) -> Clue:
    """A clue for `firstlight check`: what machine, command and environment tell before a start. `surely` if a start
    cannot succeed like this."""
    return Clue(question, ask, decisive=surely, before=True)


class Nature(IntEnum):
    """What kind of cause it is. Of findings that are equally sure, the smaller explains the larger."""

    DEATH = 0
    """Somebody is gone."""
    HELD = 1
    """Somebody is held: by a signal, a debugger, a lock, a file, a full pipe."""
    MACHINE = 2
    """The machine lacks something, or refuses it."""
    NETWORK = 3
    """Somebody cannot be reached."""
    DEVICE = 4
    """A GPU, its driver, or the way between two of them."""
    DIVERGED = 5
    """Ranks went different ways."""
    SLOW = 6
    """It works, and takes long."""
    SYMPTOM = 7
    """Where it shows; why is not known."""
    DETAIL = 8
    """How one process waits, whatever it waits for."""

    @property
    def explains(self) -> bool:
        """Whether it says why, and not only where or how."""
        return self < Nature.SYMPTOM


class Advice(NamedTuple):
    """What to do: the command or option that would confirm the cause, work around it, and repair it. `steps` are
    sentences that stand for themselves."""

    steps: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    work_around: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()


class Cause(NamedTuple):
    """A reason for which a server can stall.

    `title` is one clause and `advice` one sentence each, in which `{who}` stands for the processes concerned, `{pid}`
    for the first of them and `{what}` for what the first sighting is about; either may be a function where that is
    not enough. `traps` say what it is mistaken for, and what would tell. `each` gives a finding to every process for
    which something was seen, rather than one to all. `evident` if what its process is seen to do says it already, so
    that a headline need not. `explains` names causes that need not be told where this one is
    established. A server on several machines is judged machine by machine, each with its own facts; `together` if
    ranks of several decide, or whoever waits for them.
    """

    id: str
    nature: Nature
    title: "str | Callable[[Scene, tuple[Sighting, ...]], str]"
    clues: tuple[Clue, ...]
    advice: "Advice | Callable[[Scene, tuple[Sighting, ...]], Advice]"
    traps: tuple[str, ...] = ()
    each: bool = False
    evident: bool = False
    explains: frozenset[str] = frozenset()
    together: bool = False
