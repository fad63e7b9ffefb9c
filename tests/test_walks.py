"""The walks in the architecture page are what the program does."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.called import called_modules
from support.cli_runs import environment
from support.pages import running
from support.recordings import config_dir
from support.replays import recording_ground

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
FILES_MAX = 12
TRACED = """
import json, sys
sys.path.insert(0, {support!r})
from support.called import called_modules
with called_modules() as called:
    try:
        {program}
    except SystemExit:
        pass
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
    modules = set()
    for node in ast.walk(ast.parse((SOURCE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flightlog"):
            base = node.module.partition(".")[2].replace(".", "/")
            modules |= {base, *(f"{base}/{alias.name}".strip("/") for alias in node.names)}
    return modules


@pytest.mark.parametrize("title", WALKS)
def test_walk_names_at_most_twelve_files_that_exist(title):
    named = WALKS[title]

    assert 3 <= len(named) <= FILES_MAX
    assert [
        module for line in named for module in line if not (SOURCE / f"{module}.py").is_file()
    ] == []


def run_traced(program, environ, *words, stdin=""):
    """Run Python code as a program of its own; return the modules it called, in order."""
    script = TRACED.format(support=str(ROOT / "tests"), program=program)
    ran = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=environ, input=stdin, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(ran.stderr.splitlines()[-1])


RUN_COMMAND = "from flightlog.cli import main; main()"


def in_order(called, expected):
    return [module for module in called if module in expected]


def test_usage_report_calls_the_files_of_its_walk_in_order(tmp_path):
    expected = [line[0] for line in WALKS["flightlog session usage --by day"]]
    config = config_dir(tmp_path, "2.1.325/multi-turn-tools")

    called = run_traced(RUN_COMMAND, environment(config), "session", "usage", "--by", "day")

    assert in_order(called, expected) == expected


def test_hook_event_reaches_the_page_through_the_files_of_its_walk(tmp_path):
    expected = [line[0] for line in WALKS["From a hook event to a web page"]]
    config = config_dir(tmp_path, "2.1.325/multi-turn-tools")
    transcript = next(config.glob("projects/*/*.jsonl"))
    session, home = transcript.stem, tmp_path / "flightlog"
    event = {"hook_event_name": "Stop", "session_id": session, "transcript_path": str(transcript)}
    environ = environment(config) | {"FLIGHTLOG_HOME": str(home)}

    hook = run_traced(
        "from flightlog.hooks import recorder; recorder.main([])",
        environ, stdin=json.dumps(event),
    )  # fmt: skip
    settle = run_traced(RUN_COMMAND, environ, "settle", session)
    with called_modules() as page, running(config, data_dir=home) as pages:
        pages.ask("/search?q=greeting")  # waits until the server has read the list of sessions
        page.clear()
        assert pages.ask(f"/sessions/{session}").status == 200

    assert in_order(hook, expected[:3]) == expected[:3]
    assert in_order(settle, expected[3:6]) == expected[3:6]
    assert in_order(page, expected[6:]) == expected[6:]


def test_replay_calls_the_files_of_its_walk_in_order(tmp_path):
    expected = [line[0] for line in WALKS["harness replay RUN --turn 7"]]
    with recording_ground(tmp_path) as ground:
        words = ["lab", "replay", str(tmp_path / "runs" / "run"), "--turn", "7"]

        called = run_traced(RUN_COMMAND, ground.env, *words)

    assert in_order(called, expected) == expected
