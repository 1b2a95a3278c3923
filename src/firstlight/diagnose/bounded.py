"""Cut what is longer than anything that a question is put to: a search over a line takes the square of its length.

Servers log their whole configuration in one line; a bundle from elsewhere may hold anything at all. Pure.
"""

from collections.abc import Callable
from operator import is_
from typing import TypeVar

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.log import LogLine
from firstlight.core.look import Frame, Look, NativeFrame, ProcessLook, ThreadLook

CHARACTERS_MAX = 2000

_T = TypeVar("_T")


def bounded(bundle: Bundle) -> Bundle:
    """The bundle with every log line, frame and name at most `CHARACTERS_MAX` long; itself if all are."""
    logs = _each(
        bundle.logs,
        lambda tail: _changed(
            tail,
            lines=_each(tail.lines, _line),
            warnings=_each(tail.warnings, _line),
            first_error=_line(tail.first_error) if tail.first_error else None,
        ),
    )
    return _changed(bundle, logs=logs, looks=_each(bundle.looks, _look))


def _look(one: Look) -> Look:
    told = one.kernel_log if isinstance(one.kernel_log, Gap) else _each(one.kernel_log, _text)
    return _changed(one, processes=_each(one.processes, _process), kernel_log=told)


def _process(one: ProcessLook) -> ProcessLook:
    process = _changed(one.process, name=_text(one.process.name), label=_text(one.process.label))
    files = _each(one.files, lambda file: _changed(file, target=_text(file.target)))
    return _changed(one, process=process, files=files, threads=_each(one.threads, _thread))


def _thread(one: ThreadLook) -> ThreadLook:
    stack = one.stack if isinstance(one.stack, Gap) else _each(one.stack, _frame)
    native = one.native if isinstance(one.native, Gap) else _each(one.native, _native)
    return _changed(one, name=_text(one.name), stack=stack, native=native)


def _frame(one: Frame) -> Frame:
    if len(one.function) + len(one.file) + len(one.code) <= CHARACTERS_MAX:
        return one
    return _changed(one, function=_text(one.function), file=_text(one.file), code=_text(one.code))


def _native(one: NativeFrame) -> NativeFrame:
    if len(one.function) + len(one.library) <= CHARACTERS_MAX:
        return one
    return _changed(one, function=_text(one.function), library=_text(one.library))


def _line(one: LogLine) -> LogLine:
    return _changed(one, text=_text(one.text), message=_text(one.message), source=_text(one.source))


def _text(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else text[:CHARACTERS_MAX]


def _each(those: tuple[_T, ...], cut: Callable[[_T], _T]) -> tuple[_T, ...]:
    new = tuple(map(cut, those))
    return those if all(map(is_, those, new)) else new


def _changed(record: _T, **fields: object) -> _T:
    """The record with these fields; itself if nothing is new."""
    for name, value in fields.items():
        if getattr(record, name) is not value:
            return msgspec.structs.replace(record, **fields)  # type: ignore[type-var]
    return record
