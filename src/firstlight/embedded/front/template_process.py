"""A process that renders one model's chat template, and can be ended in the middle of it.

Chat templates come with the model and are programs. They run here, in jinja2's immutable sandbox, because nothing
else ends a loop inside a loop or a product of a million strings: the process may use so much memory and, for each
conversation, so much CPU time, and the kernel ends it beyond that. The front starts another.

On stdin and stdout are frames: four bytes of length, big-endian, and JSON. First comes `Template`, then any number of
conversations (lists of messages); each is answered by a `Rendered`.
"""

import datetime
import json
import os
import resource
import signal
import sys
from typing import Any, BinaryIO, NoReturn

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from firstlight.embedded.channel import HEADER
from firstlight.embedded.machine import name_process

CPU_S = 2.0
COMPILE_CPU_S = 5.0
"""jinja2 computes what is constant in a template while it compiles it."""
MEMORY = 512 << 20
MAX_TEXT = 8 << 20
"""Characters that a conversation may become."""
MAX_COMPLAINT = 500


class Template(msgspec.Struct, frozen=True):
    """The template's source, and the names with their texts that templates rely on, such as bos_token."""

    source: str
    variables: dict[str, str]


class Rendered(msgspec.Struct, frozen=True):
    """The text, or why there is none."""

    text: str = ""
    error: str = ""


def compiled(source: str) -> jinja2.Template:
    """The template, ready to render. Raises jinja2.TemplateError."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment.from_string(source)


def main() -> None:
    name_process("fl-template")
    _allow_no_more(resource.RLIMIT_AS, MEMORY)
    _allow_no_more(resource.RLIMIT_CORE, 0)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    first = _receive(source)
    if not first:
        return
    template = msgspec.json.decode(first, type=Template)
    signal.setitimer(signal.ITIMER_PROF, COMPILE_CPU_S)
    try:
        ready = compiled(template.source)
    except (jinja2.TemplateError, RecursionError, MemoryError) as error:
        _send(sink, Rendered(error=_complaint(error)))
        return
    signal.setitimer(signal.ITIMER_PROF, 0)
    _send(sink, Rendered())
    while raw := _receive(source):
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        rendered = _rendered(ready, msgspec.json.decode(raw), template.variables)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(sink, rendered)


def _allow_no_more(what: int, most: int) -> None:
    """At most so much of a resource; where less is allowed already, that stays."""
    _, allowed = resource.getrlimit(what)
    least = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(what, (least, least))


def _rendered(template: jinja2.Template, messages: Any, variables: dict[str, str]) -> Rendered:
    try:
        text = template.render(messages=messages, add_generation_prompt=True, **variables)
    except Exception as error:  # noqa: BLE001 (whatever the template's program does wrong is its own fault)
        return Rendered(error=_complaint(error))
    if len(text) > MAX_TEXT:
        return Rendered(error=f"it makes more than {MAX_TEXT} characters of them")
    return Rendered(text=text)


def _complaint(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:MAX_COMPLAINT]


def _receive(source: BinaryIO) -> bytes:
    """The next frame; nothing once the front has gone."""
    header = source.read(HEADER.size)
    return source.read(HEADER.unpack(header)[0]) if len(header) == HEADER.size else b""


def _send(sink: BinaryIO, rendered: Rendered) -> None:
    body = msgspec.json.encode(rendered)
    sink.write(HEADER.pack(len(body)) + body)
    sink.flush()


def _to_json(value: object, indent: int | None = None) -> str:
    """jinja2's own filter escapes for HTML, which would change the prompt."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the front has gone, and an orderly exit would try to write once more
        os._exit(0)
