"""What can go wrong in the engine, each with a way out.

EngineError
├── WrongUsage         the command line asks for something that cannot be: no such folder, port taken
├── ModelNotUsable     the model folder is there, but this engine cannot serve it
├── RequestRefused     one request cannot be answered; carries the HTTP status and the OpenAI error fields
├── PeerGone           the process at the other end of the socket has ended
├── WaitTimedOut       a wait with a name passed its deadline
├── RankLost           another rank ended, was stopped, or did nothing any more
└── Diverged           the ranks do not do the same work
"""


class EngineError(Exception):
    """One plain sentence, then a way out (may be empty)."""

    def __init__(self, message: str, way_out: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.message}. {self.way_out}" if self.way_out else self.message


class WrongUsage(EngineError):
    """The command line asks for something that cannot be."""


class ModelNotUsable(EngineError):
    """The model folder cannot be served by this engine."""


class RequestRefused(EngineError):
    """One request is refused; the others are not disturbed."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class PeerGone(EngineError):
    """The process at the other end of the socket has ended."""


class WaitTimedOut(EngineError):
    """A wait passed its deadline: says what was awaited, from whom, for how long."""

    def __init__(self, awaited: str, seconds: float) -> None:
        super().__init__(f"waited {seconds:g} s for {awaited}, in vain")


class RankLost(EngineError):
    """Another rank ended, was stopped, or did nothing any more: says which, where it was, and who waited for it."""


class Diverged(EngineError):
    """The ranks do not do the same work: says who is where."""
