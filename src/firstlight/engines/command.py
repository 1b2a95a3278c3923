"""What a command line says of the server it would start: the engine, the port, the model, the ranks."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from firstlight.core.server import ServerCommand
from firstlight.engines.options import Options, config_options, number, positional, read_options, whole, word
from firstlight.engines.ranks import Sizes
from firstlight.engines.table import ENGINES, EngineTable, Program, table
from firstlight.engines.words import assignments, find_launch, shell_commands, split_environment

_HOST_PORT = re.compile(r"(?:\w+://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]*):(?P<port>\d{1,5})/?")
_LAUNCHER_RANKS = ("--nproc-per-node", "--nproc_per_node", "-np", "-n")
_LAUNCHERS = frozenset({"torchrun", "mpirun", "mpiexec"})
_TORCHRUN_MODULE = "-m torch.distributed.run"
_PORT_MAX = 65535


class _Launch(NamedTuple):
    """The engine's own words within a command, and what stands before them."""

    engine: EngineTable
    before: tuple[str, ...]
    arguments: tuple[str, ...]


def recognise(argv: Sequence[str], environ: Mapping[str, str]) -> ServerCommand:
    """Read a command line. What it does not say stays empty; a command of no known engine is "generic".

    The engine's words are found behind variables (`A=b cmd`, `env A=b cmd`), behind wrappers (uv run, numactl,
    mpirun) and inside `bash -c`. A YAML file named by `--config` is read as far as it is flat. `environ` is the
    environment that the server will run in, before the command's own variables.
    """
    front, command = split_environment(argv)
    launch = _find(command)
    env = front | assignments(launch.before)
    options = _options(launch)
    engine = launch.engine
    host, port = _address(launch, options, env)
    return ServerCommand(
        engine=engine.name,
        argv=command,
        host=_reachable(host),
        port=port,
        model=(positional(launch.arguments) if engine.launch else "") or word(options, "model"),
        served_name=word(options, "served_name"),
        api_key=_api_key(engine, options, {**environ, **env}),
        ranks=_ranks(launch, options),
        nodes=max(1, number(options, "nodes", 1)),
        node=number(options, "node", 0),
        env=tuple(front.items()),
    )


def layout(command: ServerCommand) -> Sizes:
    """How the ranks of a recognised command are laid out; unknown for a generic one."""
    launch = _find(command.argv)
    if not launch.engine.launch:
        return Sizes()
    options = _options(launch)
    return Sizes(number(options, "tp", 1), number(options, "pp", 1), data_inside="dp_inside_tp" in options)


def engine_words(command: ServerCommand) -> tuple[str, ...]:
    """The engine's own words within a recognised command: its arguments, without wrappers in front."""
    return _find(command.argv).arguments


def _find(command: tuple[str, ...]) -> _Launch:
    shells = shell_commands(command)
    for words in (*shells, command):
        for name in ENGINES:
            for phrase in table(name).launch:
                if found := find_launch(words, phrase):
                    return _Launch(table(name), words[: found.begin], words[found.arguments :])
    words = shells[-1] if shells else command
    if words and words[0].rpartition("/")[2] == "env":
        words = words[1:]
    _, rest = split_environment(words)
    return _Launch(table("generic"), words[: len(words) - len(rest)], rest)


def _options(launch: _Launch) -> Options:
    names = launch.engine.options
    options = read_options(launch.arguments, names)
    config = word(options, "config")
    return config_options(config, names) | options if config else options


def _address(launch: _Launch, options: Options, env: Mapping[str, str]) -> tuple[str, int]:
    host = word(options, "host")
    port = number(options, "port", -1)
    if port < 0 and (together := _HOST_PORT.fullmatch(word(options, "address"))):
        host, port = together["host"].strip("[]"), int(together["port"])
    if port < 0 and not launch.engine.launch:
        port = _generic_port(launch.arguments, env)
    if port < 0:
        port = launch.engine.default_port
    return host, port if port <= _PORT_MAX else 0


def _generic_port(words: tuple[str, ...], env: Mapping[str, str]) -> int:
    """From a variable PORT in front of the command, or from what its program is known to do."""
    if told := whole(env.get("PORT", "")):
        return told
    for program in table("generic").programs:
        if found := find_launch(words, program.launch):
            return _positional_port(words[found.arguments :], program)
    return -1


def _positional_port(arguments: tuple[str, ...], program: Program) -> int:
    return (whole(positional(arguments)) if program.positional else 0) or program.port


def _reachable(host: str) -> str:
    """Where a client on this machine reaches a server that listens on `host`."""
    host = host.strip("[]")
    if host in {"", "0.0.0.0", "*"}:
        return "127.0.0.1"
    return "::1" if host == "::" else host


def _api_key(engine: EngineTable, options: Options, env: Mapping[str, str]) -> str:
    """FIRSTLIGHT_API_KEY is what the user tells us, and wins over what the server's own command says."""
    told = env.get("FIRSTLIGHT_API_KEY", "")
    in_environment = next((env[name] for name in engine.api_key_variables if env.get(name)), "")
    return told or word(options, "api_key") or in_environment


def _ranks(launch: _Launch, options: Options) -> int:
    """Workers on this node; 0 if unknown."""
    if not launch.engine.launch:
        return _launcher_ranks(launch.arguments)
    per_copy = number(options, "tp", 1) * number(options, "pp", 1) * number(options, "cp", 1)
    nodes = number(options, "nodes", 1) or 1
    if "dp_inside_tp" in options or "dp_rank" in options:
        copies = 1
    else:
        copies = number(options, "dp_local", number(options, "dp", 1))
    return max(1, per_copy // nodes) * copies if per_copy and copies else 0


def _launcher_ranks(words: tuple[str, ...]) -> int:
    """What torchrun or mpirun is told; 0 for any other command."""
    if not words or not (words[0].rpartition("/")[2] in _LAUNCHERS or find_launch(words, _TORCHRUN_MODULE)):
        return 0
    for index, text in enumerate(words):
        name, equals, value = text.partition("=")
        if name in _LAUNCHER_RANKS:
            value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
            return whole(value)
    return 0
