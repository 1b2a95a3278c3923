"""Events as sentences; what is not worth a line gives none."""

from firstlight.core.events import (
    Event,
    GapNoted,
    LogSeen,
    Looked,
    MotionChanged,
    ProcessGone,
    Started,
    Stopped,
    Stopping,
    TokenVerified,
    Verifying,
)
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Motion, Role
from firstlight.core.words import exit_words, gap_words, printable, seconds, who

_ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_UNREMARKABLE = frozenset({Role.COMPILER, Role.HELPER, Role.OTHER})


def sentence(event: Event) -> str:
    """One line for people, empty if the event is not worth one. Phases are told by `PhaseNews`, the verdict by its
    report.
    """
    line = ""
    match event:
        case Started():
            line = _started(event)
        case ProcessGone():
            line = _gone(event.exit)
        case MotionChanged():
            line = f"{event.motion} in {event.phase}: {printable(event.why)}"
        case Verifying():
            line = f"asking for a first token: {printable(event.what)}"
        case TokenVerified():
            token = event.token
            line = f"first light after {seconds(token.after_launch_s)}: {printable(token.text, 200)!r}"
        case Looked():
            where = f"; written to {event.bundle}" if event.bundle else ""
            line = f"looked at every process in {seconds(event.took_s)}, because {printable(event.why)}{where}"
        case GapNoted():
            line = f"gap: {gap_words(event.gap)}"
        case Stopping():
            line = f"ending the server: {printable(event.why)}"
        case Stopped():
            line = _stopped(event)
    return line


def is_error(event: LogSeen) -> bool:
    """True for a log line that says of itself that it is an error."""
    return event.level.upper() in _ERROR_LEVELS or (not event.level and "error" in event.text.lower())


def is_alarm(event: Event) -> bool:
    """True for what must catch the eye."""
    if isinstance(event, MotionChanged):
        return event.motion == Motion.STALLED
    return isinstance(event, ProcessGone) or (isinstance(event, LogSeen) and is_error(event))


def _started(event: Started) -> str:
    verb = "watching" if event.attached else "started"
    where = f", expected at {event.url}" if event.url else ""
    return f"{verb} {event.engine} as process {event.pid}{where}; its log and journal are in {event.folder}"


def _gone(exit_: Exit) -> str:
    if exit_.clean and exit_.role in _UNREMARKABLE:
        return ""
    return f"{who(exit_.name, exit_.label, exit_.id.pid, exit_.rank)} {exit_words(exit_)}"


def _stopped(event: Stopped) -> str:
    if event.left:
        return f"the server was ended, but this is left of it: {printable(', '.join(event.left))}"
    asked = f"{event.asked} processes were asked, " if event.asked else ""
    killed = f"{event.killed} had to be killed, " if event.killed else ""
    return f"the server has ended; {asked}{killed}nothing is left of it"
