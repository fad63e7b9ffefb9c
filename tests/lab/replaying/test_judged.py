"""A whole run before judges that are not ours: Harbor's validators, and Inspect Scout's import."""

import json
from pathlib import Path

import pytest

from judges import HARBORS, imported, validated


def trajectories(ground):
    run = ground.root / "runs" / "run"
    return [*run.glob("session_*/trajectory.json"), *run.glob("session_*/subagent_*.json")]


@pytest.mark.parametrize("version", HARBORS)
def test_harbor_finds_every_trajectory_of_a_run_valid(ground, version):
    paths = trajectories(ground)

    assert len(paths) == 4
    assert {path: errors for path, errors in validated(version, paths).items() if errors} == {}


def test_scout_counts_the_messages_and_tokens_of_a_run(ground):
    said = {Path(uri).parent.name: counts for uri, counts in imported(ground.root / "runs" / "run").items()}

    assert set(said) == {"session_01", "session_02", "session_03"}
    for name, counts in said.items():
        session = ground.source(int(name[-2:])).read
        own = [step for lane in session.lanes() for step in session.steps(lane)]
        assert counts["prompt"] == sum(step.usage.prompt for step in own), name
        assert counts["completion"] == sum(step.usage.output for step in own), name
        assert counts["responses"] == len(own), name
        steps = json.loads((session.folder / "trajectory.json").read_bytes())["steps"]
        results = [one for step in steps for one in step.get("observation", {}).get("results", ())]
        answered = [one for one in results if one.get("source_call_id")]
        # A compaction is an event to it, no message.
        assert counts["messages"] == len(steps) - counts["compactions"] + len(answered), name
        told = session.session.steps
        assert sum(step["source"] == "agent" for step in steps) == len(told), name
        assert len(answered) == sum(len(step.calls) for step in told), name
