"""A whole run before judges that are not ours (Harbor, Inspect Scout), and each of its steps joined to its request."""

import json
from pathlib import Path

import pytest

from support.judges import HARBORS, import_trajectories, validate_files
from support.labs import lines


def trajectories(ground):
    run = ground.root / "runs" / "run"
    return [*run.glob("session_*/trajectory.json"), *run.glob("session_*/subagent_*.json")]


@pytest.mark.parametrize("version", HARBORS)
def test_harbor_finds_every_trajectory_of_a_run_valid(ground, version):
    paths = trajectories(ground)

    assert len(paths) == 4
    assert {path: errors for path, errors in validate_files(version, paths).items() if errors} == {}


def test_scout_counts_the_messages_and_tokens_of_a_run(ground):
    counts_by_session = {
        Path(uri).parent.name: counts
        for uri, counts in import_trajectories(ground.root / "runs" / "run").items()
    }

    assert set(counts_by_session) == {"session_01", "session_02", "session_03"}
    for name, counts in counts_by_session.items():
        session = ground.source(int(name[-2:])).read
        own = [step for subagent in session.list_threads() for step in session.own_steps(subagent)]
        assert counts["prompt"] == sum(step.usage.prompt_tokens for step in own), name
        assert counts["completion"] == sum(step.usage.output_tokens for step in own), name
        assert counts["responses"] == len(own), name
        steps = json.loads((session.folder / "trajectory.json").read_bytes())["steps"]
        results = [one for step in steps for one in step.get("observation", {}).get("results", ())]
        answered = [one for one in results if one.get("source_call_id")]
        # A compaction is an event to it, no message.
        assert counts["messages"] == len(steps) - counts["compactions"] + len(answered), name
        recorded = session.session.steps
        assert sum(step["source"] == "agent" for step in steps) == len(recorded), name
        assert len(answered) == sum(len(step.tool_calls) for step in recorded), name


def test_a_subagents_requests_between_two_of_the_main_thread_shift_nothing(ground):
    folder = ground.root / "runs" / "run" / "session_01"
    rows = {row["request_index"]: row for row in lines(folder / "api_captures.jsonl")}
    between = [row["agent_context"] for row in rows.values()]
    first, last = between.index("subagent"), len(between) - 1 - between[::-1].index("subagent")
    assert {"main"} == set(between[:first]) == set(between[last + 1 :])

    turns = json.loads((folder / "uuid_map.json").read_bytes())["turns"]

    assert len(turns) == between.count("main")
    for turn, row in zip(
        turns, (row for row in rows.values() if row["agent_context"] == "main"), strict=True
    ):
        assert turn["message_id"] == row["message_id"]
        assert turn["request_file"].endswith(f"request_{row['request_index']:03d}.json")
