import json
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.agents.claude_code.decode import (
    ATTACHMENT_KINDS,
    FIELDS,
    SYSTEM_KINDS,
    decode_record,
)
from flightlog.model import entries
from flightlog.model.entries import ToolResult, UnknownRecord, UserPrompt
from support.recordings import ROOT
from support.transcripts import assistant, user

LINES = [
    line
    for path in sorted(ROOT.glob("*/*/transcripts/**/*.jsonl"))
    if path.name != "journal.jsonl"  # of a workflow: no transcript
    for line in path.read_bytes().splitlines()
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def decode_event(record):
    (entry,) = decode_record(json.dumps(record).encode())
    return entry.event


@cache
def kinds():
    """One recorded example of every record type, subtype and attachment."""
    by_kind = {}
    for line in LINES:
        record = json.loads(line)
        kind = (record["type"], record.get("subtype"), (record.get("attachment") or {}).get("type"))
        by_kind.setdefault(kind, record)
    return list(by_kind.values())


def paths(value, at=()):
    yield at
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from paths(item, (*at, key))


def replace_value(record, at, value):
    """A copy of `record` in which the place `at` holds `value`."""
    if not at:
        return value
    inner = replace_value(record[at[0]], at[1:], value)
    if isinstance(record, list):
        return [inner if place == at[0] else item for place, item in enumerate(record)]
    return {**record, at[0]: inner}


def test_every_recorded_line_is_known_field_by_field():
    entries = [entry for line in LINES for entry in decode_record(line)]

    assert [entry.event for entry in entries if isinstance(entry.event, UnknownRecord)] == []
    assert {name for entry in entries for name in entry.extra_fields} == set()


@pytest.mark.parametrize("kind", [*FIELDS, "never-met"])
@pytest.mark.parametrize("junk", [None, 7, "x", [], {}, [[]], {"a": None}, True, 1e308])
def test_a_record_with_nothing_or_nonsense_in_its_fields_is_still_an_entry(kind, junk):
    fields = FIELDS.get(kind, frozenset({"message"})) - {"type"}

    bare = decode_record(json.dumps({"type": kind}).encode())
    odd = decode_record(json.dumps({"type": kind, **dict.fromkeys(fields, junk)}).encode())

    assert len(bare) == len(odd) == 1


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_change_to_a_recorded_line_makes_it_raise_or_vanish(data):
    record = data.draw(st.sampled_from(kinds()))
    at = data.draw(
        st.sampled_from([place for place in paths(record) if place and place != ("type",)])
    )

    odd = replace_value(record, at, data.draw(VALUES))
    entries = decode_record(json.dumps(odd).encode())

    assert entries
    assert all(entry.key for entry in entries)


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b'{"type":1}', b'{"type":null}', b'{"type":["user"]}', b"\xff"],
)
def test_value_that_is_not_a_record_decodes_to_none(line):
    assert decode_record(line) is None


def test_an_attachment_of_2_1_90_is_known_though_not_recorded():
    attached = {"type": "companion_intro", "name": "Moss", "species": "owl"}

    event = decode_event({"type": "attachment", "attachment": attached})

    assert event == entries.ContextInjected("companion_intro", "", {})


def test_an_unknown_type_is_kept_by_name_and_fields():
    assert decode_event({"type": "hologram", "beam": 1, "uuid": "x"}) == entries.UnknownRecord(
        "hologram", ("beam", "type", "uuid")
    )
    assert decode_event({"type": "system", "subtype": "new"}) == entries.UnknownRecord(
        "system/new", ("subtype", "type")
    )
    assert decode_event(
        {"type": "attachment", "attachment": {"type": "new", "a": 1}}
    ) == entries.UnknownRecord("attachment/new", ("a", "type"))


def test_an_unknown_field_is_named():
    (entry,) = decode_record(json.dumps(user("hello", newField=1)).encode())

    assert entry.extra_fields == ("user.newField",)


def test_the_key_is_the_records_own_at_any_location():
    named, nameless = json.dumps(user("x")).encode(), b'{"type":"mode","mode":"plan"}'

    assert decode_record(named)[0].key == "u1:0"
    assert decode_record(nameless)[0].key == decode_record(nameless + b"  ")[0].key
    assert decode_record(nameless)[0].key != decode_record(b'{"type":"mode","mode":"auto"}')[0].key


def test_several_results_in_one_record_are_entries_with_own_keys():
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ab"]

    entries = decode_record(
        json.dumps(user([*results, {"type": "text", "text": "and words"}])).encode()
    )

    assert [type(entry.event) for entry in entries] == [ToolResult, ToolResult, UserPrompt]
    assert len({entry.key for entry in entries}) == 3


@pytest.mark.parametrize("agent", ["../../etc", "a/b", "a\x1b[31m", "a#1", "a`b", "x" * 300])
def test_a_subagents_id_that_could_not_be_typed_is_not_taken_over(agent):
    assert decode_record(json.dumps(user("x", agentId=agent)).encode())[0].subagent == "?"
    assert decode_record(json.dumps(user("x", agentId="a1")).encode())[0].subagent == "a1"
    assert decode_record(json.dumps(user("x", isSidechain=True)).encode())[0].subagent == "?"


def test_a_reply_carries_what_a_ledger_needs():
    event = decode_event(
        assistant("m1", 2, {"type": "text", "text": "hi"}, isAbortedMidStream=True, apiBlockIndex=3)
    )

    assert (event.message_id, event.request_id, event.block_index, event.is_aborted) == (
        "m1",
        "req_m1",
        3,
        True,
    )
    assert (event.usage.input_tokens, event.usage.output_tokens) == (10, 5)


def test_a_synthetic_reply_is_typed_as_such_and_so_is_an_error():
    record = assistant("m1", isApiErrorMessage=True, error="rate_limit")
    record["message"]["model"] = "<synthetic>"

    event = decode_event(record)

    assert event.is_synthetic
    assert event.error == "rate_limit"
    assert decode_event(assistant("m1", error="ignored")).error == ""


def test_remarks_of_the_client_without_words_are_kept_without_a_note():
    empty = {
        "type": "system",
        "subtype": "local_command",
        "content": "<local-command-stdout></local-command-stdout>",
    }

    assert decode_event(empty) == entries.Ignored("system/local_command", is_activity=True)
    for content, words in [
        ("done", "done"),
        ("<local-command-stdout>done</local-command-stdout>", "done"),
        ("<command-name>/rename</command-name><command-args>a</command-args>", "/rename a"),
    ]:
        note = decode_event({**empty, "content": content})
        assert note == entries.ClientNote("local_command", words)


def test_system_records_without_a_subtype_are_notes_unless_about_hooks():
    record = {"type": "system", "content": "limit reached, now using another model"}

    assert decode_event({**record, "level": "warning"}) == entries.ClientNote(
        "informational", record["content"]
    )
    assert decode_event({**record, "level": "info"}) == entries.Ignored("system/", is_activity=True)


def test_hook_errors_are_notes_and_their_absence_is_not():
    record = {"type": "system", "subtype": "stop_hook_summary", "hookErrors": ["a", 1, "b"]}

    assert decode_event(record) == entries.ClientNote("hook", "a; b")
    assert decode_event({**record, "hookErrors": []}) == entries.Ignored(
        "system/stop_hook_summary", is_activity=True
    )


def test_an_input_a_hook_rewrote_is_found_in_what_the_hook_printed():
    stdout = json.dumps({"hookSpecificOutput": {"updatedInput": {"command": "ls"}}})
    attached = {"type": "hook_success", "toolUseID": "t1", "stdout": stdout}

    assert decode_event(
        {"type": "attachment", "attachment": attached}
    ) == entries.ToolInputRewritten("t1", {"command": "ls"})
    for printed in (
        "",
        "not json",
        "[]",
        '{"hookSpecificOutput":1}',
        '{"hookSpecificOutput":{"updatedInput":"x"}}',
    ):
        event = decode_event({"type": "attachment", "attachment": {**attached, "stdout": printed}})
        assert event == entries.ContextInjected("hook_success", "")


@pytest.mark.parametrize("kind", ["scheduled_task_fire", "permission_retry", "model_fallback"])
def test_what_the_client_tells_the_person_is_a_note(kind):
    record = {"type": "system", "subtype": kind, "content": "Resuming /loop wakeup"}

    assert decode_event(record) == entries.ClientNote(kind, "Resuming /loop wakeup")


def test_a_blocking_hook_is_a_note():
    attached = {"type": "hook_blocking_error", "blockingError": {"blockingError": "no"}}

    assert decode_event({"type": "attachment", "attachment": attached}) == entries.ClientNote(
        "hook", "no"
    )


def test_titles_are_read_however_a_version_wrote_them():
    assert decode_event({"type": "ai-title", "aiTitle": "A"}) == entries.SessionTitled("A")
    assert decode_event({"type": "custom-title", "customTitle": "B"}) == entries.SessionTitled(
        "B", is_user_title=True
    )
    assert decode_event(
        {"type": "summary", "leafUuid": "u", "summary": '{"title":"C"}'}
    ) == entries.SessionSummarized("u", "C")
    assert decode_event(
        {"type": "summary", "leafUuid": "u", "summary": "{broken"}
    ) == entries.SessionSummarized("u", "{broken")


def test_a_cut_stream_differs_from_other_failures():
    error = {"formatted": "cut", "status": 529, "connection": {"code": "StreamTruncated"}}
    record = {"type": "system", "subtype": "api_error", "retryAttempt": 2, "error": error}

    assert decode_event(record) == entries.ApiError("cut", 529, 2, is_truncated=True)
    assert decode_event({**record, "error": "plain words"}) == entries.ApiError("plain words", 0, 2)
    answer = {"status": 529, "error": {"type": "error", "error": {"message": "Overloaded"}}}
    assert decode_event({**record, "error": answer}) == entries.ApiError("Overloaded", 529, 2)
    refused = {"cause": {"code": "ConnectionRefused"}}
    assert decode_event({**record, "error": refused}) == entries.ApiError("ConnectionRefused", 0, 2)


def test_known_fields_cover_every_recorded_type():
    met = {
        (record["type"], record.get("subtype"), (record.get("attachment") or {}).get("type"))
        for record in kinds()
    }

    assert {kind for kind, _, _ in met} <= FIELDS.keys()
    assert {kind for _, kind, _ in met if kind} <= SYSTEM_KINDS
    assert {kind for _, _, kind in met if kind} <= ATTACHMENT_KINDS
