"""What a search came to: the culprits, the cure, and what is open."""

from enum import StrEnum

from firstlight.core.record import Record
from firstlight.isolate.odds import Rate


class End(StrEnum):
    """How the search ended."""

    FOUND = "found"
    NO_STALL = "no stall"
    """The command as given came up."""
    NOT_AN_OPTION = "not an option"
    """It stalls the same with everything switched off."""
    OTHER_FAILURE = "other failure"
    """The command as given fails, but in another way than by the stall in question."""
    NO_BASELINE = "no baseline"
    """With everything switched off it fails in another way; what was found rests on the stalls alone."""


class Found(Record):
    """The answer. `minimal` if taking out any one culprit was shown to cure the rest; `doubts` say why not, or what
    else speaks against it. `cure` is what to switch off in the command as given, none if nothing was shown to do.
    `harmless` were all off while it still stalled. `untried` never were. `odds` is how likely it is that these are
    the culprits, seeing that a stall may show only now and then.
    """

    end: End
    culprits: tuple[str, ...] = ()
    minimal: bool = False
    cure: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    rate: Rate = Rate()
    odds: float = 1.0
