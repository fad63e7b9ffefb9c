"""Trajectories of other producers become runs that are shown, linted, judged and compared."""

import json

from support.experiments import flightlog, harness
from support.judges import HARBORS, import_trajectories, validate_files


def step(number, source, message, **more):
    at = f"2026-11-02T12:00:{number:02d}.000Z"
    return {"step_id": number, "source": source, "message": message, "timestamp": at, **more}


def make_call_step(number, name, text):
    """A step of an agent that calls one tool."""
    call = {"tool_call_id": "call_1", "function_name": name, "arguments": {"keystrokes": "ls\n"}}
    metrics = {"prompt_tokens": 100 * number, "completion_tokens": 10, "cached_tokens": 40}
    seen = {"results": [{"source_call_id": "call_1", "content": "price.py"}]}
    return step(
        number, "agent", text, model_name="gpt-4o", tool_calls=[call], observation=seen, metrics=metrics
    )  # fmt: skip


def trial(folder, name, reward, *texts):
    """Write a trial as Harbor does: `agent/trajectory.json` below the trial, its result beside."""
    steps = [
        step(1, "system", "You work in a terminal."),
        step(2, "user", "Repair the price."),
        *(make_call_step(number, "bash_command", text) for number, text in enumerate(texts, 3)),
    ]
    helper = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "helper",
        "agent": {"name": "helper", "version": "1"},
        "steps": [step(1, "user", "Summarize."), step(2, "agent", "It lists files.")],
    }
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": name,
        "agent": {"name": "terminus-2", "version": "2.0.0", "model_name": "gpt-4o"},
        "steps": steps,
        "final_metrics": {"total_cost_usd": 0.25},
        "subagent_trajectories": [helper],
    }
    path = folder / name / "agent" / "trajectory.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    result = {"verifier_result": {"rewards": {"reward": reward}}}
    (folder / name / "result.json").write_text(json.dumps(result))


def test_harbor_trials_become_runs_with_their_rewards(tmp_path):
    trial(tmp_path / "jobs", "fix__a", 1.0, "I look.", "I repair it.")
    trial(tmp_path / "jobs", "fix__b", 0.0, "I look.")

    first = json.loads(harness(tmp_path, "collect", "jobs", "--json").out)
    again = json.loads(harness(tmp_path, "collect", "jobs", "--json").out)
    names = [row["run_name"] for row in first]
    compared = json.loads(harness(tmp_path, "compare", *names, "--json").out)
    shown = json.loads(harness(tmp_path, "inspect", f"{names[0]}#1", "--json").out)
    linted = flightlog(tmp_path, "lab", "lint", "runs")

    assert [row["status"] for row in first] == ["imported", "imported"]
    assert [row["status"] for row in again] == ["there already"] * 2
    assert names[0].startswith("imported_fix__a_")
    groups = compared["sessions"][0]["groups"]
    assert [group["verifiers"]["reward"]["passed"] for group in groups] == [1, 0]
    assert [group["total_cost_usd"]["mean"] for group in groups] == [0.25, 0.25]
    assert [turn["tools"] for turn in shown["turns"]] == [["bash_command"]] * 2
    assert list(shown["subagents"].values()) == [1]
    assert linted.code == 0, linted.out


def test_imported_trajectory_is_valid_for_every_validator(tmp_path):
    trial(tmp_path / "jobs", "fix__a", 1.0, "I look.", "I repair it.")
    harness(tmp_path, "collect", "jobs")
    written = sorted((tmp_path / "runs").rglob("session_01/**/trajectory*.json"))

    errors = [
        errors_of_file
        for version in HARBORS
        for errors_of_file in validate_files(version, written).values()
    ]
    (counts,) = import_trajectories(tmp_path / "runs").values()

    assert errors == [[]] * len(HARBORS) * len(written)
    assert written
    assert counts["responses"] == 3, "two of the agent, one of its helper"
    assert (counts["prompt"], counts["completion"], counts["cached"]) == (700, 20, 80)


def test_a_file_that_is_no_trajectory_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"schema_version": "ATIF-v9.9", "steps": []}')

    ran = harness(tmp_path, "collect", "other.json")

    assert ran.code == 2
    assert "ATIF" in ran.err
    assert not list((tmp_path / "runs").glob("imported_*"))


def test_a_damaged_trial_is_listed_and_the_others_are_imported(tmp_path):
    trial(tmp_path / "jobs", "fix__a", 1.0, "I look.")
    trial(tmp_path / "jobs", "fix__b", None, "I look.", "I repair it.")
    trial(tmp_path / "jobs", "fix__c", 1.0, "I stop.")
    cut = tmp_path / "jobs/fix__c/agent/trajectory.json"
    cut.write_text(cut.read_text()[:100])
    trial(tmp_path / "jobs", "fix__d", 1.0, "I err.")
    odd = tmp_path / "jobs/fix__d/agent/trajectory.json"
    odd.write_text(odd.read_text().replace('"version"', '"edition"'))

    planned = harness(tmp_path, "collect", "jobs", "--dry-run", "--json")
    written = list(tmp_path.glob("runs/*"))
    ran = harness(tmp_path, "collect", "jobs", "--json")
    rows = json.loads(ran.out)
    listed = json.loads(harness(tmp_path, "list", "--json").out)

    assert [row["status"] for row in json.loads(planned.out)][:2] == ["not collected"] * 2
    assert written == []
    assert ran.code == 3
    assert [row["status"][:12] for row in rows] == ["imported"] * 2 + ["not imported"] * 2
    assert "edition" in rows[3]["status"]
    assert len(listed) == 2
    assert {meta["run_name"]: meta["sessions"][0]["verifiers"] for meta in listed}[
        rows[1]["run_name"]
    ] == [], "a reward that is missing is not a failure"
