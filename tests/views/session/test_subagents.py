import json
from datetime import UTC
from pathlib import Path

import pytest

from flightlog.archive.archive import Archive
from flightlog.model.addresses import is_safe
from flightlog.model.usage import Breakdown
from flightlog.views.session.timeline import build_rows
from flightlog.views.transcript import RenderOptions, render_session
from support.recordings import archive as recorded_archive
from support.transcripts import SESSION, archive, assistant, user, write


def call(name, prompt, number=2, **more):
    block = {"type": "tool_use", "id": name, "name": "Task", "input": {"prompt": prompt, **more}}
    return assistant(f"m-{name}", number, block)


def side(prompt, number, **fields):
    return user(prompt, number, isSidechain=True, **fields)


@pytest.mark.parametrize(
    "case",
    [
        "1.0.128/subagent",
        "2.0.76/subagent",
        "2.1.100/subagent",
        "2.1.325/subagent-foreground",
        "2.1.325/subagent-fork",
        "2.1.325/workflow",
    ],
)
def test_in_every_layout_a_subagent_is_linked_to_the_call_that_started_it(tmp_path, case):
    sessions = [
        session for session in recorded_archive(tmp_path, case).iter_sessions() if session.turns
    ]

    for session in sessions:
        calls = {call.id for step in session.steps for call in step.tool_calls}
        linked = [subagent for subagent in session.subagents if not subagent.is_side_call]
        assert linked
        assert all(
            subagent.tool_call_id in calls and subagent.agent_type and subagent.description
            for subagent in linked
        )


def test_a_side_thread_in_the_sessions_own_file_is_found_by_its_prompt(tmp_path):
    thread = [side("look", 10, parentUuid=None), assistant("m-in", 11, isSidechain=True)]
    source = archive(
        tmp_path,
        user("x", 1),
        call("t1", "look", subagent_type="Explore", description="find"),
        *thread,
    )

    (subagent,) = source.read_session(SESSION).subagents

    assert (subagent.tool_call_id, subagent.agent_type, subagent.description) == (
        "t1",
        "Explore",
        "find",
    )
    assert [step.message_id for turn in subagent.turns for step in turn.steps] == ["m-in"]


def test_two_subagents_with_the_same_prompt_get_a_call_each(tmp_path):
    threads = [side("look", number, parentUuid=None, uuid=f"s{number}") for number in (10, 20)]
    source = archive(tmp_path, user("x", 1), call("t1", "look", 2), call("t2", "look", 3), *threads)

    assert sorted(subagent.tool_call_id for subagent in source.read_session(SESSION).subagents) == [
        "t1",
        "t2",
    ]


def test_side_threads_whose_ids_begin_alike_stay_apart(tmp_path):
    threads = [
        side(f"task {number}", number, parentUuid=None, uuid=f"00000000-{number}")
        for number in (10, 20, 30)
    ]
    session = archive(tmp_path, user("x", 1), *threads).read_session(SESSION)

    assert len(session.subagents) == 3
    assert len({subagent.id for subagent in session.subagents}) == 3


def test_side_records_without_a_name_do_not_adopt_each_other(tmp_path):
    threads = [side(f"task {number}", number, parentUuid=None, uuid="") for number in (10, 20)]
    session = archive(tmp_path, user("x", 1), *threads).read_session(SESSION)

    assert len(session.subagents) == 2


@pytest.mark.parametrize("uuid", ["\x1b]52;c;x\x07", "../../etc", "a`b`c", "#1", "é" * 9, "🙂"])
def test_a_thread_name_is_typeable_whatever_its_first_record_is_named(tmp_path, uuid):
    session = archive(
        tmp_path, user("x", 1), side("task", 10, parentUuid=None, uuid=uuid, agentId="")
    ).read_session(SESSION)

    assert all(is_safe(subagent.id) for subagent in session.subagents)


def test_a_message_copied_into_a_side_thread_is_shown_on_the_main_one(tmp_path):
    copy = assistant("m1", 11, isSidechain=True, uuid="s11", parentUuid="s10")
    source = archive(
        tmp_path,
        user("x", 1),
        assistant("m1", 2),
        side("task", 10, uuid="s10", parentUuid=None),
        copy,
    )

    session = source.read_session(SESSION)

    assert [step.message_id for step in session.steps] == ["m1"]
    assert [turn.steps for subagent in session.subagents for turn in subagent.turns] == [()]


def test_responses_without_an_id_are_shown_in_their_own_thread(tmp_path):
    inner = assistant("", 11, isSidechain=True, uuid="s11", parentUuid="s10", requestId="")
    main = assistant("", 2, requestId="")
    session = archive(
        tmp_path, user("x", 1), main, side("task", 10, uuid="s10", parentUuid=None), inner
    ).read_session(SESSION)

    assert len(session.steps) == 1
    assert sum(len(turn.steps) for subagent in session.subagents for turn in subagent.turns) == 1


def test_a_subagent_whose_session_left_no_file_is_still_shown(tmp_path):
    write(
        tmp_path,
        "agent-a7",
        side("Warmup", 1, sessionId=SESSION, agentId="a7"),
        assistant("m1", 2, sessionId=SESSION),
    )
    other = archive(tmp_path / "other", user("x")).read_session(SESSION)
    assert other.subagents == ()

    dirs = {"claude-code": (str(tmp_path),)}
    session = type(archive(tmp_path / "third", user("x")))(dirs).read_session(SESSION)

    assert [(subagent.id, subagent.is_side_call) for subagent in session.subagents] == [
        ("a7", True)
    ]
    assert session.turns == ()
    assert Path(tmp_path).exists()


def steps_of(subagent):
    return [step.message_id for turn in subagent.turns for step in turn.steps]


def agent_file(root, name, *records, **meta):
    folder = root / "projects" / "shop" / SESSION / "subagents"
    write(root, f"{SESSION}/subagents/{name}", *records)
    (folder / f"{name}.meta.json").write_text(json.dumps(meta))


def result(call_id, number, **detail):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}
    return user([block], number, toolUseResult=detail)


def both(root):
    """Return the session and the usage report of the same files."""
    source = Archive({"claude-code": (str(root),)})
    return source.read_session(SESSION), source.usage_report(Breakdown.SESSION, UTC).total.usage


def test_the_agents_of_a_workflow_are_in_its_call_and_counted(tmp_path):
    source = recorded_archive(tmp_path, "2.1.325/workflow")
    (session,) = source.iter_sessions()
    usage = source.usage_report(Breakdown.SESSION, UTC).total.usage

    (row,) = [row for row in build_rows(session) if row.subagents]

    assert [agent.description for agent in row.subagents] == ["look:1", "look:2", "look:3"]
    assert (usage.input_tokens, sum(step.input_tokens for step in session.steps)) == (4215, 3300)
    assert usage == source.read_outline(session.id).summary.usage == session.client_totals.usage
    text = "\n".join(line.text for line in render_session(session, RenderOptions()))
    assert all(f"workflow-subagent: look:{number}" in text for number in (1, 2, 3))


def test_the_message_that_a_fork_repeats_counts_once(tmp_path):
    source = recorded_archive(tmp_path, "2.1.325/subagent-fork")
    (session,) = source.iter_sessions()

    (fork,) = session.subagents

    assert [step.input_tokens for turn in fork.turns for step in turn.steps] == [77]
    usage = source.usage_report(Breakdown.SESSION, UTC).total.usage
    assert usage == session.client_totals.usage == source.read_outline(session.id).summary.usage


def test_a_skill_fork_is_linked_by_the_result_of_its_call(tmp_path):
    (session,) = recorded_archive(tmp_path, "2.1.325/skill-fork").iter_sessions()

    calls = {call.id: call.name for step in session.steps for call in step.tool_calls}

    assert [calls[agent.tool_call_id] for agent in session.subagents] == ["Skill"]


def test_a_resumed_workflow_has_its_agents_in_the_later_call(tmp_path):
    start = {"type": "tool_use", "name": "Workflow", "input": {"script": "…"}}
    write(
        tmp_path,
        SESSION,
        user("x", 1),
        assistant("m1", 2, {**start, "id": "t1"}),
        result("t1", 4, runId="wf_1"),
        assistant("m2", 20, {**start, "id": "t2"}),
        result("t2", 22, runId="wf_1"),
    )
    for name, number in (("a1", 3), ("a2", 21)):
        records = [side(name, number, parentUuid=None), assistant(f"m-{name}", number + 1)]
        agent_file(tmp_path, f"workflows/wf_1/agent-{name}", *records)

    session, usage = both(tmp_path)

    assert [(agent.id, agent.tool_call_id) for agent in session.subagents] == [
        ("a1", "t1"),
        ("a2", "t2"),
    ]
    assert usage.input_tokens == 40


def test_a_teammate_is_linked_by_its_name(tmp_path):
    write(
        tmp_path,
        SESSION,
        user("x", 1),
        call("t1", "Watch the build.", team_name="shop"),
        result("t1", 3, status="teammate_spawned", agent_id="bob@shop"),
    )
    agent_file(
        tmp_path,
        "agent-abob-12ab",
        side("<teammate-message>Watch the build.</teammate-message>", 4, parentUuid=None),
        assistant("m-bob", 5),
        taskKind="in_process_teammate",
        teamName="shop",
    )

    (session, usage) = both(tmp_path)

    assert [agent.tool_call_id for agent in session.subagents] == ["t1"]
    assert usage.input_tokens == 20


def test_teammates_whose_names_are_alike_are_kept_apart(tmp_path):
    names = {"t1": "b.b", "t2": "bob", "t3": "bob-2"}
    lines = [call(name, f"Watch {name}.", number) for number, name in enumerate(names, 2)]
    lines += [
        result(name, number, status="teammate_spawned", agent_id=f"{mate}@shop")
        for number, (name, mate) in enumerate(names.items(), 5)
    ]
    write(tmp_path, SESSION, user("x", 1), *lines)
    for number, agent in enumerate(("bob-2-12ab", "bob-34cd", "b.b-56ef"), 10):
        prompt = side("Begin.", number, parentUuid=None)
        agent_file(tmp_path, f"agent-a{agent}", prompt, assistant(f"m-{agent}", number + 5))

    (session, _) = both(tmp_path)

    linked = {agent.id: agent.tool_call_id for agent in session.subagents}
    assert linked == {"abob-2-12ab": "t3", "abob-34cd": "t2", "ab.b-56ef": "t1"}


@pytest.mark.parametrize("same_ids", [True, False])
def test_a_copy_of_the_history_counts_only_its_compaction_call(tmp_path, same_ids):
    history = [user("x", 1), assistant("m1", 2), user("y", 3), assistant("m2", 4)]
    side_fields = {"isSidechain": True, "agentId": "acompact-12ab"}
    copies = [
        {**record, **side_fields, "uuid": record["uuid"] if same_ids else f"c{at}"}
        for at, record in enumerate(history)
    ]
    own = assistant("m-compact", 5, tokens={"input_tokens": 90}, uuid="own", parentUuid="u4")
    write(tmp_path, SESSION, *history)
    agent_file(tmp_path, "agent-acompact-12ab", *copies, own)

    session, usage = both(tmp_path)

    assert [step.message_id for step in session.steps] == ["m1", "m2"]
    assert [turn.text for turn in session.turns] == ["x", "y"]
    (thread,) = session.subagents
    assert (steps_of(thread), thread.agent_type, thread.is_side_call) == (
        ["m-compact"],
        "compaction",
        True,
    )
    assert usage.input_tokens == 110
    summary = Archive({"claude-code": (str(tmp_path),)}).read_outline(SESSION).summary
    assert (summary.usage, summary.subagents) == (usage, 0)


@pytest.mark.parametrize("kind", ["prompt suggestion", "side question"])
def test_what_the_client_asks_by_itself_is_a_side_call(tmp_path, kind):
    write(tmp_path, SESSION, user("x", 1), assistant("m1", 2))
    name = f"agent-a{kind.replace(' ', '_')}-1f"
    agent_file(tmp_path, name, side("go on", 3), assistant("m2", 4))

    session, usage = both(tmp_path)

    assert [(agent.agent_type, agent.is_side_call) for agent in session.subagents] == [(kind, True)]
    assert usage.input_tokens == 20


@pytest.mark.parametrize(
    ("prompt", "heading"), [("Look", "(subagents only)"), ("Warmup", "(warm-up only)")]
)
def test_a_session_without_a_main_thread_is_named_by_what_is_left(tmp_path, prompt, heading):
    agent_file(tmp_path, "agent-a1", side(prompt, 3), assistant("m2", 4))
    (summary,) = Archive({"claude-code": (str(tmp_path),)}).iter_summaries()

    assert (summary.title, summary.heading) == ("", heading)
