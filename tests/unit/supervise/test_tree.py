"""Every process of a server is known, however it forks; strangers and the dead are not."""

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from firstlight import procfs
from firstlight.core.vocabulary import Role
from firstlight.supervise.processes.slow_reads import STUCK_S, Reader
from firstlight.supervise.processes.tree import ProcessTree, TreeChange


@dataclass
class Who:
    role: Role
    name: str
    label: str = ""
    rank: int = -1


def identify(cmdline, comm):
    return Who(Role.WORKER if "sleep" in cmdline else Role.OTHER, " ".join(cmdline)[:30] or comm)


@pytest.fixture
def tree_of(clock):
    trees = []

    def build(root, reapers=()):
        trees.append(ProcessTree(root, clock, reapers=reapers, identify=identify))
        return trees[-1]

    yield build
    for tree in trees:
        tree.close()


@pytest.fixture
def stranger():
    """A server that was not launched but runs already, in a session of its own."""
    started = []

    def run(*argv):
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, start_new_session=True, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def names(tree):
    return sorted(process.name for process in tree.processes.values())


def test_children_are_found_with_their_titles_and_what_these_mean(start, tree_of, eventually):
    server = start.command("bash", "-c", "sleep 601 & sleep 602 & wait")
    tree = tree_of(server.root, server.reapers)
    eventually(lambda: tree.refresh() and {"sleep 601", "sleep 602"} <= set(names(tree)), "both children")
    assert len(tree.processes) == 3
    roles = {process.name: process.role for process in tree.processes.values()}
    assert roles["sleep 601"] == Role.WORKER
    assert tree.processes[server.root].cmdline[0] == "bash"


def test_who_forks_twice_into_a_session_of_its_own_is_found_by_its_reaper(start, tree_of, eventually):
    server = start.command("bash", "-c", "(setsid setsid sleep 603 &); sleep 604")
    tree = tree_of(server.root, server.reapers)
    eventually(lambda: tree.refresh() and "sleep 603" in names(tree), "the grandchild")


def test_a_server_whose_root_has_gone_is_known_by_those_who_serve_on(start, tree_of, eventually):
    """It daemonises: forks, leaves the session, forks again, and its first process exits with 0."""
    server = start.python(
        "import os, time\nif os.fork():\n  time.sleep(0.1); os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "if not os.fork(): os.execlp('sleep', 'sleep', '613')\nos.execlp('sleep', 'sleep', '614')"
    )
    tree = tree_of(server.root, server.reapers)
    gone = []
    eventually(lambda: gone.extend(tree.refresh().gone) or server.root in gone, "the root's end")
    eventually(lambda: tree.refresh() and names(tree) == ["sleep 613", "sleep 614"], "the daemon and its child")
    late = next(id_ for id_ in tree.processes if tree.processes[id_].name == "sleep 614")
    os.kill(late.pid, signal.SIGKILL)
    eventually(lambda: tree.refresh() and names(tree) == ["sleep 613"], "the daemon's end")


def test_appearing_and_going_are_each_told_once(start, tree_of, eventually):
    server = start.python(
        "import os\npid = os.fork() or os.execlp('sleep', 'sleep', '605')\nos.waitpid(pid, 0)\n"
        "os.execlp('sleep', 'sleep', '606')"
    )
    tree = tree_of(server.root, server.reapers)
    appeared = []
    eventually(lambda: appeared.extend(tree.refresh().appeared) or len(appeared) == 2, "both processes")
    child = next(process.id for process in appeared if process.id != server.root)
    eventually(lambda: procfs.cmdline(child.pid) == ("sleep", "605"), "the exec")
    os.kill(child.pid, signal.SIGKILL)
    gone = []
    eventually(lambda: gone.extend(tree.refresh().gone) or gone, "the end of the child")
    assert gone == [child]
    assert tree.refresh().gone == ()
    assert child not in tree.processes
    assert tree.known(child).id == child


def test_a_zombie_counts_as_gone_once_although_its_parent_never_looks(start, tree_of, eventually):
    server = start.python("import os, time\nif os.fork() == 0:\n  os._exit(3)\nprint('forked'); time.sleep(600)")
    eventually(lambda: "forked" in start.log(), "the fork")
    tree = tree_of(server.root, server.reapers)
    changes = []
    eventually(lambda: changes.append(tree.refresh()) or any(change.gone for change in changes), "the zombie")
    tree.refresh()
    changes.append(tree.refresh())
    assert sum(len(change.gone) for change in changes) == 1
    assert sum(len(change.appeared) for change in changes) == 2
    assert list(tree.processes) == [server.root]


def test_one_seen_alive_that_stays_on_as_a_zombie_is_gone_once(start, tree_of, eventually):
    server = start.python(
        "import os, time\nos.fork() or os.execlp('sleep', 'sleep', '612')\nprint('forked'); time.sleep(600)"
    )
    tree = tree_of(server.root, server.reapers)
    eventually(lambda: tree.refresh() and "sleep 612" in names(tree), "the child")
    child = next(id_ for id_ in tree.processes if id_ != server.root)
    os.kill(child.pid, signal.SIGKILL)
    changes = []
    eventually(lambda: changes.append(tree.refresh()) or changes[-1].gone, "the end of the child")
    changes.append(tree.refresh())
    assert [change.gone for change in changes if change.gone] == [(child,)]
    assert not any(change.appeared for change in changes)


def test_a_process_that_renames_itself_is_told_as_changed(start, tree_of, eventually):
    server = start.python(
        "import os, time\nprint('up')\nwhile not os.path.exists('rename'): time.sleep(0.01)\n"
        "os.execlp('sleep', 'VLLM::EngineCore', '607')",
        cwd=start.folder,
    )
    tree = tree_of(server.root, server.reapers)
    eventually(lambda: "up" in start.log() and tree.refresh() and len(tree.processes) == 1, "the server")
    (start.folder / "rename").touch()
    changed = {}
    eventually(
        lambda: changed.update({p.name: p.id for p in tree.refresh().changed}) or "VLLM::EngineCore 607" in changed,
        "the new title",
    )
    assert changed["VLLM::EngineCore 607"] == server.root


def test_a_running_server_is_followed_without_being_its_parent(tree_of, stranger, eventually):
    server = stranger("bash", "-c", "(sleep 608 &); sleep 609 & wait")
    tree = tree_of(procfs.stat(server.pid).id)
    eventually(lambda: tree.refresh() and {"sleep 608", "sleep 609"} <= set(names(tree)), "child and orphan")
    for id_ in tree.processes:
        os.kill(id_.pid, signal.SIGKILL)


def test_the_session_that_a_server_was_started_in_is_not_its_own(tree_of, stranger):
    shell = stranger(
        sys.executable,
        "-c",
        "import subprocess\nfor _ in 1, 2: print(subprocess.Popen(['sleep', '610']).pid, flush=True)\ninput()",
    )
    first, second = int(shell.stdout.readline()), int(shell.stdout.readline())
    tree = tree_of(procfs.stat(first).id)
    tree.refresh()
    assert [id_.pid for id_ in tree.processes] == [first]
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_gone_leaves_an_empty_tree(tree_of, stranger):
    server = stranger("sleep", "611")
    root = procfs.stat(server.pid).id
    tree = tree_of(root)
    assert [process.id for process in tree.refresh().appeared] == [root]
    server.kill()
    server.wait()
    assert tree.refresh().gone == (root,)
    assert tree.processes == {}


def test_with_no_descriptor_left_nobody_counts_as_gone(start, tree_of, eventually):
    server = start.command("sleep", "615")
    tree = tree_of(server.root, server.reapers)
    eventually(lambda: tree.refresh() and list(tree.processes) == [server.root], "the server")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        change = tree.refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert change == TreeChange()
    assert list(tree.processes) == [server.root]


def test_a_read_that_never_comes_back_is_given_up_and_the_others_go_on(clock, eventually):
    never = threading.Event()

    def read(key):
        if key == "stuck":
            never.wait(60)
        if key == "refused":
            raise PermissionError
        return key.upper()

    reader = Reader(read, clock, "a test")
    for key in ("one", "stuck", "two", "refused"):
        reader.ask(key)
    answers = {}
    eventually(lambda: answers.update(reader.answers(wait_s=STUCK_S / 10)) or "two" in answers, "the one behind")
    assert answers == {"one": "ONE", "two": "TWO"}
    assert reader.stuck == {"stuck"}
    reader.ask("stuck")
    assert reader.answers() == {}
    never.set()
    reader.close()
