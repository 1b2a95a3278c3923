"""The values of a switch, from the one that was given over weaker ones to off. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firstlight.core import redact
from firstlight.engines.switch_entries import Off, OptionEntry, Weaker
from firstlight.isolate.pieces import Piece
from firstlight.isolate.problem import Level

LEVELS_MAX = 8
LABEL_MAX = 80
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[kKmMgG]?)")
_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2, "g": 1000**3, "G": 1024**3}
_STEPS = {Weaker.HALVE: 2, Weaker.QUARTER: 4}


class Levels(NamedTuple):
    """The levels of a switch, and why there is nothing to flip, if so: then there is one level only."""

    levels: tuple[Level, ...]
    fixed: str = ""


def option_levels(entry: OptionEntry, pieces: Sequence[Piece]) -> Levels:
    """The levels of an option that was given by these pieces."""
    given = Level(label=_label(word for piece in pieces for word in piece.words), words=_words(pieces))
    if entry.fixed:
        return Levels((given,), entry.fixed)
    spelling = _Spelling.of(pieces[0]) if len(pieces) == 1 else _Spelling(pieces[0].words[0].partition("=")[0])
    weaker = [spelling.level(values) for values in _weaker(entry, spelling.values)] if len(pieces) == 1 else []
    match entry.off:
        case Off.NEGATED:
            if spelling.name.startswith("--no-"):
                return Levels((given,), "it is off as it was given")
            return Levels((given, Level(label=_negated(entry), words=(_negated(entry),))))
        case Off.WEAKEST:
            return Levels((given, *weaker)) if weaker else Levels((given,), "no weaker value of it is known")
        case Off.ABSENT:
            if len(pieces) == 1 and _is_default(entry, spelling.values):
                return Levels((given,), "it asks for no more than there would be without it")
            return Levels((given, *weaker, Level(label=f"without {_called(entry, pieces)}")))


def variable_levels(settings: Sequence[str]) -> tuple[Level, ...]:
    """The levels of variables that were given as `NAME=value`: as they are, and unset."""
    names = " and ".join(setting.partition("=")[0] for setting in settings)
    return (Level(label=_label(settings), variables=tuple(settings)), Level(label=f"without {names}"))


class _Spelling(NamedTuple):
    """How an option was written: `--x v`, `--x=v` or `-O3`."""

    name: str
    values: tuple[str, ...] = ()
    between: str = " "

    @classmethod
    def of(cls, piece: Piece) -> "_Spelling":
        name, equals, value = piece.words[0].partition("=")
        if equals:
            return cls(name, (value,), "=")
        attached = re.fullmatch(r"(-[A-Za-z])(\d+)", name)
        return cls(attached[1], (attached[2],), "") if attached else cls(name, piece.words[1:])

    def level(self, values: tuple[str, ...]) -> Level:
        words = (self.name, *values) if self.between == " " else (f"{self.name}{self.between}{values[0]}",)
        return Level(label=_label(words), words=words)


def _called(entry: OptionEntry, pieces: Sequence[Piece]) -> str:
    """One option by its name as it was typed, several by what they are together."""
    return pieces[0].words[0].partition("=")[0].partition(".")[0] if len(pieces) == 1 else entry.name


def _words(pieces: Sequence[Piece]) -> tuple[str, ...]:
    return tuple(word for piece in pieces for word in piece.words)


def _negated(entry: OptionEntry) -> str:
    return entry.names[0].replace("--", "--no-", 1)


def _is_default(entry: OptionEntry, values: Sequence[str]) -> bool:
    """Whether the option says what is so without it, or asks for less: then to leave it out weakens nothing."""
    if len(values) != 1 or not entry.default:
        return False
    if values[0] == entry.default:
        return True
    number, default = _number(values[0]), _number(entry.default)
    return bool(entry.weaker and number and default and number <= default)


def _weaker(entry: OptionEntry, values: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Weaker values, strongest first, none of them what is so without the option."""
    if entry.weaker is Weaker.SHORTEN:
        found = list(_shorter(values))
    elif len(values) != 1:
        return []
    elif isinstance(entry.weaker, Weaker):
        found = [(str(number),) for number in _smaller(values[0], _STEPS[entry.weaker], entry.least)]
    else:
        found = [(value,) for value in _later(values[0], entry.weaker)]
    return [one for one in found if not _is_default(entry, one) or entry.off is Off.WEAKEST][:LEVELS_MAX]


def _shorter(values: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    while len(values) > 1:
        values = values[: len(values) // 2]
        yield values


def _smaller(value: str, step: int, least: int) -> Iterator[int]:
    number = int(_number(value) or 0)
    while (number := number // step) >= max(1, least):
        yield number


def _later(value: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a list, strongest first, that are weaker than the value."""
    if value in listed:
        return listed[listed.index(value) + 1 :]
    number = _number(value)
    numbers = [_number(one) for one in listed]
    if number is not None and None not in numbers:
        return tuple(one for one, its in zip(listed, numbers, strict=True) if its is not None and its < number)
    return listed


def _number(text: str) -> float | None:
    """A number as people write it (`32k`); None for anything else."""
    match = _QUANTITY.fullmatch(text)
    return float(match["number"]) * _UNITS[match["unit"]] if match and len(text) < 20 else None


def _label(words: "Sequence[str] | Iterator[str]") -> str:
    text = " ".join(redact.command(tuple(words)))
    return text if len(text) <= LABEL_MAX else text[: LABEL_MAX - 1] + "…"
