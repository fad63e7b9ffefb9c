"""What hooks recorded is part of a session: on the command line, as JSON and on the page."""

import json

from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import SessionFollower
from flightlog.model.entries import PromptKind
from flightlog.web.session_page import SessionPage
from support.transcripts import SESSION, assistant, user, write

TOOL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
NOON_MS = 1793620800000  # of the transcripts in support.transcripts


def make_session(tmp_path, *hooks):
    """A session of one call, and a hook log of (seconds after noon, event, payload)."""
    write(
        tmp_path / "config",
        SESSION,
        user("List.", 1),
        assistant("m1", 2, TOOL),
        user([RESULT], 3),
    )
    folder = tmp_path / "home" / "sessions" / "claude-code" / SESSION
    folder.mkdir(parents=True)
    add_hooks(folder, *hooks)
    return Archive({"claude-code": (str(tmp_path / "config"),)}, str(tmp_path / "home")), folder


def add_hooks(folder, *hooks):
    with (folder / "hooks.jsonl").open("a") as log:
        for second, event, payload in hooks:
            record = {"at_ms": NOON_MS + 1000 * second, "event": event, "payload": payload}
            log.write(json.dumps(record) + "\n")


def call_hooks(executed):
    named = {"tool_name": "Bash", "tool_use_id": "t1"}
    return (
        (2, "PreToolUse", {**named, "tool_input": {"command": "ls"}}),
        (2, "PermissionRequest", {"tool_name": "Bash", "tool_input": {"command": "ls"}}),
        (3, "PostToolUse", {**named, "tool_input": executed, "duration_ms": 41}),
    )


def page_calls(archive):
    page = SessionPage(archive, SessionFollower(archive, SESSION).refresh())
    rows = page.load_rows(range(page.thread_of().total))
    return [call for row in rows for call in getattr(row.item, "tool_calls", ())]


def test_a_call_has_decision_input_and_duration_of_its_hooks(tmp_path):
    archive, _ = make_session(tmp_path, *call_hooks({"command": "ls -a"}))

    (call,) = archive.read_session(SESSION).steps[0].tool_calls

    assert (call.permission_decision, call.duration_ms) == ("allow", 41)
    assert (call.input, call.executed_input) == ({"command": "ls"}, {"command": "ls -a"})
    assert page_calls(archive) == [call]


def test_an_input_that_no_hook_changed_is_not_named_again(tmp_path):
    archive, _ = make_session(tmp_path, *call_hooks({"command": "ls"}))

    assert archive.read_session(SESSION).steps[0].tool_calls[0].executed_input is None


def test_a_running_prompt_is_the_last_turn_until_it_ends(tmp_path):
    archive, folder = make_session(tmp_path, (1, "UserPromptSubmit", {"prompt": "List."}))
    follower = SessionFollower(archive, SESSION)
    assert len(archive.read_session(SESSION).turns) == follower.refresh().summary.turns == 1

    add_hooks(folder, (9, "UserPromptSubmit", {"prompt": "Now count."}))

    last = archive.read_session(SESSION).turns[-1]
    assert (last.number, last.text, last.kind) == (2, "Now count.", PromptKind.HUMAN)
    page = SessionPage(archive, follower.refresh())
    assert page.load_rows([page.thread_of().total - 1])[0].item.text == "Now count."
    assert (page.outline.summary.turns, page.outline.is_prompt_running) == (2, True)

    add_hooks(folder, (12, "Stop", {}))

    assert len(archive.read_session(SESSION).turns) == follower.refresh().summary.turns == 1


def test_a_prompt_that_the_transcript_has_by_now_is_not_repeated(tmp_path):
    archive, _ = make_session(tmp_path, (1, "UserPromptSubmit", {"prompt": "Now count."}))
    path = tmp_path / "config" / "projects" / "shop" / f"{SESSION}.jsonl"
    with path.open("a") as transcript:
        transcript.write(json.dumps(user("Now count.", 4)) + "\n")

    assert [turn.text for turn in archive.read_session(SESSION).turns] == ["List.", "Now count."]


def test_damaged_hook_lines_hide_no_others(tmp_path):
    archive, folder = make_session(tmp_path, *call_hooks({"command": "ls"}))
    with (folder / "hooks.jsonl").open("ab") as log:
        log.write(b'{"at_ms":"soon"}\n[1]\n{"at_ms":1,"event":"PostToolUse","payload":7}\n{"to')

    (call,) = archive.read_session(SESSION).steps[0].tool_calls

    assert call.duration_ms == 41
    assert page_calls(archive) == [call]


def test_an_answered_prompt_is_recorded_whatever_text_the_hook_gave(tmp_path):
    other = "<ide_opened_file>a.py</ide_opened_file> List the files, with a picture."
    archive, _ = make_session(tmp_path, (1.5, "UserPromptSubmit", {"prompt": other}))

    assert [turn.text for turn in archive.read_session(SESSION).turns] == ["List."]
    assert archive.read_outline(SESSION).summary.turns == 1


def test_a_prompt_of_the_hook_log_has_no_editor_context(tmp_path):
    text = "<ide_opened_file>a.py</ide_opened_file>\nNow this."
    archive, _ = make_session(tmp_path, (9, "UserPromptSubmit", {"prompt": text}))

    assert archive.read_session(SESSION).turns[-1].text == "Now this."


def test_an_infinite_duration_is_no_duration(tmp_path):
    archive, folder = make_session(tmp_path)
    payload = '{"tool_use_id":"t1","tool_input":{},"duration_ms":1e400}'
    line = f'{{"at_ms":{NOON_MS},"event":"PostToolUse","payload":{payload}}}\n'
    (folder / "hooks.jsonl").write_text(line)

    assert archive.read_session(SESSION).steps[0].tool_calls[0].duration_ms is None


def test_a_hook_log_that_cannot_be_read_hides_no_session(tmp_path):
    archive, folder = make_session(tmp_path)
    (folder / "hooks.jsonl").unlink()
    (folder / "hooks.jsonl").mkdir()

    assert len(archive.read_session(SESSION).turns) == 1
    assert SessionFollower(archive, SESSION).refresh().summary.turns == 1
