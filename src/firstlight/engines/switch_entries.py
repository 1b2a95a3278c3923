"""The entries of an option table: what can be switched off in a server's command, and how. See switches/vllm.toml."""

from collections.abc import Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

import msgspec

from firstlight.core.record import Record
from firstlight.core.vocabulary import Phase

VARIABLE = "env:"
"""What the name of a variable's switch begins with."""

Effect: TypeAlias = Literal["numerics", "capacity", "features", "evidence"]
Prior: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=9)]


class Takes(StrEnum):
    """How many words follow an option."""

    NONE = "none"
    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"
    UNKNOWN = "unknown"
    """As many as stand there, up to the next option."""


class Off(StrEnum):
    """How an option is when it is off."""

    ABSENT = "absent"
    NEGATED = "negated"
    """`--no-x` stands in its place: the engine would do it unasked."""
    WEAKEST = "weakest"
    """It keeps the weakest of its values: without it the engine would do more."""


class Weaker(StrEnum):
    """A rule that makes weaker values of the given one."""

    HALVE = "halve"
    QUARTER = "quarter"
    SHORTEN = "shorten"
    """Of several values, the first half."""


class Entry(Record, kw_only=True):
    """What every kind of entry says.

    `needs` are switches without which it means nothing, `conflicts` those that the engine does not go well with.
    `effects`: what changes besides when it is off. `fixed` says why it cannot be. `prior` is how often one would
    suspect it, 0 to 9. `suspects` are ids of causes, and `phases` the phases of a stall, that make it a suspect.
    `since` and `until` are versions, both included.
    """

    name: str = ""
    needs: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    fixed: str = ""
    prior: Prior = 1
    suspects: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    since: str = ""
    until: str = ""


class OptionEntry(Entry, kw_only=True):
    """A switch made of one option or of several: `names` are its names, those of a group, and patterns with *.

    `default` is what the engine does without it. `weaker` is a rule or a list of values, strongest first; by a rule
    down to `least`.
    """

    name: str
    names: tuple[str, ...]
    takes: Takes = Takes.ONE
    default: str = ""
    off: Off = Off.ABSENT
    weaker: Weaker | tuple[str, ...] = ()
    least: int = 1


class VariableEntry(Entry, kw_only=True):
    """Variables of the environment, names or patterns with *. Each is a switch, unless they are one `together`, which
    then has the `name`. Off is unset. `own`: only where the command itself sets it, since a server may not start
    without what it would inherit."""

    variables: tuple[str, ...]
    together: bool = False
    own: bool = False


class FeatureEntry(Entry, kw_only=True):
    """Something that the engine does unasked. It is off by the `words` that are added to the command, or by
    `variables` (`NAME=value`). It is no switch if one of `unless` was given, or with fewer ranks than `ranks`."""

    name: str
    words: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    ranks: int = 1


class SwitchTable(Record):
    """All that is known of a server's switches.

    `others`: an option that is not listed is a switch, too; otherwise it stays as it is. `negations`: any flag can be
    given as `--no-x`. `flags`, `one` and `many` are names of options by how many words follow; those that are in no
    entry are switches like others. `silent` are variables that only inform.
    """

    others: bool = False
    negations: bool = False
    flags: tuple[str, ...] = ()
    one: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    options: tuple[OptionEntry, ...] = ()
    variables: tuple[VariableEntry, ...] = ()
    features: tuple[FeatureEntry, ...] = ()

    def entries_of(self, variable: str) -> Iterator[VariableEntry]:
        """The entries that a variable fits, best first; none if it only informs."""
        silent = _fits(variable, self.silent)
        return (one for one in self.variables if not silent and _fits(variable, one.variables))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
