"""`harness …` as a person types it."""

import json
import subprocess

import pytest

from support.cli_runs import FLIGHTLOG, within
from support.labs import apply, environment, lines
from support.recordings import config_dir
from support.sampled import make_run

CONFIG = """
model: claude-opus-5-5
engine: scripted
work_dir: work
tags: [first]
scenario: script.yaml
sessions:
  - {session_index: 1, prompt: make one}
  - {session_index: 2, prompt: make two, count: 2}
"""
SCRIPT = """
rules:
  - replies:
      - blocks: [{tool: Bash, input: {command: "date +%N > made.txt"}}]
      - text: done
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("harness")
    (root / "work").mkdir()
    (root / "run.yaml").write_text(CONFIG)
    (root / "script.yaml").write_text(SCRIPT)
    return root


def harness(root, *words):
    done = subprocess.run(
        [FLIGHTLOG.with_name("harness"), *words],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "HOME": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_run_is_configured_carried_out_and_inspected_by_step(place):
    code, out, err = harness(
        place, "run", "run.yaml", "--run-name", "try", "--tag", "second", "--json"
    )

    meta = json.loads(out)
    assert (code, meta["stop_reason"], meta["tags"]) == (0, "completed", ["first", "second"])
    assert "session_02_r02" in err
    assert "$0.0" in err

    assert json.loads(harness(place, "list", "--json")[1])[0]["run_name"] == "try"
    assert "3/3" in harness(place, "list")[1]
    code, out, _ = harness(place, "inspect", "try#2r2.1")
    assert code == 0
    assert "made.txt" in out
    assert "(exact)" in out
    assert "1 different" in harness(place, "compare", "try")[1]
    code, _, err = harness(place, "inspect", "try#99")
    assert (code, "has no session 99" in err) == (1, True)
    changed = json.loads(harness(place, "inspect", "tr", "--json")[1])["file_changes"]
    assert [change["path"] for change in changed] == ["made.txt"], (
        "the memory file was seeded before the baseline"
    )


@pytest.mark.parametrize("repository", ["absent", "work", "."])
def test_the_command_that_a_run_prints_takes_its_changes_over(repository, tmp_path):
    (tmp_path / "my work").mkdir()
    (tmp_path / "run.yaml").write_text(CONFIG.replace("work_dir: work", "work_dir: my work"))
    (tmp_path / "script.yaml").write_text(SCRIPT)
    if repository != "absent":
        top = tmp_path if repository == "." else tmp_path / "my work"
        subprocess.run(["git", "init", "-q", str(top)], check=True)

    _, _, err = harness(tmp_path, "run", "run.yaml", "--run-name", "try")
    command = err.partition("(its changes: ")[2].strip().removesuffix(")")
    assert not (tmp_path / "my work" / "made.txt").exists()
    subprocess.run(["sh", "-c", command], cwd="/", check=True)

    assert (tmp_path / "my work" / "made.txt").exists()


def test_a_dry_run_says_what_would_be_run_and_makes_nothing(place):
    code, out, err = harness(
        place, "run", "run.yaml", "--run-name", "dry", "--dry-run", "--session-mode", "chained"
    )

    assert code == 0
    assert "session_02_r01" in out
    assert "would run dry, 3 sessions" in err
    assert not (place / "runs" / "dry").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("run",), 2, "either CONFIG or --resume"),
        (("run", "absent.yaml"), 1, "no such configuration"),
        (("run", "bad.yaml"), 4, "did you mean `session_mode`"),
        (("run", "--resume", "absent"), 1, "no such run"),
        (("inspect", "absent"), 1, "no such run"),
        (("inspect", "#1"), 2, "not an address in a run"),
        (("collect",), 2, "name a SESSION"),
    ],
)
def test_impossible_command_is_refused_with_a_next_step(place, words, code, message):
    (place / "bad.yaml").write_text(CONFIG + "session_mod: chained\n")

    got, _, err = harness(place, *words)

    assert (got, message in err) == (code, True), err


def test_recorded_sessions_become_runs_whose_changes_say_they_are_rebuilt(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/multi-turn-tools")

    def collect_runs(*words):
        ran = within(config, "lab", *words, "--runs-dir", str(tmp_path / "runs"), "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    assert [row["status"] for row in collect_runs("collect", "--list")] == ["not collected"]
    assert not (tmp_path / "runs").exists()
    (made,) = collect_runs("collect", "--all", "--projects-dir", str(config))
    assert made["status"] == "collected"
    assert [row["status"] for row in collect_runs("collect", "--all")] == ["there already"]

    entries = lines(tmp_path / "runs" / made["run_name"] / "state_changelog.jsonl")
    assert {entry["rebuilt_from"] for entry in entries} == {"the client's patch"}
    assert {entry["attribution"] for entry in entries} == {None}
    (tmp_path / "again").mkdir()
    for entry in entries:
        apply(tmp_path / "again", entry["diff"].encode(), "-p0")
    assert (tmp_path / "again" / entries[0]["file_path"]).exists()
    meta = collect_runs("inspect", made["run_name"])
    assert "rebuilt" in meta["permission_note"]
    assert meta["total_file_writes"] == len(entries)
    assert collect_runs("inspect", made["run_name"] + "#1.1")["request"] is None


def test_resample_command_sends_recorded_requests_again(tmp_path):
    make_run(tmp_path)
    run = tmp_path / "runs" / "run"

    def harness(*words, stdin=""):
        command = [str(FLIGHTLOG), "lab", *words, "--runs-dir", str(tmp_path / "runs")]
        env = environment(tmp_path)
        return subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    listed = json.loads(harness("resample", "run", "--list-requests", "--json").stdout)
    asked = harness("resample", "run", "--session", "1", "--request", "2", "--count", "2")
    dumped = json.loads(harness("resample-edit", "run", "--request", "2", "--dump").stdout)
    dumped["messages"][1]["content"][0]["thinking"] = "Something else."
    refused = harness(
        "resample-edit", "run", "--request", "2", "--input", "-", stdin=json.dumps(dumped)
    )
    dumped["messages"][1]["content"].pop(0)
    edited = harness(
        "resample-edit", "run", "--request", "2", "--input", "-", "--json", stdin=json.dumps(dumped)
    )
    cold = harness(
        "resample-edit",
        "run",
        "--request",
        "2",
        "--set",
        "temperature=0",
        "--label",
        "cold",
        "--count",
        "1",
    )
    nothing = harness("resample-edit", "run", "--request", "2")
    shown = harness("resample", "run", "--list-requests")

    assert [request["turn"] for request in listed] == [1, 2, 3]
    assert asked.returncode == 0, asked.stderr
    assert "session_01/resamples/request_002" in asked.stdout
    assert "2/2" in asked.stdout
    assert refused.returncode == 2
    assert "thinking" in refused.stderr
    assert json.loads(edited.stdout)["samples"] == 5
    assert cold.returncode == 0
    assert nothing.returncode == 2
    assert "request" in shown.stdout
    folder = run / "session_01" / "resamples"
    assert sorted(path.name for path in folder.iterdir()) == [
        "request_002",
        "request_002_v01",
        "request_002_v02",
    ]
    assert json.loads((folder / "request_002_v02" / "request.json").read_text())["temperature"] == 0
