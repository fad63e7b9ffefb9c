"""The table of slow tests, and that a soak sees what is lost and what is left behind."""

import os
import subprocess
import sys
from pathlib import Path

from tools.soak.ground import MARK, find_leftover_processes
from tools.soak.table import rows

ROOT = Path(__file__).parents[2]


def write_report(tmp_path, body):
    path = tmp_path / "soak.xml"
    path.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    return path


def test_the_longest_comes_first_and_a_failure_is_the_exit_code(tmp_path):
    ok = '<testcase classname="a" name="quick" time="1.5"/>'
    bad = '<testcase classname="b" name="slow" time="90"><failure message="x"/></testcase>'
    path = write_report(tmp_path, ok + bad)

    assert [row[0] for row in rows(path)] == ["b::slow", "a::quick"]
    done = subprocess.run([sys.executable, "-m", "tools.soak.table", path], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 1
    assert "1 of 2 passed" in done.stdout
    none = subprocess.run([sys.executable, "-m", "tools.soak.table", write_report(tmp_path, "")], cwd=ROOT, check=False,
                          capture_output=True)  # fmt: skip
    assert none.returncode == 1, "nothing ran is no success"


def test_process_that_is_left_behind_is_reported():
    child = subprocess.Popen(["sleep", "30"], env={"PATH": os.environ["PATH"], MARK: "here"})
    try:
        assert [line.split()[0] for line in find_leftover_processes("here")] == [str(child.pid)]
        assert find_leftover_processes("elsewhere") == []
    finally:
        child.kill()
        child.wait()
