"""Chat templates are programs that come with the model: what they may do, and what ends them."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from firstlight.embedded.channel import HEADER
from firstlight.embedded.errors import ModelNotUsable, RequestRefused
from firstlight.embedded.front import template_process, templates
from firstlight.embedded.front.templates import ChatTemplate
from firstlight.embedded.front.text import load_text

T = TypeVar("T")
HELLO = [{"role": "user", "content": "Hello"}]
LOOPS_WHEN_ASKED = (
    "{% if messages[0].content == 'loop' %}"
    "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
    "{% endif %}{{ messages[0].content }}"
)


@asynccontextmanager
async def template(source: str, **variables: str) -> AsyncIterator[ChatTemplate]:
    made = ChatTemplate(source, variables)
    try:
        await made.start()
        yield made
    finally:
        made.end()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def rendered(source: str, messages: list[dict[str, str]] = HELLO, **variables: str) -> str:
    async def once() -> str:
        async with template(source, **variables) as made:
            return await made.render(messages)

    return run(once())


def refused(source: str, messages: list[dict[str, str]] = HELLO) -> str:
    with pytest.raises(RequestRefused) as caught:
        rendered(source, messages)
    assert caught.value.status == 400
    assert caught.value.param == "messages"
    return caught.value.message


def test_a_conversation_as_the_template_writes_it() -> None:
    source = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | tojson }}{% endfor %}"
    assert rendered(source, bos_token="<s>") == '<s>[user]"Hello"'


def test_a_template_runs_in_a_sandbox() -> None:
    assert "unsafe" in refused("{{ ''.__class__.__mro__[1].__subclasses__() }}")


def test_it_may_object() -> None:
    assert refused("{{ raise_exception('no such role') }}").endswith("refuses these messages: no such role")


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.there }}",
        "{{ 1 / 0 }}",
        "{{ messages[5].role }}",
        "{{ messages | sum }}",
        "{{ range(10**9) | list }}",
    ],
)
def test_its_mistakes_are_refusals(source: str) -> None:
    refused(source)


def test_endless_recursion_is_refused() -> None:
    refused("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}")


def test_a_loop_is_ended_and_the_next_conversation_rendered() -> None:
    async def both() -> str:
        async with template(LOOPS_WHEN_ASKED) as made:
            with pytest.raises(RequestRefused, match=r"needed more than 2 s of CPU time or 512 MiB"):
                await made.render([{"role": "user", "content": "loop"}])
            return await made.render(HELLO)

    assert run(both()) == "Hello"


def test_a_loop_does_not_hold_up_others() -> None:
    async def order() -> list[str]:
        ended: list[str] = []
        async with template(LOOPS_WHEN_ASKED) as made:

            async def one(content: str) -> None:
                try:
                    await made.render([{"role": "user", "content": content}])
                finally:
                    ended.append(content)

            await asyncio.gather(one("loop"), one("short"), return_exceptions=True)
        return ended

    assert run(order()) == ["short", "loop"]


def test_a_sum_in_one_c_call_is_ended_too() -> None:
    assert "CPU time" in refused("{{ (9 ** (9 ** (9 * (messages | length)))) % 7 }}")


def test_memory_is_bounded() -> None:
    refused("{% set s = 'x' * (1024 ** 3) %}{{ s | length }}")


def test_its_text_is_bounded() -> None:
    assert str(template_process.MAX_TEXT) in refused("{{ 'x' * 9000000 }}")


def test_a_template_that_is_none_is_said_at_the_start() -> None:
    with pytest.raises(ModelNotUsable, match="chat template is not valid jinja"):
        rendered("{% for %}")


def test_a_template_that_cannot_even_be_compiled_in_time() -> None:
    with pytest.raises(ModelNotUsable, match="the process that renders the chat template"):
        rendered("{{ (9 ** (9 ** 9)) % 7 }}")


def test_a_process_that_somebody_killed_is_replaced_and_no_conversation_is_blamed() -> None:
    async def after_a_kill() -> str:
        async with template("{{ messages[0].content }}") as made:
            for pid in _children():
                os.kill(pid, 9)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return await made.render(HELLO)

    assert run(after_a_kill()) == "Hello"


def _children() -> list[int]:
    """Template processes of this one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            comm, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if comm == "fl-template" and int(rest.split()[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("asked", [False, True], ids=["before", "while"])
def test_left_alone_it_ends_without_a_word(asked: bool) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            templates.PROGRAM, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE
        )
    with ours:
        if asked:
            body = b'{"source": "x", "variables": {}}'
            ours.sendall(HEADER.pack(len(body)) + body)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_nothing_is_left_of_it() -> None:
    rendered("x")
    assert _children() == []


def test_a_model_without_template_refuses_chat(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "tokenizer_config.json").unlink()
    with pytest.raises(RequestRefused, match="has no chat template"):
        run(load_text(tmp_path).render(HELLO))


@pytest.mark.parametrize("named", [False, True])
def test_the_template_file_goes_before_the_settings(
    make_model: Callable[..., Path], tmp_path: Path, named: bool
) -> None:
    settings = json.loads((make_model(tmp_path) / "tokenizer_config.json").read_text())
    source = "<|user|>{{ eos_token }}"
    if named:
        settings["chat_template"] = [{"name": "tools", "template": "x"}, {"name": "default", "template": source}]
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        (tmp_path / "chat_template.jinja").write_text(source)

    async def tokens() -> list[int]:
        text = load_text(tmp_path)
        await text.start()
        try:
            return text.encode_rendered(await text.render([]))
        finally:
            text.end()

    assert run(tokens()) == [257, 256]
