"""The commands that trials run: of a setting, on a port of its own, in a smaller scene where that is wanted."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from firstlight.core import redact
from firstlight.core.server import ServerCommand
from firstlight.engines import recognise
from firstlight.engines.switches import read_table, switch_table
from firstlight.engines.table import table
from firstlight.isolate.problem import Setting
from firstlight.isolate.shell import shell_line
from firstlight.isolate.shrink import steps_for
from firstlight.isolate.space import CommandSpace, command_of, space_of
from firstlight.isolate.unset import unsets_in_front


class Commands:
    """One command and all that can be made of it."""

    def __init__(self, space: CommandSpace, environ: Mapping[str, str]) -> None:
        self.space = space
        self._environ = dict(environ)

    @classmethod
    def read(cls, argv: Sequence[str], environ: Mapping[str, str], options: Path | None = None) -> "Commands":
        """What can be switched in a command. `options` is a table of the user's own.

        Raises:
            UsageError: the table is wrong, or the command's options cannot be told apart safely.
        """
        command = recognise(argv, environ)
        switches = read_table(options) if options else switch_table(command.engine)
        return cls(space_of(command, environ, switches), environ)

    @property
    def engine(self) -> str:
        return self.space.command.engine

    def launch(
        self, setting: Setting, levels: Mapping[str, int], scene: tuple[str, ...], port: int
    ) -> tuple[ServerCommand, Mapping[str, str]]:
        """The command and its whole environment: switches in `setting` as given, those of `levels` weakened so far,
        the others off, with the small scene of that name. It listens on `port`, unless that is 0 or it cannot be told
        to.
        """
        command, unset = self._bare(command_of(self.space, setting, levels))
        environ = {name: value for name, value in self._environ.items() if name not in unset}
        known = steps_for(command)
        for name in scene:
            command = with_words(command, known[name].words, dict(known[name].variables))
        return on_port(command, port) if port else command, environ

    def typed(self, setting: Setting, levels: Mapping[str, int]) -> tuple[str, ...]:
        """What a person would type for a setting, secrets replaced."""
        command = command_of(self.space, setting, levels)
        return redact.command([*(f"{name}={value}" for name, value in command.env), *command.argv])

    def _bare(self, command: ServerCommand) -> tuple[ServerCommand, set[str]]:
        """Without the `env -u NAME` that takes inherited variables from the server, and their names: `env` itself
        would suffer from them, as from a library in LD_PRELOAD."""
        words, given = command.argv, self.space.command.argv
        if words == given or not unsets_in_front(words):
            return command, set()
        count = 1
        while words[count] == "-u":
            count += 2
        bare = command if unsets_in_front(given) else msgspec.structs.replace(command, argv=words[count:])
        return bare, set(words[2:count:2])


def with_words(command: ServerCommand, words: Sequence[str], variables: Mapping[str, str]) -> ServerCommand:
    """The command with words at its end and variables in front."""
    shell = shell_line(command.argv)
    argv = shell.argv([*shell.words, *words]) if shell else (*command.argv, *words)
    return msgspec.structs.replace(command, argv=argv, env=tuple({**dict(command.env), **variables}.items()))


def on_port(command: ServerCommand, port: int) -> ServerCommand:
    """The command on another port; the same if nobody knows how to tell it."""
    names = table(command.engine).options.get("port", ())
    shell = shell_line(command.argv)
    words = shell.words if shell else command.argv
    changed = _replaced(words, names, port)
    if changed is None and table(command.engine).launch:
        changed = [*words, names[0], str(port)]
    if changed is None:
        return _by_variable(command, port)
    argv = shell.argv(changed) if shell else tuple(changed)
    told = recognise(argv, dict(command.env)).port == port
    return msgspec.structs.replace(command, argv=argv, port=port) if told else command


def _replaced(words: Sequence[str], names: Sequence[str], port: int) -> list[str] | None:
    """The words with the value of their port option replaced; None if there is no such option."""
    changed, found = list(words), False
    for index, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in names and equals:
            changed[index], found = f"{name}={port}", True
        elif name in names and index + 1 < len(words):
            changed[index + 1], found = str(port), True
    return changed if found else None


def _by_variable(command: ServerCommand, port: int) -> ServerCommand:
    if "PORT" not in dict(command.env):
        return command
    env = tuple({**dict(command.env), "PORT": str(port)}.items())
    return msgspec.structs.replace(command, env=env, port=port)
