"""What a trajectory lost of its recording, for our own and for one that lost something on purpose."""

import json

import pytest

from flightlog.views.atif.document import encode_trajectory
from flightlog.views.atif.fidelity import measure_fidelity
from flightlog.views.atif.writer import AtifOptions, build_trajectory
from support.recordings import CASES, archive

# What no trajectory of ours carries, with a reason beside each; everything else must be there.
NOT_CARRIED = {"structured results", "full outputs kept in files", "reasoning the API withheld"}


def documents(bundle):
    return [json.loads(encode_trajectory(document)) for document in bundle.documents.values()]


def count_losses(session, trajectories, known=None):
    return {
        row.element: (row.recorded_count, row.exported_count)
        for row in measure_fidelity(session, trajectories, known)
        if row.missing_count
    }


@pytest.mark.parametrize("version", ["1.6", "1.7"])
@pytest.mark.parametrize("case", CASES)
def test_our_own_trajectories_lose_only_what_has_no_place(tmp_path, case, version):
    recorded = archive(tmp_path, case)
    for session in recorded.iter_sessions():
        known = recorded.thread_contexts(session.id)
        missing = count_losses(
            session, documents(build_trajectory(session, AtifOptions(version), known)), known
        )

        assert missing.keys() <= NOT_CARRIED
        assert all(
            row.reason for row in measure_fidelity(session, [], known) if row.element in NOT_CARRIED
        )


def test_everything_is_lost_of_a_recording_without_a_trajectory(tmp_path):
    session = archive(tmp_path, "2.1.325/multi-turn-tools").read_session("2123")

    assert all(row.exported_count == 0 for row in measure_fidelity(session, []))
    assert {
        "prompts",
        "tool calls",
        "tool results",
        "prompt tokens",
        "request ids",
    } <= count_losses(session, []).keys()


SPOILED = {
    "texts of the agent": lambda step: step.update(message=""),
    "tool calls": lambda step: step.pop("tool_calls", None),
    "tool results": lambda step: step.pop("observation", None),
    "prompt tokens": lambda step: step.pop("metrics", None),
    "times": lambda step: step.pop("timestamp", None),
    "request ids": lambda step: step.pop("extra", None),
}


@pytest.mark.parametrize("what", SPOILED)
def test_removed_elements_are_reported_as_missing(tmp_path, what):
    session = archive(tmp_path, "2.1.325/multi-turn-tools").read_session("2123")
    trajectories = documents(build_trajectory(session))
    for step in trajectories[0]["steps"]:
        if step["source"] == "agent":
            SPOILED[what](step)

    assert what in count_losses(session, trajectories)


@pytest.mark.parametrize("version", ["1.6", "1.7"])
def test_errors_and_rewritten_inputs_are_missed_call_by_call(tmp_path, version):
    recorded = archive(tmp_path, "2.1.325/hook-decisions", "2.1.325/permission-denied")
    for beginning, what in (
        ("83c4feb3", "inputs a hook rewrote"),
        ("83296674", "results marked as errors"),
    ):
        session = recorded.read_session(beginning)
        (trajectory,) = documents(build_trajectory(session, AtifOptions(version)))
        for step in trajectory["steps"]:
            step["extra"] = {
                key: value
                for key, value in step["extra"].items()
                if key not in {"results", "ran_inputs"}
            }
            for part in [
                *step.get("tool_calls", []),
                *step.get("observation", {}).get("results", []),
            ]:
                part.pop("extra", None)

        assert what in count_losses(session, [trajectory])


def test_an_unlinked_subagent_and_a_missing_picture_are_counted(tmp_path):
    recorded = archive(tmp_path, "2.1.325/subagent-foreground", "2.1.325/odd-outputs")
    alone = recorded.read_session("7575a0bb")
    shown = recorded.read_session("594c6bc1")

    main = documents(build_trajectory(alone))[0]
    del main["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"]

    assert count_losses(alone, [main])["subagents"] == (1, 0)
    assert count_losses(shown, documents(build_trajectory(shown, AtifOptions(pictures=False))))[
        "pictures"
    ] == (1, 0)


def test_context_that_is_not_recorded_is_reported_as_missing(tmp_path):
    recorded = archive(tmp_path, "2.1.325/single-turn")
    session, known = recorded.read_session("dff270bc"), recorded.thread_contexts("dff270bc")
    missing = count_losses(session, documents(build_trajectory(session)), known)

    assert missing["system prompts"] == (1, 0)
    assert missing["tool definitions"] == (len(known[""].tools), 0)
    assert missing["context the client gave"] == (len(known[""].context), 0)
    assert known[""].context
