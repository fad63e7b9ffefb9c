"""OpenCode: parts of a message beside texts and tool calls, in the files of its older versions."""

import json

import pytest

from flightlog.agents import find_agent
from flightlog.archive.archive import Archive
from flightlog.model.entries import Image, Text, UnknownBlock
from flightlog.model.session import NoteKind

OPENCODE = find_agent("opencode")
CREATED_MS = 1_767_323_045_000
PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAECAwQF"}
DOCUMENT = {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///a.txt"}


def write_session(folder, *messages):
    """Write a session of these messages; each is a role, its parts, and more fields."""

    def write(name, value):
        path = folder / "storage" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    times = {"created": CREATED_MS, "updated": CREATED_MS}
    write("session/p/ses_1", {"directory": "/srv/app", "title": "A talk", "time": times})
    for number, (role, parts, more) in enumerate(messages):
        created = {"created": CREATED_MS + number}
        write(f"message/ses_1/msg_{number}", {"role": role, "time": created, **more})
        for place, part in enumerate(parts):
            write(f"part/msg_{number}/prt_{number}_{place}", part)


def read(folder):
    (session,) = Archive({"opencode": (str(folder),)}).iter_sessions()
    return session


def test_a_prompt_shows_its_files_and_the_subtask_it_starts(tmp_path):
    subtask = {"type": "subtask", "prompt": "Count the lines.", "agent": "general"}
    prompt = [{"type": "text", "text": "Look."}, PICTURE, DOCUMENT, subtask]
    write_session(tmp_path, ("user", prompt, {}))

    (turn,) = read(tmp_path).turns

    assert turn.prompt == (
        Text("Look."),
        Image("image/png", 6, "AAECAwQF"),
        UnknownBlock("file", "a.txt"),
        Text("Count the lines."),
    )


def test_an_unknown_part_of_a_prompt_is_shown_beside_it(tmp_path):
    write_session(
        tmp_path,
        ("user", [{"type": "text", "text": "Look."}, {"type": "hologram", "shape": 1}], {}),
    )

    session = read(tmp_path)

    assert [turn.text for turn in session.turns if turn.text] == ["Look."]
    assert session.unknown_record_types == (("part/hologram", 1),)


def test_a_file_that_the_model_made_is_a_block_of_its_step(tmp_path):
    write_session(
        tmp_path,
        ("user", [{"type": "text", "text": "Draw."}], {}),
        ("assistant", [PICTURE], {"modelID": "m", "tokens": {"input": 5, "output": 2}}),
    )

    (step,) = read(tmp_path).steps

    assert step.content == (Image("image/png", 6, "AAECAwQF"),)


def test_each_repeated_request_is_a_failure_of_the_api(tmp_path):
    error = {"name": "APIError", "data": {"message": "Overloaded", "statusCode": 529}}
    retry = {"type": "retry", "attempt": 2, "error": error, "time": {"created": CREATED_MS + 5}}
    write_session(
        tmp_path,
        ("user", [{"type": "text", "text": "Go on."}], {}),
        ("assistant", [retry, {"type": "text", "text": "Done."}], {"modelID": "m"}),
    )

    items = read(tmp_path).turns[0].items

    failures = [note.text for note in items if getattr(note, "kind", 0) is NoteKind.API_FAILURE]
    assert len(failures) == 1
    assert "Overloaded" in failures[0]


@pytest.mark.parametrize(
    ("times", "shown"),
    [({}, []), ({"completed": CREATED_MS + 9}, ["bash"])],
    ids=["while the model writes", "after it stopped"],
)
def test_a_call_without_input_is_shown_once_the_message_is_complete(times, shown, tmp_path):
    call = {"type": "tool", "callID": "c", "tool": "bash", "state": {"status": "pending"}}
    more = {"modelID": "m", "time": {"created": CREATED_MS + 1, **times}}
    write_session(
        tmp_path, ("user", [{"type": "text", "text": "Go on."}], {}), ("assistant", [call], more)
    )

    calls = [call.name for step in read(tmp_path).steps for call in step.tool_calls]

    assert calls == shown
