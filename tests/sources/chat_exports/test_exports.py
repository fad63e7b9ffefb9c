"""Exports: cut into conversations as a stream, decoded with branches, canvases, attachments and deletions."""

import io
import json
import random
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.errors import Damage, Invalid, NotFound, Unreadable
from flightlog.retro.analysis.digests import digest_chat
from flightlog.sources.chat_exports import chatgpt, claude_ai
from flightlog.sources.chat_exports.conversation import iter_addressed_messages
from flightlog.sources.chat_exports.reader import (
    decode_element,
    fingerprint_export,
    iter_elements,
    split_export,
)
from support.sources_exports import claude_conversation, claude_message, gpt_conversation, gpt_node

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[]é\n,: ', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet='k"\\{]', max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def reader(data, size):
    """A stream that gives a few bytes at a time, however many are asked for."""
    stream = io.BytesIO(data)
    return lambda _: stream.read(size)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), max_size=5),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_array_is_cut_into_its_elements_whatever_the_chunks(elements, size, is_indented):
    data = json.dumps(elements, indent=2 if is_indented else None).encode()

    pieces = list(split_export(reader(data, size)))

    assert [json.loads(piece.data) for piece in pieces] == elements
    assert all(
        data[piece.offset : piece.offset + len(piece.data)] == piece.data for piece in pieces
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=12), st.integers(1, 400), st.booleans())
def test_elements_that_begin_alike_are_cut_where_they_end(values, size, is_damaged):
    hostile = {
        "title": 'x"}, {"title": ',
        "inner": [{"title": 1}, {"title": 2}, {"title": 3}, {"title": 4}],
    }
    elements = [{"title": value, "more": [hostile, value]} for value in values]
    data = json.dumps([*elements, hostile, *elements]).encode()
    data = data.replace(b'{"title": 4}', b'{"title": four}', 1) if is_damaged else data

    pieces = list(split_export(reader(data, size)))

    assert len(pieces) == 2 * len(values) + 1
    assert all(
        json.loads(piece.data) == want
        for piece, want in zip(pieces[1:], elements[1:], strict=False)
    )
    assert b"[" + b", ".join(piece.data for piece in pieces) + b"]" == data


@pytest.mark.parametrize("data", [b'[{"a": 1}, {"b', b'[{"a": 1}', b'[{"a": "x'])
def test_an_export_that_ends_in_the_middle_is_refused(data):
    with pytest.raises(Invalid, match="ends in the middle"):
        list(split_export(io.BytesIO(data).read))


def test_branches_stay_and_the_current_thread_is_the_main_one():
    conversation = gpt_conversation(
        gpt_node("q", "root", ["a1", "a2"], text="Question"),
        gpt_node("a1", "q", role="assistant", text="First answer"),
        gpt_node("a2", "q", ["q2"], role="assistant", text="Second answer"),
        gpt_node("q2", "a2", text="Next question"),
        current="q2",
    )

    chat = chatgpt.decode_chat(json.dumps(conversation).encode())

    places = {message.text: address for address, message in iter_addressed_messages(chat)}
    assert places == {"Question": "g1#1", "Second answer": "g1#1.1", "Next question": "g1#2",
                      "First answer": "g1@branch-1#1.1"}  # fmt: skip
    assert chat.branches == 1
    assert [mark.kind for mark in digest_chat(chat, "1").frictions] == ["regenerated answer"]


def test_canvases_attachments_pictures_and_speech_survive():
    canvas = json.dumps({"name": "Plan", "type": "document", "content": "text"})
    conversation = gpt_conversation(
        gpt_node("q", "root", ["a"], text="", metadata={"attachments": [{"id": "f1", "name": "data.csv"}]},
                 content={"content_type": "multimodal_text", "parts": [
                     {"content_type": "image_asset_pointer", "asset_pointer": "x"},
                     {"content_type": "audio_transcription", "text": "spoken words"}]}),
        gpt_node("a", "q", role="assistant", recipient="canmore.create_textdoc",
                 content={"content_type": "code", "text": canvas}),
        current="a",
    )  # fmt: skip

    asked, wrote = chatgpt.decode_chat(json.dumps(conversation).encode()).messages

    assert (asked.files, asked.text, asked.other) == (
        ("data.csv",),
        "spoken words",
        ("image_asset_pointer",),
    )
    assert wrote.canvas == "Plan"


def test_circular_parents_are_read_once():
    conversation = gpt_conversation(
        gpt_node("a", "b", ["b"]), gpt_node("b", "a", ["a"]), current="a"
    )

    assert len(chatgpt.decode_chat(json.dumps(conversation).encode()).messages) == 2


def test_a_claude_export_tells_branches_attachments_and_deletions():
    messages = [
        claude_message(
            "1", "human", "Question", parent_message_uuid="00000000-0000-4000-8000-000000000000"
        ),
        claude_message("2", "assistant", "First", parent_message_uuid="1"),
        claude_message(
            "3",
            "assistant",
            "Second",
            parent_message_uuid="1",
            attachments=[{"file_name": "a.txt"}],
        ),
        claude_message("4", "human", "", content=[], parent_message_uuid="3"),
    ]
    chat = claude_ai.decode_chat(json.dumps(claude_conversation(chat_messages=messages)).encode())
    gone = claude_ai.decode_chat(
        json.dumps(claude_conversation("c9", chat_messages=[], name="")).encode()
    )

    assert [(message.text, message.subagent) for message in chat.messages] == [
        ("Question", ""), ("Second", ""), ("", ""), ("First", "branch-1")]  # fmt: skip
    assert chat.messages[1].files == ("a.txt",)
    assert chat.messages[2].is_deleted
    assert gone.is_deleted
    assert gone.id == "c9"


@pytest.mark.parametrize(
    ("given", "canvas"),
    [({"title": "Chart", "id": "a"}, "Chart"), ({"id": "a"}, "a"), ({}, "artifact"), ([], "")],
)
def test_a_canvas_of_a_claude_export_has_its_title(given, canvas):
    made = {"type": "tool_use", "name": "artifacts", "input": given}
    content = [{"type": "text", "text": "Here."}, made, {"type": "text", "text": 7}]
    messages = [claude_message("1", "assistant", "", content=content)]

    (message,) = claude_ai.decode_chat(
        json.dumps(claude_conversation(chat_messages=messages)).encode()
    ).messages

    assert (message.text, message.canvas) == ("Here.", canvas)
    assert message.other == ("tool_use", "text")


def test_a_zip_is_read_without_unpacking_and_damage_costs_one_conversation(tmp_path):
    chats = [
        claude_conversation("c1"),
        {"uuid": "c2", "chat_messages": "none"},
        claude_conversation("c3"),
    ]
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("data/conversations.json", json.dumps(chats))
        box.writestr("users.json", "[{}]")

    read = [decode_element(element) for element in iter_elements(path)]

    assert [type(item) is Damage for item in read] == [False, True, False]
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_is_no_export_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("hello")
    with pytest.raises(Unreadable, match="no JSON"):
        list(iter_elements(path))
    path.write_text('[{"name": 1}]')
    with pytest.raises(Invalid, match="neither"):
        list(iter_elements(path))
    with pytest.raises(NotFound):
        fingerprint_export(tmp_path / "none.zip")


def test_a_changed_middle_is_found_by_time_a_changed_size_by_hash(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b"[" + b" " * 100 + b"]")
    first = fingerprint_export(path)
    path.write_bytes(b"[" + b" " * 101 + b"]")

    assert fingerprint_export(path).file_hash != first.file_hash
    assert len(first.file_hash) == 16


def test_each_byte_of_a_long_string_is_looked_at_a_few_times_at_most():
    long = "x" * 3_000_000
    data = json.dumps([{"a": long, "b": random.Random(1).random()}]).encode()
    asked = []
    stream = io.BytesIO(data)

    def read(count):
        asked.append(count)
        return stream.read(count)

    assert len(list(split_export(read))) == 1
    assert len(asked) <= 3


def test_overnested_conversation_is_damage_and_hides_no_other(tmp_path):
    chats = [claude_conversation(f"c{number}") | {"more": "HERE"} for number in range(3)]
    text = json.dumps(chats).replace('"HERE"', "[" * 50_000 + "]" * 50_000, 1)
    (tmp_path / "conversations.json").write_text(text)

    read = [decode_element(element) for element in iter_elements(tmp_path / "conversations.json")]

    assert [type(item) is Damage for item in read] == [True, False, False]
