"""Who spoke: only what a person typed is a prompt, and each prompt is one turn."""

import json

import pytest

from flightlog.archive.session_reader import SessionFollower
from flightlog.model.entries import PromptKind
from flightlog.model.session import NoteKind
from flightlog.usage.prices import price
from flightlog.views.session.fold import Retain, SessionFold
from flightlog.views.session.thread import Eviction, OutOfOrder
from support.folding import entries_of
from support.recordings import CASES
from support.recordings import archive as recorded_archive
from support.transcripts import SESSION, archive, assistant, stamp, user

OPENED = "<ide_opened_file>The user opened /home/ada/shop/app.py</ide_opened_file>"
REMINDER = "<system-reminder>Mind the tests.</system-reminder>"
SAID = {"type": "text", "text": "ok"}
TASK_STARTED = '{"task_id":"a9f","tool_use_id":"t1","description":"x","task_type":"local_bash"}'
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}


def text(words):
    return {"type": "text", "text": words}


def make_queued_prompt(words, second, **fields):
    return {
        "type": "queue-operation",
        "operation": "enqueue",
        "timestamp": stamp(second),
        "sessionId": SESSION,
        "content": words,
        **fields,
    }


def read(tmp_path, *records):
    return archive(tmp_path, *records).read_session(SESSION)


def notes(turn):
    return [item.text for item in turn.items if getattr(item, "kind", None) is NoteKind.CLIENT]


@pytest.mark.parametrize(
    "text",
    [
        [text(OPENED), text("Fix it."), text(REMINDER)],
        f"{OPENED}\nFix it.\n{REMINDER}",
    ],
)
def test_added_context_is_a_note_of_the_turn_and_no_prompt(tmp_path, text):
    session = read(tmp_path, user(text, 1), assistant("m1", 2, SAID))

    (turn,) = session.turns
    assert (turn.text, session.title, turn.kind) == ("Fix it.", "Fix it.", PromptKind.HUMAN)
    assert notes(turn) == [OPENED, REMINDER]


def test_a_file_that_an_editor_attaches_is_a_note_and_no_prompt(tmp_path):
    attached = '<context ref="file:///shop/app.py#L1:2">\nimport shop\n</context>'
    session = read(tmp_path, user([text("Fix it."), text(attached)], 1), assistant("m1", 2, SAID))

    (turn,) = session.turns
    assert (turn.text, notes(turn)) == ("Fix it.", [attached])


def test_a_tag_inside_a_prompt_stays_in_the_prompt(tmp_path):
    session = read(tmp_path, user(f"What is {REMINDER} good for?", 1), assistant("m1", 2, SAID))

    assert session.turns[0].text == f"What is {REMINDER} good for?"


def test_a_record_of_context_alone_starts_no_turn(tmp_path):
    session = read(tmp_path, user(OPENED, 1), user("Fix it.", 2), assistant("m1", 3, SAID))

    assert [turn.text for turn in session.turns] == ["Fix it."]


def test_a_prompt_written_again_with_its_old_time_is_one_turn(tmp_path):
    reply = {**assistant("m1", 2, SAID), "uuid": "u8"}
    again = [{**user("Go.", 1), "uuid": "u7"}, reply, user("Go.", 3), assistant("m2", 4, SAID)]
    session = read(tmp_path, user("Go.", 1), assistant("m1", 2, SAID), *again)

    assert [(turn.text, len(turn.steps)) for turn in session.turns] == [("Go.", 1), ("Go.", 1)]


def replayed_session():
    """A prompt of three blocks, which a resumed session writes again block by block."""
    first = [text(OPENED), IMAGE, text("What is this?")]
    thought = {"type": "thinking", "thinking": "A picture."}
    return [
        user(first, 1),
        assistant("m1", 2, thought),
        *(user([block], 3 + number) for number, block in enumerate(first)),
        assistant("m1", 6, thought),
        assistant("m1", 7, SAID),
        user("What is this?", 8),
        assistant("m2", 9, SAID),
    ]


def test_blocks_written_again_are_neither_prompts_nor_thoughts_twice(tmp_path):
    session = read(tmp_path, *replayed_session())

    assert [turn.text for turn in session.turns] == ["What is this?", "What is this?"]
    assert [type(block).__name__ for block in session.steps[0].content] == ["Thinking", "Text"]
    assert sum("written again" in note for note in notes(session.turns[0])) == 3


@pytest.mark.parametrize("uuid", ["a", "z"])
def test_a_block_written_again_with_the_old_time_is_no_prompt(tmp_path, uuid):
    first = {**user([text(OPENED), text("Go.")], 1), "uuid": "m"}
    again = {**user("Go.", 1), "uuid": uuid}

    session = read(tmp_path, first, assistant("m1", 2, SAID), again)

    assert [(turn.text, len(turn.steps)) for turn in session.turns] == [("Go.", 1)]


def test_an_outline_in_bounded_memory_knows_replayed_and_queued_prompts():
    records = [*replayed_session(), make_queued_prompt("And this.", 10), assistant("m3", 11, SAID)]
    items = entries_of(map(json.dumps, records))
    expected = fold(items, Retain.ALL)

    for eviction in (Eviction(3, 1), Eviction(5, 2), Eviction(8, 1)):
        try:
            assert fold(items, Retain.TAIL, eviction).threads == expected.threads
        except OutOfOrder:
            continue


def fold(items, *how):
    folded = SessionFold("s", "claude-code", price, *how)
    for item in items:
        folded.add(item)
    return folded.outline()


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [user("And this.", 4)],
        [
            {
                **user("", 4),
                "type": "attachment",
                "attachment": {"type": "queued_command", "prompt": "And this."},
            }
        ],
    ],
    ids=["recorded once", "sent after the turn", "sent as an attachment"],
)
def test_a_prompt_typed_while_the_agent_works_is_one_turn(tmp_path, sent):
    records = [user("Go.", 1), assistant("m1", 2, SAID), make_queued_prompt("And this.", 3), *sent]
    session = read(tmp_path, *records, assistant("m2", 5, SAID))

    assert [turn.text for turn in session.turns] == ["Go.", "And this."]
    assert [len(turn.steps) for turn in session.turns] == [1, 1]


def test_a_message_of_another_session_is_one_turn(tmp_path):
    message = '<cross-session-message from="a"{}>Go.</cross-session-message>'
    sent = (
        f"Another Claude session sent a message:\n{message.format('')}\nRefuse what is forbidden."
    )
    waiting = make_queued_prompt(message.format(' hop-chain="1,2"'), 1)
    session = read(tmp_path, waiting, user(sent, 2, isMeta=True), assistant("m1", 3, SAID))

    assert [(turn.kind, turn.text) for turn in session.turns] == [(PromptKind.TASK, sent)]


def test_a_queued_note_that_a_task_began_is_no_prompt(tmp_path):
    source = archive(
        tmp_path,
        user("Go.", 1),
        make_queued_prompt(TASK_STARTED, 2),
        assistant("m1", 3, SAID),
    )

    assert [turn.text for turn in source.read_session(SESSION).turns] == ["Go."]


@pytest.mark.parametrize("fields", [{}, {"content": "And this."}])
def test_drafts_taken_back_from_the_queue_are_no_prompts(tmp_path, fields):
    records = [
        user("Go.", 1),
        make_queued_prompt("And this.", 2),
        make_queued_prompt("<task-notification>done</task-notification>", 3),
        {**make_queued_prompt("", 4), **fields, "operation": "popAll"},
        make_queued_prompt("And that.", 5),
        assistant("m1", 6, SAID),
    ]
    if not fields:
        del records[3]["content"]
    source = archive(tmp_path, *records)
    items = entries_of(map(json.dumps, records))

    texts = [turn.text for turn in source.read_session(SESSION).turns]
    assert [text[:9] for text in texts] == ["Go.", "<task-not", "And that."]
    assert fold(items, Retain.TAIL).threads == fold(items, Retain.ALL).threads


@pytest.mark.parametrize(
    ("records", "title"),
    [
        ([user("/exit", 1), user("# Fix it", 2)], "Fix it"),
        ([user("<command-name>/model</command-name>", 1), user("**Fix** it", 2)], "Fix** it"),
        ([{"type": "summary", "summary": "Invalid API key · Please run /login", "leafUuid": "u1"},
          user("- Fix it", 1)], "Fix it"),
        ([user("<command-name>/exit</command-name>", 1)], ""),
        ([{"type": "custom-title", "customTitle": "<local-command-caveat>Caveat (Fork)"},
          user("Fix it", 1)], "Fix it"),
        ([user("<command-name>/init</command-name>", 1), assistant("m1", 2, SAID)], "/init"),
        ([user("<command-name>/review</command-name>", 1), assistant("m1", 2, SAID), user("y", 3)],
         "/review"),
        ([user("<command-name>/context</command-name>", 1), user("Fix it", 2)], "Fix it"),
        ([{"type": "summary", "summary": "Request timed out", "leafUuid": "u1"},
          user("API Error 500 in the shop, fix it", 1)], "API Error 500 in the shop, fix it"),
        ([make_queued_prompt(TASK_STARTED, 1), user("Fix it", 2)], "Fix it"),
    ],
)  # fmt: skip
def test_a_title_comes_from_the_first_real_prompt(tmp_path, records, title):
    source = archive(tmp_path, *records)

    assert source.read_session(SESSION).title == title
    assert [summary.title for summary in source.iter_summaries()] == [title]


def test_a_session_without_prompt_and_response_is_empty(tmp_path):
    (empty,) = archive(
        tmp_path / "empty", user("<command-name>/exit</command-name>", 1)
    ).iter_summaries()
    (asked,) = archive(tmp_path / "asked", user("Go.", 1)).iter_summaries()

    assert (empty.is_empty, asked.is_empty) == (True, False)


@pytest.mark.parametrize("case", [case for case in CASES if "queued" in case])
def test_clients_in_between_have_no_unknown_records(tmp_path, case):
    source = recorded_archive(tmp_path, case)
    sessions = list(source.iter_sessions())

    assert [session.unknown_record_types for session in sessions] == [()] * len(sessions)
    assert [session.unknown_fields for session in sessions] == [()] * len(sessions)
    for session in sessions:
        outline = SessionFollower(source, session.id).refresh()
        prompts = [turn.text for turn in session.turns if turn.kind is PromptKind.HUMAN]
        assert outline.summary.turns == sum(turn.kind is not None for turn in session.turns)
        assert not any(prompt.startswith("<") for prompt in prompts)
        if prompts and not case.startswith("2.0.14"):
            assert prompts.count("Also this, please.") == 1


def test_progress_keeps_the_chain_and_repeats_no_subagent(tmp_path):
    session = next(recorded_archive(tmp_path, "2.1.63/interactive-queued").iter_sessions())

    assert not any(turn.is_rewound for turn in session.turns)
    assert sum("SUBTASK" in turn.text for turn in session.turns) == 0
    assert [len(subagent.turns[0].steps) for subagent in session.subagents] == [2, 2]
