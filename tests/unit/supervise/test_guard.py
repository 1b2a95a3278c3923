"""The guard leaves nothing of a server behind and loses nothing of its log, whoever is killed, and whenever."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.supervise.pump import SPARE_BYTES

COUNTS_FOR_EVER = """
import itertools, signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
for n in itertools.count():
    print(f"line {n} of a log that grows and grows")
    if asked:
        break
print("bye")
"""

DRIVER = """
import sys, time
from pathlib import Path
from firstlight.clock import SystemClock
from firstlight.core.server import ServerCommand
from firstlight.supervise.launch import launch
folder, run, what, source = sys.argv[1:]
print("go", flush=True)
server = launch(
    ServerCommand(engine="generic", argv=(sys.executable, "-u", "-c", source)), Path(folder), SystemClock(), run=run
)
if what == "release":
    assert server.release()
print(server.root.pid, flush=True)
if what == "wait":
    time.sleep(600)
"""


def drive(start, what, source):
    """firstlight as a process of its own, to be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(start.folder), start.run, what, source], stdout=subprocess.PIPE
    )


def assert_counts_without_a_gap(log, last=None):
    lines = log.splitlines()
    if last is not None:
        assert lines.pop() == last
    assert lines
    for n, line in enumerate(lines):
        assert line == f"line {n} of a log that grows and grows"


def test_a_killed_firstlight_leaves_nothing_and_the_log_is_whole(start, eventually):
    with drive(start, "wait", COUNTS_FOR_EVER) as driver:
        assert driver.stdout.readline() == b"go\n"
        assert int(driver.stdout.readline()) in start.living()
        eventually(lambda: len(start.log()) > 10_000, "a log that grows")
        driver.kill()
    eventually(lambda: not start.living(), "the end of everything")
    assert_counts_without_a_gap(start.log(), last="bye")


@pytest.mark.parametrize("moment_ms", [0, 1, 2, 4, 6, 9, 12, 15, 18, 21, 25, 30, 36, 45, 60])
def test_firstlight_killed_at_any_moment_of_the_launch_leaves_nothing(start, eventually, moment_ms):
    with drive(start, "wait", "import time; time.sleep(600)") as driver:
        assert driver.stdout.readline() == b"go\n"
        time.sleep(moment_ms / 1000)
        driver.kill()
    eventually(lambda: not start.living(), "the end of everything")


def test_a_released_server_stays_with_its_log_kept_until_it_ends(start, eventually):
    source = "import sys, time\nprint('first')\nsys.stdin.read()\ntime.sleep(0.3)\nprint('later')\ntime.sleep(600)"
    with drive(start, "release", source) as driver:
        assert driver.stdout.readline() == b"go\n"
        root = int(driver.stdout.readline())
    assert driver.returncode == 0
    eventually(lambda: "later" in start.log(), "a line written after firstlight had gone")
    assert len(start.living()) == 2
    os.kill(root, signal.SIGKILL)
    eventually(lambda: not start.living(), "the guard's own end")
    exits = [json.loads(line) for line in (start.folder / "exits.jsonl").read_text().splitlines()]
    assert [(exit_["pid"], exit_["status"], exit_["root"]) for exit_ in exits] == [(root, 9, True)]


def test_firstlight_started_without_stdin_and_stderr_loses_no_pipe(start, eventually):
    arguments = [sys.executable, "-c", DRIVER, str(start.folder), start.run, "release", "print('all there')"]
    output = subprocess.run(
        ["bash", "-c", 'exec "$@" <&- 2>&-', "bash", *arguments], stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert output.stdout.startswith(b"go\n")
    eventually(lambda: start.log() == "all there\n", "the log")
    eventually(lambda: not start.living(), "the end of everything")


def test_sigterm_to_the_guard_ends_the_tree(start, eventually):
    server = start.python("print('up'); import time; time.sleep(600)")
    eventually(lambda: "up" in start.log(), "the server")
    os.kill(server.guard, signal.SIGTERM)
    eventually(lambda: server.root.pid not in start.living(), "the server's end")


def test_a_killed_guard_loses_nothing_of_the_log_and_the_server_can_still_be_ended(start, eventually):
    server = start.python(COUNTS_FOR_EVER)
    eventually(lambda: len(start.log()) > 10_000, "a log that grows")
    os.kill(server.guard, signal.SIGKILL)
    eventually(lambda: server.guard_lost, "the take-over")
    size = len(start.log())
    eventually(lambda: len(start.log()) > size + 100_000, "a log that goes on growing")
    result = server.stop(10)
    assert (result.asked, result.killed, result.left) == (1, 0, ())
    assert start.living() == []
    assert_counts_without_a_gap(start.log(), last="bye")
    assert any(gap.what == "the guard of the server" for gap in server.gaps)


def test_after_the_guard_only_the_servers_processes_are_ended(start, eventually):
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        server = start.command("bash", "-c", "(setsid setsid sleep 600 &); echo up; sleep 600")
        eventually(lambda: "up" in start.log(), "the server")
        os.kill(server.guard, signal.SIGKILL)
        eventually(lambda: server.guard_lost, "the take-over")
        assert server.stop(5).left == ()
        assert start.living() == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_log_file_that_refuses_every_byte_does_not_stop_the_server(start, eventually):
    (start.folder / "stdout.log").symlink_to("/dev/full")
    server = start.python(f"print('word ' * {SPARE_BYTES // 4}); print('done', file=__import__('sys').stderr)")
    eventually(lambda: "done" in (start.folder / "stderr.log").read_text(), "the server's last line")
    server.stop(1)
    server.poll()
    gap = next(gap for gap in server.gaps if "stdout.log" in gap.what)
    assert "No space left on device" in gap.detail


def test_what_the_file_refuses_is_still_followed(start, eventually):
    (start.folder / "stdout.log").symlink_to("/dev/full")
    server = start.python("print('Loading weights'); import time; time.sleep(600)")
    lines = []
    eventually(lambda: lines.extend(line for f in server.followers() for line in f.read()) or lines, "the line")
    assert [line.text for line in lines] == ["Loading weights"]


def test_a_file_that_refused_is_tried_again(start, eventually):
    server = start.python("import sys\nprint('up')\nfor word in iter(lambda: len(sys.argv), 9): print('x' * 999)")
    eventually(lambda: "up" in start.log(), "the server")
    resource.prlimit(server.guard, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    eventually(lambda: (server.poll(), server.gaps)[1], "the report that the file is full")
    size = len(start.log())
    resource.prlimit(server.guard, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: len(start.log()) > size, "a file that grows again")


def test_two_hundred_megabytes_of_log_arrive_whole(start, eventually):
    server = start.command("bash", "-c", "yes 'a line of a log that will not end' | head -c 200000000; echo end >&2")
    eventually(lambda: "end" in (start.folder / "stderr.log").read_text(), "the writer's end")
    server.stop(5)
    assert (start.folder / "stdout.log").stat().st_size == 200_000_000


def test_neither_command_nor_environment_show_in_the_guards_command_line(start):
    server = start.command("sleep", "600", environ={**os.environ, "HF_TOKEN": "hf_verysecret"})
    assert procfs.cmdline(server.guard) == (f"firstlight guard {start.run}",)
    assert procfs.environ(server.root.pid)["HF_TOKEN"] == "hf_verysecret"


def test_the_server_is_born_as_if_from_a_shell(start, eventually):
    start.python(
        "import os\nprint(sorted(map(int, os.listdir('/proc/self/fd'))), os.readlink('/proc/self/fd/0'))\n"
        "print(os.getsid(0) == os.getpgrp() == os.getpid(), flush=True)\n"
        "os.execvp('grep', ['grep', '-E', 'Sig(Blk|Ign)', '/proc/self/status'])"
    )
    eventually(lambda: start.log().count("\n") == 4, "four lines")
    fds, leads, blocked, ignored = start.log().splitlines()
    assert fds == "[0, 1, 2, 3] /dev/null"  # 3 is the listing itself
    assert leads == "True"
    # The interpreter that printed has itself ignored SIGPIPE (13) and SIGXFSZ (25) since its start.
    assert int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & ~(1 << 12 | 1 << 24) == 0


def test_the_guard_imports_nothing_but_the_standard_library():
    root = Path(procfs.__file__).parents[1]
    source = f"import sys; sys.path.append({str(root)!r}); import firstlight.supervise.guard; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, check=True, timeout=60)
    foreign = {name.partition(".")[0] for name in output.stdout.decode().split()} - set(sys.stdlib_module_names)
    assert foreign == {"firstlight", "__main__"}
