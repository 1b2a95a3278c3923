"""Every exception firstlight raises on purpose, as one tree. Each carries a way out.

    FirstlightError                 exit code
    ├── UsageError                      2      the command line or its input is wrong
    │   ├── CommandNotFound             2      the server command does not exist or may not be run
    │   ├── ModelNotUsable              2      a model folder or file is missing, truncated, or not supported
    │   └── RunNotFound                 2      no such run, process or port
    ├── BundleError                     2      a bundle cannot be read: truncated, foreign, from the future
    ├── LaunchFailed                    4      the system refused a process, or the guard could not be started
    ├── CannotLook                      4      nothing could be observed: no permission, no such process
    └── JournalLost                     4      nowhere to write; callers fall back, users rarely see it

A bug of ours is not in this tree: anything else that escapes is reported as such, with exit code 70.
"""

from typing import ClassVar


class FirstlightError(Exception):
    """What happened, in one sentence, and what to do about it."""

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.what}\n  {self.way_out}" if self.way_out else self.what


class UsageError(FirstlightError):
    """The command line or its input is wrong."""

    exit_code = 2


class CommandNotFound(UsageError):
    """The server command does not exist or may not be executed."""


class ModelNotUsable(UsageError):
    """A model folder or file is missing, truncated, or of a kind that is not supported."""


class RunNotFound(UsageError):
    """No run, process or port answers to that name."""


class BundleError(FirstlightError):
    """A bundle cannot be read: truncated, not a bundle, or written by a newer firstlight."""

    exit_code = 2


class LaunchFailed(FirstlightError):
    """The server could not be started for a reason that is not in the command line."""

    exit_code = 4


class CannotLook(FirstlightError):
    """Nothing at all could be observed of the target."""

    exit_code = 4


class JournalLost(FirstlightError):
    """No place to write the journal was found."""

    exit_code = 4
