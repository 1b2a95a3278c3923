"""The birth of the server: fork, a session of its own, exec, and the exact reason if that fails.

Part of the guard: standard library only.
"""

import errno
import os
import signal
from typing import Any, NoReturn

from firstlight.supervise.launch.polling import wait_for

EXEC_S = 25.0
"""How long an exec may take (a program on a slow network disk) before it counts as failed."""


def run_server(start: dict[str, Any]) -> int:
    """Fork and exec the server; its pid.

    Raises:
        OSError: as the exec, or the change of folder, failed; `filename` says which of the two.
    """
    report, reported = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_server(start, reported)
    os.close(reported)
    try:
        ready = wait_for([report], EXEC_S)
        failure = os.read(report, 4096).decode() if ready else f"{errno.ETIMEDOUT} exec"
    finally:
        os.close(report)
    if failure:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        number, _, where = failure.partition(" ")
        raise OSError(int(number), os.strerror(int(number)), where)
    return pid


def _become_server(start: dict[str, Any], report: int) -> NoReturn:
    """In the child: a session of its own, no input, the pipes as output, every signal as at birth; then exec."""
    where = "exec"
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the two that Python ignores at its start
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(start["stdout"]["write_end"], 1)
        os.dup2(start["stderr"]["write_end"], 2)
        where = "chdir"
        os.chdir(start["cwd"])
        where = "exec"
        os.execvpe(start["argv"][0], start["argv"], start["env"])
    except OSError as error:
        os.write(report, f"{error.errno} {where}".encode())
    except BaseException:  # noqa: BLE001 - nothing may return into the guard's code from here
        os.write(report, f"{errno.EINVAL} {where}".encode())
    os._exit(127)
