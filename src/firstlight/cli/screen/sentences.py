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
from firstlight.core.report import Report
from firstlight.core.vocabulary import Motion, Outcome, Phase, Role
from firstlight.core.words import counted, exit_words, gap_words, printable, seconds, who

_ENDS = "ending the server"
ENDING = {
    Outcome.SERVING: f"the first token is verified; {_ENDS}",
    Outcome.STALLED: f"it has stalled; {_ENDS}",
    Outcome.EXITED: "the server has exited; cleaning up after it",
    Outcome.DEADLINE: f"the deadline has passed; {_ENDS}",
    Outcome.NOT_STARTED: "the server was not started; cleaning up",
    Outcome.NOT_LOOKED: f"no token could be verified; {_ENDS}",
    Outcome.INTERRUPTED: f"interrupted; {_ENDS}",
}
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
            line = _motion(event)
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
            line = ending(event)
        case Stopped():
            line = _stopped(event)
    return line


def ending(event: Stopping) -> str:
    """Why the server is being ended. The event names the outcome, not who wanted it: `--once` or Ctrl-C."""
    known = event.why in ENDING
    return ENDING[Outcome(event.why)] if known else f"{printable(event.why)}; {_ENDS}"


def stays(report: Report, *, ending: bool) -> str:
    """What is said where a server goes on to serve in the foreground. Nothing where this is the end: then the server
    was ended before, or the report says how it runs on.
    """
    if report.outcome != Outcome.SERVING or ending or report.next_steps:
        return ""
    return f"Ctrl-C ends {'the watching; the server goes on' if report.attached else 'the server and firstlight'}"


def is_error(event: LogSeen) -> bool:
    """True for a log line that says of itself that it is an error, or is the first error without saying so."""
    by_its_words = not event.level and "error" in event.text.lower()
    return event.first_error or by_its_words or event.level.upper() in _ERROR_LEVELS


def is_alarm(event: Event) -> bool:
    """True for what must catch the eye."""
    if isinstance(event, MotionChanged):
        return event.motion == Motion.STALLED
    return isinstance(event, ProcessGone) or (isinstance(event, LogSeen) and is_error(event))


def _motion(event: MotionChanged) -> str:
    why = printable(event.why)
    if event.phase == Phase.SERVING and event.motion != Motion.STALLED:
        return f"{event.phase}, {why}" if event.motion == Motion.QUIET else f"{event.phase}: {why}"
    return f"{event.motion} in {event.phase}: {why}"


def _started(event: Started) -> str:
    verb = "watching" if event.attached else "started"
    where = f", expected at {event.url}" if event.url else ""
    return f"{verb} {event.engine} as process {event.pid}{where}; its log and journal are in {event.folder}"


def _gone(exit_: Exit) -> str:
    if exit_.passing or (exit_.clean and exit_.role in _UNREMARKABLE):
        return ""
    return f"{who(exit_.name, exit_.label, exit_.id.pid, exit_.rank)} {exit_words(exit_)}"


def _stopped(event: Stopped) -> str:
    if event.left:
        return f"the server was ended, but this is left of it: {printable(', '.join(event.left))}"
    asked = f"{counted(event.asked, 'process was', 'processes were')} asked, " if event.asked else ""
    killed = f"{event.killed} had to be killed, " if event.killed else ""
    return f"the server has ended; {asked}{killed}no process, port or shared memory of it is left"
