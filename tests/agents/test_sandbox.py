import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flightlog.agents.process import find_descendants
from flightlog.agents.sandbox import (
    BindMount,
    IsolationMode,
    isolation_prefix,
    parent_death_prefix,
    probe_isolation,
)
from support.unprivileged import run_unprivileged
from support.waiting import alive, command_line, until

PATH = os.environ["PATH"]
TELL = "cat who; pwd; id -u; echo made > made"


@pytest.fixture
def place():
    """A shared path and two private trees, where any user can get at them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder)
        for name in ("shared", "one", "two"):
            (root / name).mkdir()
            (root / name / "who").write_text(f"{name}\n")
        for path in (root, *root.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        yield root


def run_inside(place, private, mode=None):
    mounts = [BindMount(place / private, place / "shared")]
    before = isolation_prefix(mode or probe_isolation(PATH), mounts, place / "shared")
    ran = subprocess.run(
        [*before, "sh", "-c", TELL],
        cwd=place / "shared",
        capture_output=True,
        text=True,
        check=False,
    )
    return (ran.returncode, *ran.stdout.split())


def test_each_agent_sees_its_own_tree_at_the_shared_path(place):
    answers = [run_inside(place, name) for name in ("one", "two")]

    assert answers == [
        (0, name, str(place / "shared"), str(os.getuid())) for name in ("one", "two")
    ]
    assert (place / "one" / "made").read_text() == (place / "two" / "made").read_text() == "made\n"
    assert [path.name for path in (place / "shared").iterdir()] == ["who"]


def test_ordinary_user_gets_a_sandbox_and_keeps_its_identity(place):
    code, who, where, user = run_unprivileged(lambda: run_inside(place, "one"))

    assert (code, who, where) == (0, "one", str(place / "shared"))
    assert user == str(65534 if os.getuid() == 0 else os.getuid())
    assert (place / "one" / "made").exists()


def test_user_namespace_gives_a_sandbox_and_keeps_the_identity(place):
    answer = run_inside(place, "one", IsolationMode.USER)

    assert answer == (0, "one", str(place / "shared"), str(os.getuid()))
    assert [path.name for path in (place / "shared").iterdir()] == ["who"]


def test_sandbox_ends_with_its_parent_however_that_ends(place):
    program = (
        "import subprocess, sys; from pathlib import Path; from flightlog.agents.sandbox import *; "
        "prefix = isolation_prefix(probe_isolation(sys.argv[1]), (), Path('/')); "
        "subprocess.run([*prefix, 'sh', '-c', 'setsid sleep 4242 & sleep 4243'])"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, PATH])
    family = until(lambda: sleeping(starter.pid))

    starter.send_signal(signal.SIGKILL)
    starter.wait()

    until(lambda: not [pid for pid in family if alive(pid)])


def sleeping(pid):
    """Everybody below `pid`, once both sleep."""
    below = find_descendants(pid)
    return (
        below
        if {"sleep 4242", "sleep 4243"} <= {command_line(process).strip() for process in below}
        else None
    )


def test_processes_that_an_agent_left_running_end_with_it(place):
    before = isolation_prefix(
        probe_isolation(PATH), [BindMount(place / "one", place / "shared")], place / "shared"
    )
    script = "setsid sh -c 'sleep 1; echo late > late' & echo gone"

    subprocess.run([*before, "sh", "-c", script], check=True, capture_output=True)

    subprocess.run(["sleep", "1.3"], check=True)
    assert not (place / "one" / "late").exists()


def test_tree_that_cannot_be_mounted_is_an_error(place):
    before = isolation_prefix(
        probe_isolation(PATH), [BindMount(place / "absent", place / "shared")], place / "shared"
    )

    ran = subprocess.run(
        [*before, "sh", "-c", "echo ran"], capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stdout) == (125, "")


def test_missing_programs_mean_no_sandbox(tmp_path):
    assert probe_isolation(str(tmp_path)) is IsolationMode.NONE
    assert parent_death_prefix(str(tmp_path)) == ()
    assert parent_death_prefix(PATH)[0] == "setpriv"
