"""`flightlog lab lint` and `harness lint` as a person runs them."""

import json
import shutil
import subprocess

import pytest

from support.atif_documents import embed_subagent, replace_value, sound
from support.cli_runs import FLIGHTLOG, environment, within
from support.recordings import config_dir


def put(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_a_sound_trajectory_is_ok(tmp_path):
    ran = within(tmp_path, "lab", "lint", str(put(tmp_path / "t.json", sound())))

    assert (ran.code, ran.out.split(": ")[-1]) == (0, "ok\n")
    assert "1 document, 0 errors, 0 warnings" in ran.err


def test_errors_are_reported_with_rule_and_location_and_fail(tmp_path):
    wrong = replace_value(sound(), "steps.1.metrics.cached_tokens", 101)
    ran = within(tmp_path, "lab", "lint", str(put(tmp_path / "t.json", wrong)))

    assert ran.code == 1
    assert "cached-above-prompt" in ran.out
    assert "steps[1].metrics.cached_tokens" in ran.out


def test_warnings_fail_only_when_asked_to(tmp_path):
    path = str(
        put(
            tmp_path / "t.json", replace_value(sound(), "steps.2.timestamp", "2026-11-02T11:00:00Z")
        )
    )

    assert within(tmp_path, "lab", "lint", path).code == 0
    assert within(tmp_path, "lab", "lint", path, "--strict").code == 1


def test_a_directory_is_searched_and_other_json_is_left_alone(tmp_path):
    put(tmp_path / "run" / "session_01" / "trajectory.json", embed_subagent())
    put(tmp_path / "run" / "run_meta.json", {"schema_version": 1})
    (tmp_path / "run" / "broken.json").write_text("{")
    ran = within(tmp_path, "lab", "lint", str(tmp_path / "run"), "--json")

    assert [report["path"].rsplit("/", 1)[1] for report in json.loads(ran.out)] == [
        "trajectory.json"
    ]


@pytest.mark.parametrize("name", ["gone", "."])
def test_directory_without_trajectories_gets_a_next_step(tmp_path, name):
    ran = within(tmp_path, "lab", "lint", str(tmp_path / name))

    assert ran.code == 1
    assert "trajectory" in ran.err


def test_named_file_is_linted_whatever_it_holds(tmp_path):
    (tmp_path / "t.json").write_text("{")

    assert "not-json" in within(tmp_path, "lab", "lint", str(tmp_path / "t.json")).out


def test_impossible_file_name_is_reported_as_missing(tmp_path):
    path = put(tmp_path / "t.json", sound(continued_trajectory_ref="a\0b"))

    assert "missing-file" in within(tmp_path, "lab", "lint", str(path)).out


def test_text_of_a_file_is_inert_on_the_terminal(tmp_path):
    ran = within(
        tmp_path, "lab", "lint", str(put(tmp_path / "t.json", sound(**{"\x1b[2Jgone": 1})))
    )

    assert "\x1b" not in ran.out


def test_trajectory_is_compared_with_its_recording(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/subagent-foreground")
    out = tmp_path / "out"
    within(config, "session", "export", "7575a0bb", "--atif", "--output", str(out))
    trajectory = json.loads((out / "trajectory.json").read_text())
    put(out / "trajectory.json", replace_value(trajectory, "steps", trajectory["steps"][:-1]))

    reports = {
        report["path"].rsplit("/", 1)[1]: report
        for report in json.loads(within(config, "lab", "lint", str(out), "--json").out)
    }
    rows = {row["element"]: row for row in reports["trajectory.json"]["fidelity"]}

    assert (
        rows["texts of the agent"]["recorded_count"],
        rows["texts of the agent"]["exported_count"],
    ) == (3, 2)
    assert rows["subagents"]["exported_count"] == rows["subagents"]["recorded_count"] == 1
    assert reports["subagent_general-purpose_a18a8ad043c6ab8dd.json"]["fidelity"] is None
    assert "step-count" in {finding["rule"] for finding in reports["trajectory.json"]["findings"]}


def test_in_a_run_the_transcript_beside_the_trajectory_is_what_counts(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/subagent-foreground")
    out = tmp_path / "session_01"
    within(config, "session", "export", "7575a0bb", "--atif", "--output", str(out))
    (project,) = (config / "projects").iterdir()
    (main,) = project.glob("7575a0bb*.jsonl")
    shutil.copy(main, out / "transcript.jsonl")
    shutil.copytree(main.with_suffix("") / "subagents", out / "subagents")

    reports = json.loads(within(tmp_path / "elsewhere", "lab", "lint", str(out), "--json").out)
    rows = next(
        report["fidelity"] for report in reports if report["path"].endswith("/trajectory.json")
    )

    assert {row["element"] for row in rows if row["exported_count"] < row["recorded_count"]} == {
        "structured results"
    }
    assert {"element": "subagents", "recorded_count": 1, "exported_count": 1, "reason": ""} in rows


def test_a_foreign_trajectory_is_compared_with_the_named_session(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/single-turn")
    path = str(put(tmp_path / "t.json", sound()))

    assert json.loads(within(config, "lab", "lint", path, "--json").out)[0]["fidelity"] is None
    assert "prompts" in within(config, "lab", "lint", path, "--source", "dff270bc").out
    assert within(config, "lab", "lint", path, "--source", "nobody").code == 1


def test_the_same_command_is_installed_as_harness(tmp_path):
    path = put(tmp_path / "t.json", sound())
    done = subprocess.run(
        [FLIGHTLOG.with_name("harness"), "lint", path],
        env=environment(tmp_path),
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"ok\n")
