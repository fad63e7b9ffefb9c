"""The walks in the architecture page are what the program does."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli_runs import environment
from support.recordings import config_dir

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
FILES_MAX = 12
TRACED = """
import json, sys
from flightlog.cli import main
called = []
def note(frame, event, _):
    is_function = frame.f_code.co_flags & 1  # bodies of modules and classes are no calls
    if event == "call" and is_function and "/flightlog/" in (name := frame.f_code.co_filename):
        module = name.rpartition("/flightlog/")[2].removesuffix(".py")
        if module not in called:
            called.append(module)
sys.setprofile(note)
try:
    main()
except SystemExit:
    sys.setprofile(None)
    print(json.dumps(called), file=sys.stderr)
"""


def walks():
    """Return each walk as its title and the modules of its numbered lines, the main one of each line first."""
    text = PAGE.read_text("utf-8").partition("## Three walks")[2].partition("\n## ")[0]
    parts = re.split(r"^[*][*](.+?)[*][*]", text, flags=re.MULTILINE)[1:]
    titles = [title.strip("`") for title in parts[::2]]
    lines = [re.findall(r"^\d+[.] (.*)$", body, flags=re.MULTILINE) for body in parts[1::2]]
    return {
        title: [re.findall(r"`([a-z_]+/[a-z_/]+)`", line) for line in body]
        for title, body in zip(titles, lines, strict=True)
    }


WALKS = walks()


def imports(module):
    """Return the modules that a module imports, as paths below the package."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flightlog"):
            base = node.module.partition(".")[2].replace(".", "/")
            found |= {base, *(f"{base}/{alias.name}".strip("/") for alias in node.names)}
    return found


@pytest.mark.parametrize("title", WALKS)
def test_walk_names_at_most_twelve_files_that_exist(title):
    named = WALKS[title]

    assert 3 <= len(named) <= FILES_MAX
    assert [
        module for line in named for module in line if not (SOURCE / f"{module}.py").is_file()
    ] == []


def test_usage_report_calls_the_files_of_its_walk_in_order(tmp_path):
    expected = [line[0] for line in WALKS["flightlog session usage --by day"]]
    config = config_dir(tmp_path, "2.1.325/multi-turn-tools")

    ran = subprocess.run(
        [sys.executable, "-c", TRACED, "session", "usage", "--by", "day"],
        env=environment(config), capture_output=True, text=True, check=True,
    )  # fmt: skip

    called = json.loads(ran.stderr.splitlines()[-1])
    assert [module for module in called if module in expected] == expected
