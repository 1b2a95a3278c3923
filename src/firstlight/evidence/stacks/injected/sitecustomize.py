"""Lets a Python process of the server answer SIGUSR2 with its stacks, where firstlight may not read them itself.

Python imports this at its start because firstlight put the folder first on PYTHONPATH; only for a server that it
launched, and only on a machine where reading other processes is refused. It costs one open file, and nothing more
until it is asked. The file is FOLDER/PID-STARTED; its first line tells the descriptor and the main thread.

Runs in the server's interpreter, whichever that is: any Python 3, built-in modules only, and it must never fail.
Whatever other sitecustomize there is runs afterwards, as it would have without this one.
"""

import os
import sys


def _answer_signals() -> None:
    import _signal  # type: ignore[import-not-found,unused-ignore]
    import _thread
    import faulthandler

    folder = os.environ["FIRSTLIGHT_DUMPS"]
    if not folder.startswith("/"):
        return  # nowhere; the server's own folder is none of ours
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib costs more than all the rest
        started = file.read().rpartition(b")")[2].split()[19].decode()
    path = os.path.join(folder, "%d-%s" % (os.getpid(), started))  # noqa: PTH118, UP031
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(_signal.SIGUSR2, file=fd, all_threads=True, chain=False)
    os.write(fd, b"firstlight fd=%d main=%#x\n" % (fd, _thread.get_ident()))


def _try_to_answer() -> None:
    try:  # noqa: SIM105 - contextlib costs more than all the rest
        _answer_signals()
    except Exception:  # noqa: BLE001, S110 - the server comes first; without the file nobody will signal it
        pass


def _run_the_other() -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    ours = sys.modules.pop(__name__)
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [folder for folder in sys.path if folder != here]
    try:
        import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:0] = [here]
        sys.modules.setdefault(__name__, ours)


_try_to_answer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_try_to_answer)
_run_the_other()
