"""Codex: records that a rollout holds beside messages and shell calls, written as clients write them."""

import json

import pytest

from flightlog.agents import find_agent
from flightlog.archive.archive import Archive
from flightlog.model.entries import (
    Entry,
    Ignored,
    Image,
    PromptKind,
    SessionTitled,
    Text,
    ToolResult,
    ToolUse,
    UnknownBlock,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.session import NoteKind

CODEX = find_agent("codex")
THREAD = "019a0000-0000-7000-8000-000000000001"


def write_rollout(home, *records):
    """Write a rollout with these records after its first line; each is a type and a payload."""
    folder = home / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    meta = {"id": THREAD, "cwd": "/srv/app", "cli_version": "0.166.0", "originator": "codex_cli"}
    lines = [
        {"timestamp": f"2026-01-02T03:04:{second:02}.000Z", "type": kind, "payload": payload}
        for second, (kind, payload) in enumerate([("session_meta", meta), *records])
    ]
    path = folder / f"rollout-2026-01-02T03-04-05-{THREAD}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return home


def item(kind, **fields):
    return "response_item", {"type": kind, **fields}


def event(kind, **fields):
    return "event_msg", {"type": kind, **fields}


def make_completed_item(kind, **fields):
    return event("item_completed", item={"type": kind, **fields})


def read_session(home):
    (session,) = Archive({"codex": (str(home),)}).iter_sessions()
    return session


def read_events(home):
    """The events of the only rollout, without that of its first line."""
    (file,) = CODEX.find([str(home)]).files
    items = list(CODEX.source.entries(file))
    assert all(isinstance(item, Entry) for item in items)
    return [item.event for item in items[1:]]


def test_a_message_of_another_agent_is_a_prompt_of_the_client(tmp_path):
    home = write_rollout(
        tmp_path, ("inter_agent_communication", {"author": "b", "content": "Take the other half."})
    )

    assert read_events(home) == [UserPrompt(PromptKind.CLIENT, (Text("Take the other half."),))]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ghost_snapshot", Ignored("response_item/ghost_snapshot")),
        ("hologram", UnknownRecord("response_item/hologram", ("shape", "type"))),
    ],
)
def test_an_item_that_is_not_known_is_shown_as_unknown(kind, expected, tmp_path):
    assert read_events(write_rollout(tmp_path, item(kind, shape="cube"))) == [expected]


@pytest.mark.parametrize(("status", "failed"), [("completed", False), ("failed", True)])
def test_a_hosted_search_is_a_call_with_its_outcome(status, failed, tmp_path):
    action = {"type": "search", "query": "flight recorder"}
    home = write_rollout(
        tmp_path,
        event("user_message", message="Search."),
        item("web_search_call", id="ws_1", status=status, action=action),
    )

    (call,) = read_session(home).steps[0].tool_calls

    assert (call.name, call.input, call.is_error) == ("web_search", action, failed)
    assert call.result == ()  # it has ended, and its result is not recorded


def test_the_result_of_an_old_shell_call_is_unpacked(tmp_path):
    output = {"output": "no such file\n", "metadata": {"exit_code": 2, "duration_seconds": 0.1}}
    home = write_rollout(
        tmp_path,
        item("function_call", name="shell", call_id="c1", arguments='{"command":["ls"]}'),
        item("function_call_output", call_id="c1", output=json.dumps(output)),
    )

    (call,) = read_session(home).steps[0].tool_calls

    assert (call.input, call.output) == ({"command": ["ls"]}, "no such file\n")
    assert (call.is_error, call.detail) == (True, {"exitCode": 2})


def test_a_freeform_call_has_its_text_as_input(tmp_path):
    home = write_rollout(
        tmp_path, item("custom_tool_call", name="apply_patch", call_id="c1", input="*** Begin")
    )

    (reply,) = read_events(home)

    assert reply.content == (ToolUse("c1", "apply_patch", {"input": "*** Begin"}),)


def test_arguments_that_are_no_object_are_shown_as_they_are(tmp_path):
    home = write_rollout(
        tmp_path, item("function_call", name="shell", call_id="c1", arguments='{"torn')
    )

    (reply,) = read_events(home)

    assert reply.content == (ToolUse("c1", "shell", {"arguments": '{"torn'}),)


def test_pictures_of_a_prompt_and_of_a_result_are_shown(tmp_path):
    picture = "data:image/png;base64,AAECAwQF"
    parts = [
        {"type": "input_image", "image_url": picture},
        {"type": "input_audio", "name": "speech.wav"},
        "no part",
    ]
    home = write_rollout(
        tmp_path,
        event("user_message", message="Look.", images=[picture, "https://x.invalid/a.png"]),
        item("function_call_output", call_id="c1", output=parts),
    )

    prompt, result = read_events(home)

    assert prompt.content == (
        Text("Look."),
        Image("image/png", 6, "AAECAwQF"),
        Image("", 0, ""),  # an address is not fetched
    )
    assert isinstance(result, ToolResult)
    assert result.content == (
        Image("image/png", 6, "AAECAwQF"),
        UnknownBlock("input_audio", "speech.wav"),
    )


def test_an_interruption_and_the_text_of_a_hook_are_shown(tmp_path):
    home = write_rollout(
        tmp_path,
        event("user_message", message="Go on."),
        make_completed_item(
            "HookPrompt", fragments=[{"text": "Run the tests."}, 7, {"text": "Again."}]
        ),
        event("turn_aborted", reason="interrupted"),
    )

    _, hook, aborted = read_events(home)

    assert hook == UserPrompt(PromptKind.HOOK, (Text("Run the tests."), Text("Again.")))
    assert aborted == UserPrompt(PromptKind.INTERRUPTION, (Text("interrupted"),))
    kinds = [note.kind for note in read_session(home).turns[0].items]
    assert kinds == [NoteKind.HOOK, NoteKind.INTERRUPTION]


def test_a_name_given_during_the_session_is_its_title(tmp_path):
    home = write_rollout(
        tmp_path,
        event("user_message", message="Go on."),
        event("thread_name_updated", thread_id=THREAD, thread_name="Fix the parser"),
    )

    assert read_events(home)[1] == SessionTitled("Fix the parser", is_user_title=True)
    assert read_session(home).title == "Fix the parser"


def test_a_plan_is_a_remark_of_the_client(tmp_path):
    home = write_rollout(
        tmp_path,
        event("user_message", message="Plan it."),
        make_completed_item("Plan", id="p", text="1. Read. 2. Write."),
    )

    (note,) = read_session(home).turns[0].items

    assert (note.kind, note.text) == (NoteKind.REMARK, "1. Read. 2. Write.")


@pytest.mark.parametrize(
    "record",
    [
        event("stream_error", message="stream disconnected"),
        event("task_complete", error={"message": "stream disconnected"}),
    ],
)
def test_an_error_of_the_api_is_shown(record, tmp_path):
    home = write_rollout(tmp_path, event("user_message", message="Go on."), record)

    (note,) = read_session(home).turns[0].items

    assert (note.kind, note.text) == (NoteKind.API_FAILURE, "stream disconnected")
