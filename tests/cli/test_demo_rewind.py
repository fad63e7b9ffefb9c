"""`flightlog demo rewind`, and the verbs it stands for, as a person types them."""

import json
import re
import subprocess
import time
from pathlib import Path

from tools.draw_picture import draw_lines, print_rewind

from support.cli_runs import FLIGHTLOG, flightlog
from support.real_agent import PINNED, agent_program

README_PICTURE = Path(__file__).parents[2] / "docs" / "rewind.svg"

CONFIG = """
model: claude-opus-5-5
engine: scripted
work_dir: work
memory_file: null
scenario: script.yaml
verifiers:
  - {command: test -f b, name: there is b}
  - {python: "raise SystemExit(open('a').read() != 'one\\\\n')", name: a is one}
sessions:
  - {session_index: 1, prompt: make it}
"""
SCRIPT = """
rules:
  - when: {prompt: make it}
    replies:
      - blocks: [{tool: Bash, input: {command: "echo one > a"}}]
      - blocks: [{tool: Bash, input: {command: "echo two > a; curl -s http://127.0.0.1:9/; exit 4"}}]
      - text: done
  - when: {prompt: other way}
    replies:
      - blocks: [{tool: Bash, input: {command: "cp a b"}}]
      - text: done better
"""


def test_demo_with_the_real_client_is_exact_within_half_a_minute(tmp_path):
    began = time.monotonic()

    ran = flightlog(
        tmp_path, "demo", "rewind", "--json", FLIGHTLOG_CLAUDE=str(agent_program(PINNED))
    )

    assert ran.code == 0, ran.err
    assert time.monotonic() - began < 60
    report = json.loads(ran.out)
    assert report["agent"] == "claude_code"
    assert report["replay"]["certificate"]["verdict"] == "exact+prompt"
    assert [
        report[end]["sessions"][0]["verifiers"][0]["passed"] for end in ("source", "branch")
    ] == [
        False,
        True,
    ]
    assert report["comparison"]["side_by_side"]["first_divergence"] == 7


def harness(root, *words):
    command = [FLIGHTLOG.with_name("harness"), *words]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(root)}
    done = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_branches_of_a_failed_run_pass_its_verifiers(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    code, out, err = harness(tmp_path, "run", "run.yaml", "--run-name", "try", "--json")
    assert code == 0, err
    assert [verifier["passed"] for verifier in json.loads(out)["sessions"][0]["verifiers"]] == [
        False,
        False,
    ]

    points = json.loads(harness(tmp_path, "branch-points", "try", "--json")[1])
    assert [(point["turn"], point["kind"]) for point in points] == [(2, "error")]
    assert "error" in harness(tmp_path, "branch-points", "try")[1]
    turns = harness(tmp_path, "replay", "try", "--list-turns")[1]
    assert [line.split()[0] for line in turns.splitlines()] == ["turn", "1", "2", "3"]

    words = ("--turn", "2", "--prompt", "other way", "--count", "2", "--json")
    code, out, err = harness(tmp_path, "replay", "try", *words)

    assert code == 0, err
    branches = json.loads(out)
    assert [branch["replay"]["certificate"]["verdict"] for branch in branches] == [
        "exact+prompt"
    ] * 2
    assert [
        [one["passed"] for one in branch["sessions"][0]["verifiers"]] for branch in branches
    ] == [[True, True]] * 2
    assert not list((tmp_path / "work").iterdir()), "runs and branches work in copies"
    side = harness(tmp_path, "compare", "try", branches[0]["run_name"])[1]
    assert "they diverge in turn 2" in side

    later = json.loads(harness(tmp_path, "replay", "try", "--turn", "3", "--json")[1])[0]["replay"]
    assert [effect["kind"] for effect in later["side_effects_not_restored"]] == ["network"]
    code, _, err = harness(tmp_path, "replay", "try", "--turn", "9")
    assert code == 1
    assert "turns 1 to 3" in err


def test_the_readme_shows_what_the_demo_prints_now():
    """Costs may differ, because paths of other lengths are in the requests."""
    drawn = draw_lines(print_rewind())

    shown = README_PICTURE.read_text("utf-8")
    drawn, drawn_before = (re.sub(r"\$[0-9.]+", "$…", text) for text in (drawn, shown))
    assert drawn == drawn_before, "run: make picture"
    assert "exact+prompt" in shown
