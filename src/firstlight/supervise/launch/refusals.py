"""Why a server could not be started, in words, with the way out."""

import errno
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firstlight.errors import CommandNotFound, FirstlightError, LaunchFailed

_SYSTEM = "Too many processes or too little memory: compare `ulimit -u` and the pids limit of the container."
_GUARD = f"Does `{sys.executable} -I -S -c 'import json, ctypes'` work?"
_COMMAND = "Check the spelling, the PATH, the virtual environment and `chmod +x`."
_FIRST_LINE_MAX = 256
"""The kernel reads no further (BINPRM_BUF_SIZE)."""

_WHY = {
    errno.ENOENT: "there is no such command",
    errno.EACCES: "it may not be executed",
    errno.ENOEXEC: "it is not a program, nor a script whose first line names one",
}


def no_process(number: int) -> LaunchFailed:
    """The system refused to fork."""
    return LaunchFailed(f"no process could be started: {os.strerror(number)}", _SYSTEM)


def no_guard(what: str) -> LaunchFailed:
    """The guard did not do its work."""
    return LaunchFailed(what, _GUARD)


def refusal(fact: dict[str, Any], start: dict[str, Any]) -> FirstlightError:
    """The error that the guard's answer to the start message stands for."""
    if fact["event"] != "failed":
        return no_guard(f"the guard failed: {fact.get('traceback', fact['event'])}")
    if fact["where"] == "fork":
        return no_process(fact["errno"])
    if fact["where"] == "chdir":
        folder = "this folder" if isinstance(start["cwd"], int) else start["cwd"]
        return CommandNotFound(f"cannot run in {folder}: {os.strerror(fact['errno'])}", "Start elsewhere.")
    return CommandNotFound(f"cannot run {start['argv'][0]!r}: {_why(fact['errno'], start)}", _COMMAND)


def foreseen(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Why a command could not be run in this environment and folder; empty if it can, as far as can be seen."""
    program = argv[0]
    path = program if "/" in program else shutil.which(program, os.F_OK, environ.get("PATH", os.defpath))
    start = {"argv": argv, "env": environ, "cwd": 0}
    if path is None or not Path(path).exists():
        why = _why(errno.ENOENT, start)
    elif not os.access(path, os.X_OK) or not Path(path).is_file():
        why = _why(errno.EACCES, start)
    elif (interpreter := _interpreter(path)) and not Path(interpreter).exists():
        why = f"its first line names {interpreter}, which is not there"
    else:
        return ""
    return f"cannot run {program!r}: {why}"


def _interpreter(script: str) -> str:
    """The program that the first line of a script names (execve(2)); empty if it is none."""
    try:
        with Path(script).open("rb") as file:
            first = file.readline(_FIRST_LINE_MAX)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""


def _why(number: int, start: dict[str, Any]) -> str:
    program = start["argv"][0]
    if "/" in program:
        if number == errno.ENOENT and _in_its_folder(program, start["cwd"]).exists():
            return "it is there, but the interpreter that its first line names is not"
    elif number == errno.EACCES and not shutil.which(program, os.F_OK, start["env"].get("PATH")):
        number = errno.ENOENT  # only a folder of the PATH may not be looked into; no program was refused
    return _WHY.get(number, os.strerror(number))


def _in_its_folder(program: str, cwd: str | int) -> Path:
    """Where the program was looked for; a folder without a name is that of firstlight itself."""
    return Path(program) if isinstance(cwd, int) else Path(cwd, program)
