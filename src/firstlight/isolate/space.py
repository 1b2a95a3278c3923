"""From a command to the switches in it, and from a setting of the switches back to a command.

Nothing of a command is written anew: words stay as they were typed and in their order, unless their switch is off.
A flat YAML file (`--config`) counts as if its options stood there; the command as given still names the file. Any
other file stays as it is. A variable that firstlight itself inherited is taken from the server by `env -u NAME` in
front, so that a setting is always one command that a person can run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from firstlight.core.server import ServerCommand
from firstlight.engines import recognise
from firstlight.engines.command import engine_words
from firstlight.engines.options import config_text
from firstlight.engines.switch_entries import VARIABLE, Entry, FeatureEntry, SwitchTable, VariableEntry
from firstlight.engines.table import in_range, table
from firstlight.errors import UsageError
from firstlight.isolate.configs import words_of
from firstlight.isolate.levels import option_levels, variable_levels
from firstlight.isolate.pieces import Options, Piece
from firstlight.isolate.problem import Level, Setting, Space, Switch
from firstlight.isolate.shell import ShellLine, shell_line
from firstlight.isolate.unset import env_options, is_env, left_by_env, unsetting

_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "kubectl", "apptainer", "singularity", "enroot"})


class CommandSpace(Space, kw_only=True):
    """The switches of a command, with the words that they were found in. `inherited` are names of variables that the
    server gets from firstlight's own environment; `shell` is the line that a shell was given, if the words are its.
    Holds secrets, as the command does."""

    command: ServerCommand
    pieces: tuple[Piece, ...]
    inherited: tuple[str, ...] = ()
    shell: ShellLine | None = None


def space_of(
    command: ServerCommand,
    environ: Mapping[str, str],
    switches: SwitchTable,
    version: str = "",
    *,
    features: bool = True,
) -> CommandSpace:
    """The switches of a command: its options, the variables of its environment that matter, and, with `features`,
    what the server does unasked. `environ` is the environment that it will be started in, before its own variables.
    An unknown version (empty) may be any: then the first entry of a name counts.

    Raises:
        UsageError: the options cannot be told apart safely, in a shell line or a container's command.
    """
    shell = shell_line(command.argv)
    words = shell.words if shell else command.argv
    arguments = engine_words(command)
    front = words[: len(words) - len(arguments)]
    _refuse_containers(command)
    environ = left_by_env(front, environ)
    options = Options(switches, version)
    reading = _Reading(command, switches, options, version)
    pieces = (*reading.front(front), *reading.arguments(arguments))
    found = [*reading.option_switches(pieces), *reading.variable_switches(environ, pieces)]
    if features:
        found += reading.feature_switches({*(one.name for one in found), *(VARIABLE + name for name in environ)})
    there = {one.name for one in found}
    return CommandSpace(
        switches=tuple(_among(one, there) for one in found),
        command=command,
        pieces=(*pieces, *(Piece(words=(), switch=one.name) for one in found if one.kind == "feature")),
        inherited=tuple(sorted(name for one in found for name in _variables(one.given) if name in environ)),
        shell=shell,
    )


def command_of(space: CommandSpace, setting: Setting, levels: Mapping[str, int] | None = None) -> ServerCommand:
    """The command in which only the switches of `setting` are as given; those of `levels` have that level instead,
    the others are off. What misses what it needs is off, too. With all switches it is the given command itself.

    Raises:
        KeyError: no switch has such a name.
        IndexError: a switch has no such level.
    """
    kept = space.sensible(setting)
    weakened = {name: level for name, level in (levels or {}).items() if name in kept}
    chosen = {one.name: _chosen(one, kept, weakened) for one in space.switches}
    changed = [one for one in space.switches if chosen[one.name] is not one.given]
    if not changed:
        return space.command
    words = _words(space.pieces, {one.name: chosen[one.name] for one in changed})
    environment = dict(space.command.env)
    unset: dict[str, None] = {}
    for one in changed:
        for name in _variables(one.given):
            environment.pop(name, None)
            unset[name] = None
        environment |= dict(_parted(setting) for setting in chosen[one.name].variables)
    argv = space.shell.argv(words) if space.shell else words
    argv = unsetting([name for name in unset if name in space.inherited and name not in environment], argv)
    ranks = recognise(argv, environment).ranks
    return msgspec.structs.replace(space.command, argv=argv, env=tuple(environment.items()), ranks=ranks)


def _chosen(switch: Switch, kept: Setting, levels: Mapping[str, int]) -> Level:
    if switch.fixed:
        return switch.given
    return switch.levels[levels.get(switch.name, 0)] if switch.name in kept else switch.off


def _words(pieces: Sequence[Piece], changed: Mapping[str, Level]) -> tuple[str, ...]:
    """What a changed switch says stands where the last of its pieces was: the last of a repeated option counts."""
    last = {piece.switch: index for index, piece in enumerate(pieces)}
    words: list[str] = []
    for index, piece in enumerate(pieces):
        if piece.switch not in changed:
            words += piece.words
        elif last[piece.switch] == index:
            words += changed[piece.switch].words
    return tuple(words)


def _variables(level: Level) -> tuple[str, ...]:
    return tuple(_parted(setting)[0] for setting in level.variables)


def _parted(setting: str) -> tuple[str, str]:
    name, _, value = setting.partition("=")
    return name, value


def _among(switch: Switch, there: set[str]) -> Switch:
    """Without what is not in this command at all: the table's needs hold where both are given."""
    return msgspec.structs.replace(
        switch,
        needs=tuple(name for name in switch.needs if name in there),
        conflicts=tuple(name for name in switch.conflicts if name in there),
    )


def _refuse_containers(command: ServerCommand) -> None:
    program = command.argv[0].rpartition("/")[2] if command.argv else ""
    if command.engine == "generic" and program in _CONTAINERS:
        raise UsageError(
            f"The server runs inside a container that {program} starts: its options cannot be told from {program}'s.",
            "Run firstlight isolate inside the container, with the server's own command.",
        )


class _Described(NamedTuple):
    """A variable of the server's environment, and whether the command itself sets it."""

    setting: str
    own: bool


class _Reading:
    """One command being read."""

    def __init__(self, command: ServerCommand, switches: SwitchTable, options: Options, version: str) -> None:
        self._command = command
        self._table = switches
        self._options = options
        self._version = version

    # Pieces

    def front(self, words: Sequence[str]) -> Iterator[Piece]:
        """What stands before the engine's own words. Variables are switches where `env` or a shell takes them."""
        settable = True
        of_env = {index + more for index in env_options(words) for more in (0, words[index] in {"-u", "--unset"})}
        for index, word in enumerate(words):
            name, equals, _ = word.partition("=")
            is_variable = settable and bool(equals) and name.isidentifier()
            settable = is_variable or is_env(word) or index in of_env
            entry = self._entry_of(name) if is_variable else None
            yield Piece(words=(word,), switch=_switch_name(name, entry) if entry else "")

    def arguments(self, words: Sequence[str]) -> Iterator[Piece]:
        config = table(self._command.engine).options.get("config", ())
        for piece in self._options.cut(words, kept=self._command.model):
            name, equals, value = piece.words[0].partition("=")
            path = value if equals else piece.words[-1]
            inside = words_of(config_text(path), negations=self._table.negations) if name in config else None
            yield from self._options.cut(inside, kept=self._command.model) if inside else (piece,)

    # Switches

    def option_switches(self, pieces: Iterable[Piece]) -> Iterator[Switch]:
        of: dict[str, list[Piece]] = {}
        for piece in pieces:
            if piece.switch and not _is_variable(piece):
                of.setdefault(piece.switch, []).append(piece)
        for name, its in of.items():
            entry = self._options.entry(name, its[0].words[0])
            levels, fixed = option_levels(entry, its)
            yield _switch(name, "option" if len(its) == 1 else "group", levels, entry, fixed)

    def variable_switches(self, environ: Mapping[str, str], pieces: Iterable[Piece]) -> Iterator[Switch]:
        inline = dict(_parted(piece.words[0]) for piece in pieces if _is_variable(piece))
        own = {**dict(self._command.env), **inline}
        of: dict[str, tuple[VariableEntry, list[_Described]]] = {}
        for name, value in {**environ, **own}.items():
            if entry := self._entry_of(name):
                of.setdefault(_switch_name(name, entry), (entry, []))[1].append(
                    _Described(f"{name}={value}", name in own)
                )
        for name, (entry, its) in of.items():
            if (entry.fixed or entry.own) and not any(one.own for one in its):
                continue
            levels = variable_levels([one.setting for one in its])
            kind = "group" if entry.together else "variable"
            yield _switch(name, kind, levels[:1] if entry.fixed else levels, entry, entry.fixed)

    def feature_switches(self, given: set[str]) -> Iterator[Switch]:
        for one in self._table.features:
            enough = not self._command.ranks or self._command.ranks >= one.ranks
            if enough and not given & {one.name, *one.unless} and in_range(self._version, one.since, one.until):
                yield _switch(one.name, "feature", _feature_levels(one), one, one.fixed)

    def _entry_of(self, variable: str) -> VariableEntry | None:
        fitting = self._table.entries_of(variable)
        return next((one for one in fitting if in_range(self._version, one.since, one.until)), None)


def _is_variable(piece: Piece) -> bool:
    return bool(piece.switch) and not piece.words[0].startswith("-")


def _switch_name(variable: str, entry: VariableEntry) -> str:
    return entry.name if entry.together else f"{VARIABLE}{variable}"


def _feature_levels(feature: FeatureEntry) -> tuple[Level, ...]:
    off = " ".join((*feature.variables, *feature.words))
    return (
        Level(label=f"{feature.name} (on by default)"),
        Level(label=off, words=feature.words, variables=feature.variables),
    )


def _switch(name: str, kind: str, levels: tuple[Level, ...], entry: Entry, fixed: str) -> Switch:
    return Switch(
        name=name,
        kind=kind,
        levels=levels,
        needs=entry.needs,
        conflicts=entry.conflicts,
        effects=entry.effects,
        prior=entry.prior,
        suspects=entry.suspects,
        phases=tuple(entry.phases),
        fixed=fixed,
    )
