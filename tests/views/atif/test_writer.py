"""Trajectories of what real agents wrote."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from flightlog.model.session import Step, Subagent, ToolCall, Turn
from flightlog.model.usage import CostSource
from flightlog.views.atif.document import encode_trajectory
from flightlog.views.atif.writer import AtifOptions, build_trajectory, step_ids, subagent_file
from support.recordings import CASES, archive
from support.transcripts import SESSION, assistant, user
from support.transcripts import archive as write_archive

TOOL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.txt"}}


def read_sessions(tmp_path, case):
    return list(archive(tmp_path, case).iter_sessions())


@pytest.mark.parametrize("case", CASES)
def test_every_response_is_one_step_and_counted_once(tmp_path, case):
    for session in read_sessions(tmp_path, case):
        bundle = build_trajectory(session)
        threads = [session.turns, *(subagent.turns for subagent in session.subagents)]

        for document, turns in zip(bundle.documents.values(), threads, strict=True):
            responses = [step for turn in turns for step in turn.steps]
            assert list(step_ids(document)) == [step.message_id for step in responses]
            assert document.final_metrics.total_prompt_tokens == sum(
                step.usage.prompt_tokens for step in responses
            )
            assert document.final_metrics.total_completion_tokens == sum(
                step.usage.output_tokens for step in responses
            )
            assert [step.step_id for step in document.steps] == list(
                range(1, len(document.steps) + 1)
            )


def steps_of(tmp_path, case, beginning, version="1.6"):
    recorded = archive(tmp_path, case)
    session = recorded.read_session(beginning)
    return build_trajectory(
        session, AtifOptions(version), recorded.thread_contexts(session.id)
    ).main.steps


def extras(steps, kind):
    return [
        step for step in steps if isinstance(step.extra, dict) and step.extra.get("kind") == kind
    ]


def test_a_compaction_is_a_boundary_with_its_summary_once(tmp_path):
    written = steps_of(tmp_path, "2.1.325/compaction-manual", "de349ced")
    (boundary,) = extras(written, "compaction")
    summary = boundary.observation.results[0].content

    assert boundary.source == "system"
    assert boundary.extra["context_management"] == {"type": "compaction", "boundary": "replace"}
    assert "summary" in summary.lower()
    assert not [step for step in written if step is not boundary and step.message == summary]


def test_turns_taken_back_stay_and_are_followed_by_a_boundary(tmp_path):
    written = steps_of(tmp_path, "2.1.325/interactive-permission-interrupt-rewind", "28892d4e")
    (boundary,) = extras(written, "taken back")
    back = [
        step.message for step in written if step.extra.get("taken_back") and step.source == "user"
    ]
    after = written[boundary.step_id :]

    assert back == ["slow please", "fail please"]
    assert boundary.extra["context_management"] == {"type": "pruning", "boundary": "truncate"}
    assert [step.message for step in after if step.source == "user"] == ["hello after rewind"]


def test_what_a_fork_copied_is_marked_and_counted_elsewhere(tmp_path):
    recorded = archive(tmp_path, "2.1.325/forked-session")
    session = recorded.read_session("cceeb00c")
    document = build_trajectory(session, contexts=recorded.thread_contexts(session.id)).main
    fresh = [
        step
        for step in document.steps
        if step.source == "agent" and step.is_copied_context is not True
    ]

    assert [step.message for step in fresh] == ["t9"]
    assert document.final_metrics.total_prompt_tokens == fresh[0].metrics.prompt_tokens
    assert all(step.metrics is UNSET for step in document.steps if step.is_copied_context is True)
    assert "copied" in document.notes


def test_a_picture_is_one_file_and_not_part_of_the_document(tmp_path):
    session = archive(tmp_path, "2.1.325/odd-outputs").read_session("594c6bc1")
    bundle = build_trajectory(session)
    ((path, body),) = bundle.pictures.items()
    shown = [block for step in session.steps for call in step.tool_calls for block in call.images]

    assert body.startswith(b"\x89PNG")
    assert len(body) == shown[0].size_bytes
    assert path.encode() in encode_trajectory(bundle.main)
    assert shown[0].data.encode() not in encode_trajectory(bundle.main)


def test_a_subagent_is_a_document_of_its_own_that_its_call_refers_to(tmp_path):
    session = archive(tmp_path, "2.1.325/subagents-background").read_session("5057f83a")
    bundle = build_trajectory(session)
    refs = {
        result.source_call_id: result.subagent_trajectory_ref[0].trajectory_path
        for step in bundle.main.steps
        if step.observation is not UNSET
        for result in step.observation.results
        if result.subagent_trajectory_ref is not UNSET
    }

    assert refs == {
        subagent.tool_call_id: subagent_file(subagent) for subagent in session.subagents
    }
    assert set(refs.values()) == bundle.documents.keys() - {"trajectory.json"}
    own, all_threads = bundle.main.final_metrics, bundle.documents.values()
    assert own.total_cost_usd == pytest.approx(
        sum(
            step.metrics.cost_usd
            for thread in all_threads
            for step in thread.steps
            if step.metrics is not UNSET
        )
    )


def test_client_messages_are_neither_agent_nor_user_steps(tmp_path):
    written = steps_of(tmp_path, "2.1.325/api-error-retry", "5a2d380b")

    assert {step.source for step in extras(written, "api failure")} == {"system"}
    assert [step.message for step in written if step.source == "user"] == ["Say hi."]


def test_version_1_7_adds_ids_counts_and_data_of_calls(tmp_path):
    written = steps_of(tmp_path, "2.1.325/hook-decisions", "83c4feb3", "1.7")
    calls = [call for step in written if step.tool_calls is not UNSET for call in step.tool_calls]

    assert all(step.llm_call_count == 1 for step in written if step.source == "agent")
    assert [call for call in calls if call.extra is not UNSET and "ran_input" in call.extra]
    assert not any("ran_inputs" in step.extra for step in written)


def test_version_1_6_keeps_the_same_beside_the_step(tmp_path):
    written = steps_of(tmp_path, "2.1.325/hook-decisions", "83c4feb3")

    assert [step for step in written if "ran_inputs" in step.extra]
    assert all(step.llm_call_count is UNSET for step in written)


def test_a_call_without_an_answer_is_marked_unanswered(tmp_path):
    recorded = write_archive(tmp_path, user("go", 1), assistant("m1", 2, TOOL))
    (step,) = [
        step
        for step in build_trajectory(recorded.read_session(SESSION)).main.steps
        if step.source == "agent"
    ]

    assert step.observation is UNSET
    assert step.extra["unanswered"] == ["t1"]


def test_content_the_format_has_no_place_for_leaves_a_mark(tmp_path):
    svg = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zy8+"},
    }
    answer = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [svg, {"type": "tool_reference"}],
    }
    recorded = write_archive(tmp_path, user("go", 1), assistant("m1", 2, TOOL), user([answer], 3))
    bundle = build_trajectory(recorded.read_session(SESSION))
    parts = bundle.main.steps[1].observation.results[0].content

    assert [part.text for part in parts] == [
        "[image/svg+xml left out]",
        "[tool_reference left out]",
    ]
    assert bundle.pictures == {}


def test_a_model_without_a_price_leaves_the_total_out_and_says_so(tmp_path):
    record = assistant("m1", 2, {"type": "text", "text": "hi"})
    record["message"]["model"] = "nobody-knows-1"
    document = build_trajectory(
        write_archive(tmp_path, user("go", 1), record).read_session(SESSION)
    ).main

    assert document.final_metrics.total_cost_usd is UNSET
    assert document.steps[1].metrics.cost_usd is UNSET
    assert "cost" in document.notes


def test_a_session_without_any_step_is_still_a_document(tmp_path):
    recorded = write_archive(
        tmp_path, {"type": "last-prompt", "lastPrompt": "", "sessionId": SESSION}
    )
    (step,) = build_trajectory(recorded.read_session(SESSION)).main.steps

    assert (step.step_id, step.source, step.message) == (1, "system", "")


def test_subagents_that_started_each_other_are_shown_once_each(tmp_path):
    subagents = tuple(
        Subagent(
            name,
            "",
            "",
            f"of-{other}",
            (Turn(1, None, (), None, (make_step(f"m-{name}", f"of-{name}"),)),),
        )
        for name, other in (("a", "b"), ("b", "a"))
    )
    base = write_archive(tmp_path, user("go", 1)).read_session(SESSION)
    bundle = build_trajectory(replace(base, subagents=subagents))

    assert bundle.documents.keys() == {
        "trajectory.json",
        "subagent_agent_a.json",
        "subagent_agent_b.json",
    }


def make_step(message, call):
    return Step(
        1,
        message,
        None,
        "m",
        (),
        (ToolCall(call, "Agent", {}),),
        cost_usd=None,
        cost_source=CostSource.UNKNOWN,
    )
