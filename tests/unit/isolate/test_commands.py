"""The commands that trials run: other ports, smaller scenes, variables taken away."""

from collections.abc import Mapping

import pytest

from firstlight.engines import recognise
from firstlight.isolate.commands import Commands, on_port, with_words

VLLM = ("vllm", "serve", "MODEL", "--tensor-parallel-size", "4", "--enforce-eager")


def commands(*argv: str, environ: Mapping[str, str] | None = None) -> Commands:
    return Commands.read(argv, environ or {})


def at(port: int, *argv: str) -> tuple[str, ...]:
    return on_port(recognise(argv, {}), port).argv


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (("vllm", "serve", "M", "--port", "8000"), ("vllm", "serve", "M", "--port", "9")),
        (("vllm", "serve", "M", "--port=8000", "-tp", "2"), ("vllm", "serve", "M", "--port=9", "-tp", "2")),
        (("vllm", "serve", "M"), ("vllm", "serve", "M", "--port", "9")),
        (("./serve", "--port", "8000", "--fast"), ("./serve", "--port", "9", "--fast")),
        (("bash", "-c", "vllm serve M --port 8000"), ("bash", "-c", "vllm serve M --port 9")),
    ],
)
def test_a_command_is_moved_to_another_port(given: tuple[str, ...], changed: tuple[str, ...]) -> None:
    assert at(9, *given) == changed


def test_a_port_given_by_a_variable_is_moved_there() -> None:
    moved = on_port(recognise(("PORT=8000", "./serve"), {}), 9)
    assert (dict(moved.env)["PORT"], moved.port) == ("9", 9)


def test_a_server_that_nobody_knows_how_to_move_stays() -> None:
    command = recognise(("./serve", "--fast"), {})
    assert on_port(command, 9) == command


def test_a_launch_is_on_the_port_that_it_is_given() -> None:
    given = commands(*VLLM)
    command, _ = given.launch(frozenset(), {}, (), 4711)
    assert command.port == 4711
    assert "--tensor-parallel-size" not in command.argv


def test_a_smaller_scene_adds_words_and_variables() -> None:
    given = commands(*VLLM)
    full = given.space.sensible(given.space.names)
    command, _ = given.launch(full, {}, ("dummy weights",), 0)
    assert command.argv[-2:] == ("--load-format", "dummy")


def test_words_go_into_the_line_of_a_shell() -> None:
    command = recognise(("bash", "-c", "vllm serve M"), {})
    assert with_words(command, ["--x"], {"A": "b"}).argv == ("bash", "-c", "vllm serve M --x")


def test_an_inherited_variable_that_is_off_is_not_in_the_environment() -> None:
    given = commands(*VLLM, environ={"LD_PRELOAD": "/x.so", "HOME": "/root"})
    assert "env:LD_PRELOAD" in given.space.names
    command, environ = given.launch(frozenset(), {}, (), 0)
    assert environ == {"HOME": "/root"}
    assert command.argv[0] == "vllm", "nothing runs before the server that could suffer from it"
    assert "env -u LD_PRELOAD vllm" in " ".join(given.typed(frozenset(), {}))
    full = given.space.sensible(given.space.names)
    assert given.launch(full, {}, (), 0)[1]["LD_PRELOAD"] == "/x.so"


def test_an_env_of_the_command_itself_stays_in_front_and_cannot_suffer() -> None:
    given = commands("/usr/bin/env", "-u", "A", *VLLM, environ={"LD_PRELOAD": "/x.so", "HOME": "/root", "A": "b"})
    command, environ = given.launch(frozenset(), {}, (), 0)
    assert environ == {"HOME": "/root"}
    assert command.argv[:6] == ("/usr/bin/env", "-u", "LD_PRELOAD", "-u", "A", "vllm")
