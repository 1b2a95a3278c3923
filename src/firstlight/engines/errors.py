"""The errors of one log as a person reads them: a traceback is one thing, a headline gives way to what it heads.

Lines come one at a time, so an error may turn out to be a headline only later; then the line that names the error
says which earlier line it takes the place of. Of exceptions that follow from each other ("During handling of …",
"… the direct cause of …") the first is the error, unless it says nothing by itself: a failed look-up, or no words.

Processes that write into one pipe mix their lines, so every speaker's traceback is followed on its own; lines without
a prefix belong to the one that was opened last.
"""

import re
from enum import Enum, auto

from firstlight.core.log import ErrorSeen, LogLine
from firstlight.core.told import told_end
from firstlight.engines.failures import ERROR_LEVELS, Failures, is_body, is_exception, is_header
from firstlight.engines.table import LOOKED_AT

BODY_MAX = 3000
"""Lines that a traceback may go on for."""
REACH = 200
"""Lines of its speaker within which "…:" gives way to an error: libraries warn in between."""
NEAR = 3
"""Lines, empty ones not counted, within which a headline's traceback, a chain or a detail begins."""
TABLE = 20
"""Lines that an exception without a word of its own may have its table within, as torchrun's."""
SPEAKERS_MAX = 1024
"""Speakers that are told apart; a hostile log may name one in every line."""

_GROUP_HEADER = "Exception Group Traceback"
_GROUP_MARGIN = re.compile(r"\s*\| ?")
_GROUP = re.compile(r".*\(\d{1,6} sub-exceptions?\)$")
_REMOTE = "RayTaskError("
"""An exception with the traceback of another process under it."""
_VALIDATION = re.compile(r".*\bvalidation errors? for ")
_FRAME = re.compile(r"\s+File \"")
_DETAIL = re.compile(r"\s+\S.*[\[(]type=")
"""What pydantic says of one field; the field's name stands above."""
_LAST = re.compile(
    r"(?P<name>(?:[\w<>]+\.)+[A-Za-z_]\w*|[A-Z_]\w*)(?:\([\w.]{1,80}\))?(?::\s+(?P<words>.*)|:?(?P<mute>)$)"
)
"""The last line of a traceback, whatever the class of its exception is called."""
_TERMINATED = "terminate called after throwing an instance of"
"""C++ names the class of an exception first, its words in the next line."""
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause of",
    "terminated with the following error:",
)
_IGNORED = "Exception ignored in"
_INTERRUPT = "KeyboardInterrupt"
_LOOK_UPS = frozenset({"KeyError", "IndexError", "LookupError", "StopIteration", "StopAsyncIteration"})

_NOTHING = ErrorSeen()


class _Until(Enum):
    """What a headline gives way to: any error; the last line of the traceback right below it; that of an exception
    which follows from it; what is told right below it.
    """

    ERROR = auto()
    TRACEBACK = auto()
    CHAIN = auto()
    DETAIL = auto()


class _Voice:
    """One speaker: the traceback it is in the middle of, and the error that may still give way to a better one."""

    def __init__(self) -> None:
        self.body = 0
        """Lines for which the traceback may still go on."""
        self.reach = 0
        """Lines for which what was said last still matters."""
        self.levels: frozenset[str] = frozenset()
        self.margin = False
        self.ignored = self.next_ignored = False
        """The traceback tells of no failure: Python ignored it, it was logged as a warning, or it is an interrupt."""
        self.chained = False
        self.headline: LogLine | None = None
        self.until = _Until.ERROR

    @property
    def is_open(self) -> bool:
        return self.body > 0 or self.reach > 0

    def heads(self, line: LogLine, until: _Until, reach: int) -> None:
        self.headline, self.until, self.reach = line, until, reach

    def settles(self, *until: _Until) -> LogLine | None:
        """The headline, if it waited for one of these; it has had its say either way."""
        headline, self.headline = self.headline, None
        return headline if self.until in until else None

    def passes(self) -> None:
        """A line went by that says nothing."""
        self.reach -= 1
        if self.reach <= 0:
            self.headline = None
            self.ignored = self.next_ignored = self.chained = False

    def opens(self, line: LogLine, text: str) -> None:
        """A traceback begins. A speaker that names itself and the level does so in every line; uvicorn only once."""
        at_front = text.lstrip(" +|").startswith(("Traceback", _GROUP_HEADER))
        self.levels = frozenset({line.level} if at_front and line.source else {line.level, ""})
        self.ignored = self.next_ignored or (bool(line.level) and line.level not in ERROR_LEVELS)
        self.margin = _GROUP_HEADER in text or line.message[:LOOKED_AT] != text
        if self.until is _Until.TRACEBACK or self.chained:
            self.until = _Until.ERROR
        elif self.until is not _Until.ERROR:
            self.headline = None
        self.next_ignored = self.chained = False
        self.body, self.reach = BODY_MAX, max(self.reach, NEAR)

    def chains(self) -> None:
        """Another exception follows from the last one."""
        self.chained, self.next_ignored = True, self.ignored
        self.reach = max(self.reach, NEAR)


class ErrorReader:
    """Reads the errors of one log, line by line. A server that changes its engine needs another."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._voices: dict[tuple[str, str, int, int], _Voice] = {}
        self._opened: dict[str, _Voice] = {}

    def see(self, line: LogLine) -> ErrorSeen:
        """What the next line of the log means."""
        text = line.message[:LOOKED_AT]
        if line.transient:
            return ErrorSeen(self._failures.is_error(line))
        begins = is_header(text)
        if not begins and not self._anything_open(line):
            return self._plain(None, line, text)
        voice = self._voice(line)
        if voice.margin and voice.body:
            text = _GROUP_MARGIN.sub("", text, count=1)
        if not text.strip():
            return _NOTHING
        if begins:
            voice.opens(line, text)
            self._opened[line.stream] = voice
            return _NOTHING
        return self._within(voice, line, text) or self._plain(voice, line, text)

    # Whose line it is

    def _anything_open(self, line: LogLine) -> bool:
        if not self._voices:
            return False
        bare, own = self._opened.get(line.stream), self._voices.get(_key(line))
        return (bare is not None and bare.is_open) or (own is not None and own.is_open)

    def _voice(self, line: LogLine) -> _Voice:
        """The speaker's own; for a line without one that which was opened last, and a rank then goes on with it."""
        key = _key(line)
        if key not in self._voices and len(self._voices) >= SPEAKERS_MAX:
            key = (line.stream, "", 0, -1)
        own, opened = self._voices.get(key), self._opened.get(line.stream)
        if opened and opened.is_open and not (line.source or line.pid or line.level):
            if line.rank < 0:
                return opened
            if not opened.body and not (own and own.is_open):
                own = self._voices[key] = opened
        return own or self._voices.setdefault(key, _Voice())

    # A line under a traceback or a headline

    def _within(self, voice: _Voice, line: LogLine, text: str) -> ErrorSeen | None:
        """What a line means to what it stands under; None if it is none of its own."""
        if voice.body:
            voice.body -= 1
            if is_body(text) or text.startswith("+"):
                return _NOTHING
            last = _LAST.match(text)
            return self._ends(voice, line, last) if last and "%|" not in text and line.level in voice.levels else None
        if any(words in text for words in _CHAINED):
            voice.chains()
            return _NOTHING
        if voice.headline and voice.until is _Until.TRACEBACK and _FRAME.match(text):
            # Ray puts its own words in the place of "Traceback".
            voice.opens(line, text)
            return _NOTHING
        if voice.headline and voice.until is _Until.DETAIL and _DETAIL.match(line.message):
            return ErrorSeen(named=True, instead_of=voice.settles(_Until.DETAIL))
        return None

    def _ends(self, voice: _Voice, line: LogLine, last: re.Match[str]) -> ErrorSeen:
        """A traceback's last line."""
        text = last.group()
        voice.body, voice.reach = (voice.body if _goes_on(text) else 0), NEAR
        if voice.ignored or self._failures.is_consequence(line):
            voice.settles()
            voice.ignored = voice.ignored or text.startswith(_INTERRUPT)
            return _NOTHING
        seen = ErrorSeen(named=True, instead_of=voice.settles(_Until.ERROR))
        _may_head(voice, line, last)
        return seen

    # A line by itself

    def _plain(self, voice: _Voice | None, line: LogLine, text: str) -> ErrorSeen:
        if text.startswith(_IGNORED):
            voice = voice or self._voice(line)
            voice.next_ignored, voice.reach = True, 1
            self._opened[line.stream] = voice
        elif self._failures.is_error(line):
            headline = voice.settles(_Until.ERROR, _Until.DETAIL) if voice and not voice.body else None
            self._headline(line, text)
            return ErrorSeen(named=True, instead_of=headline)
        elif voice and not voice.body:
            voice.passes()
        return _NOTHING

    def _headline(self, line: LogLine, text: str) -> None:
        """An error by itself that may yet be the headline of what follows it."""
        last = _LAST.match(text) if is_exception(text) else None
        voice = self._voice(line)
        if last:
            _may_head(voice, line, last)
            voice.body = BODY_MAX if _goes_on(text) else voice.body
            voice.levels = frozenset({line.level})
        elif text.startswith(_TERMINATED):
            voice.heads(line, _Until.DETAIL, NEAR)
        elif text.endswith(":"):
            voice.heads(line, _Until.ERROR, REACH)
        elif line.level in ERROR_LEVELS and told_end(text) is None:
            voice.heads(line, _Until.TRACEBACK, 1)
        else:
            return
        self._opened[line.stream] = voice


def _key(line: LogLine) -> tuple[str, str, int, int]:
    return line.stream, line.source, line.pid, line.rank


def _goes_on(text: str) -> bool:
    """True for an exception that has others under it."""
    return _REMOTE in text or _GROUP.match(text) is not None


def _may_head(voice: _Voice, line: LogLine, last: re.Match[str]) -> None:
    """An exception that says too little by itself gives way to what it is said to be about."""
    text, name = last.group(), last["name"].rpartition(".")[2]
    voice.reach = NEAR
    if _VALIDATION.match(text):
        voice.heads(line, _Until.DETAIL, NEAR + 1)
    elif _goes_on(text):
        voice.heads(line, _Until.ERROR, REACH)
    elif text.endswith(":"):
        voice.heads(line, _Until.DETAIL, NEAR if last["words"] else TABLE)
    elif last["mute"] is not None or name in _LOOK_UPS:
        voice.heads(line, _Until.CHAIN, NEAR)
