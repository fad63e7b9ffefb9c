from pathlib import Path

import pytest

from flightlog.model.addresses import is_safe
from support.recordings import archive as recorded
from support.transcripts import SESSION, archive, assistant, user, write


def call(name, prompt, number=2, **more):
    block = {"type": "tool_use", "id": name, "name": "Task", "input": {"prompt": prompt, **more}}
    return assistant(f"m-{name}", number, block)


def side(said, number, **fields):
    return user(said, number, isSidechain=True, **fields)


@pytest.mark.parametrize(
    "case",
    ["1.0.128/subagent", "2.0.76/subagent", "2.1.100/subagent", "2.1.325/subagent-foreground"],
)
def test_in_every_layout_a_subagent_is_linked_to_the_call_that_started_it(tmp_path, case):
    told = [session for session in recorded(tmp_path, case).iter_sessions() if session.turns]

    for session in told:
        calls = {call.id for step in session.steps for call in step.tool_calls}
        linked = [subagent for subagent in session.subagents if not subagent.is_warmup]
        assert linked
        assert all(
            subagent.tool_call_id in calls and subagent.agent_type and subagent.description
            for subagent in linked
        )


def test_a_side_thread_in_the_sessions_own_file_is_found_by_its_prompt(tmp_path):
    thread = [side("look", 10, parentUuid=None), assistant("m-in", 11, isSidechain=True)]
    told = archive(
        tmp_path,
        user("x", 1),
        call("t1", "look", subagent_type="Explore", description="find"),
        *thread,
    )

    (subagent,) = told.read_session(SESSION).subagents

    assert (subagent.tool_call_id, subagent.agent_type, subagent.description) == (
        "t1",
        "Explore",
        "find",
    )
    assert [step.message_id for turn in subagent.turns for step in turn.steps] == ["m-in"]


def test_two_subagents_with_the_same_prompt_get_a_call_each(tmp_path):
    threads = [side("look", number, parentUuid=None, uuid=f"s{number}") for number in (10, 20)]
    told = archive(tmp_path, user("x", 1), call("t1", "look", 2), call("t2", "look", 3), *threads)

    assert sorted(subagent.tool_call_id for subagent in told.read_session(SESSION).subagents) == [
        "t1",
        "t2",
    ]


def test_side_threads_whose_ids_begin_alike_stay_apart(tmp_path):
    threads = [
        side(f"task {number}", number, parentUuid=None, uuid=f"00000000-{number}")
        for number in (10, 20, 30)
    ]
    told = archive(tmp_path, user("x", 1), *threads).read_session(SESSION)

    assert len(told.subagents) == 3
    assert len({subagent.id for subagent in told.subagents}) == 3


def test_side_records_without_a_name_do_not_adopt_each_other(tmp_path):
    threads = [side(f"task {number}", number, parentUuid=None, uuid="") for number in (10, 20)]
    told = archive(tmp_path, user("x", 1), *threads).read_session(SESSION)

    assert len(told.subagents) == 2


@pytest.mark.parametrize("uuid", ["\x1b]52;c;x\x07", "../../etc", "a`b`c", "#1", "é" * 9, "🙂"])
def test_a_thread_name_is_typeable_whatever_its_first_record_is_named(tmp_path, uuid):
    told = archive(
        tmp_path, user("x", 1), side("task", 10, parentUuid=None, uuid=uuid, agentId="")
    ).read_session(SESSION)

    assert all(is_safe(subagent.id) for subagent in told.subagents)


def test_a_message_copied_into_a_side_thread_is_told_on_the_main_one(tmp_path):
    copy = assistant("m1", 11, isSidechain=True, uuid="s11", parentUuid="s10")
    told = archive(
        tmp_path,
        user("x", 1),
        assistant("m1", 2),
        side("task", 10, uuid="s10", parentUuid=None),
        copy,
    )

    session = told.read_session(SESSION)

    assert [step.message_id for step in session.steps] == ["m1"]
    assert [turn.steps for subagent in session.subagents for turn in subagent.turns] == [()]


def test_responses_without_an_id_are_told_in_their_own_thread(tmp_path):
    inner = assistant("", 11, isSidechain=True, uuid="s11", parentUuid="s10", requestId="")
    main = assistant("", 2, requestId="")
    told = archive(
        tmp_path, user("x", 1), main, side("task", 10, uuid="s10", parentUuid=None), inner
    ).read_session(SESSION)

    assert len(told.steps) == 1
    assert sum(len(turn.steps) for subagent in told.subagents for turn in subagent.turns) == 1


def test_a_subagent_whose_session_left_no_file_is_still_told(tmp_path):
    write(
        tmp_path,
        "agent-a7",
        side("Warmup", 1, sessionId=SESSION, agentId="a7"),
        assistant("m1", 2, sessionId=SESSION),
    )
    told = archive(tmp_path / "other", user("x")).read_session(SESSION)
    assert told.subagents == ()

    session = type(archive(tmp_path / "third", user("x")))([str(tmp_path)]).read_session(SESSION)

    assert [(subagent.id, subagent.is_warmup) for subagent in session.subagents] == [("a7", True)]
    assert session.turns == ()
    assert Path(tmp_path).exists()
