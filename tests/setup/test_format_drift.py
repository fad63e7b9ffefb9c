from pathlib import Path

import pytest

from flightlog.agents.claude_code.files import JOURNAL
from flightlog.setup.format_drift import (
    Format,
    TypeFormat,
    compare_formats,
    iter_field_paths,
    load_known_format,
    record_type,
)
from flightlog.sources.foreign_json import read_json_objects
from support.real_agent import PINNED, make_bench, new_session

ON_FILE = Format(
    "agent",
    "1",
    {
        "user": TypeFormat(("type", "uuid"), ("isMeta",), every_session=True),
        "system/api_error": TypeFormat(("type", "subtype")),
        "hook/Stop": TypeFormat(("hook_event_name",), every_session=True),
    },
)
TOOLS = {
    "rules": [
        {
            "replies": [
                {
                    "blocks": [
                        {"thinking": "Hm."},
                        {"tool": "Bash", "input": {"command": "echo x", "description": "x"}},
                    ]
                },
                {"text": "Done."},
            ]
        }
    ]
}


def test_known_types_and_fields_are_no_drift():
    drift = compare_formats(
        [[{"type": "user", "uuid": "1"}, {"type": "user", "uuid": "2", "isMeta": True}]], ON_FILE
    )

    assert (bool(drift), drift.record_count) == (False, 2)
    assert not compare_formats([], ON_FILE)


def test_added_and_dropped_types_and_fields_are_listed_one_by_one():
    drift = compare_formats(
        [[{"type": "user", "message": {"id": 1}}, {"type": "novelty"}]], ON_FILE
    )

    assert drift.added_types == ("novelty",)
    assert drift.added_fields == (("user", "message"), ("user", "message.id"))
    assert drift.dropped_fields == (("user", "uuid"),)
    assert compare_formats(
        [[{"type": "system", "subtype": "api_error"}]], ON_FILE
    ).dropped_types == ("user",)


def test_a_field_some_records_lack_is_not_dropped():
    assert not compare_formats(
        [[{"type": "user", "uuid": "1"}, {"type": "user"}]], ON_FILE
    ).dropped_fields


def test_subtypes_and_attachments_are_types_of_their_own():
    assert record_type({"type": "system", "subtype": "api_error"}) == "system/api_error"
    assert record_type({"type": "attachment", "attachment": {"type": "file"}}) == "attachment/file"
    assert record_type({"hook_event_name": "Stop", "type": "x"}) == "hook/Stop"
    assert record_type({}) == "without a type"


def test_keys_that_are_data_are_not_fields():
    record = {
        "message": {"content": [{"input": {"secret": 1}}, "text", {"type": "x"}]},
        "modelUsage": {"opus": {}},
    }

    assert sorted(set(iter_field_paths(record))) == [
        "message",
        "message.content",
        "message.content[].input",
        "message.content[].type",
        "modelUsage",
    ]


def test_damaged_lines_are_passed_over(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type":"user","uuid":"1"}\n\xff\n[1]\n{"type":"us')

    assert compare_formats([read_json_objects(path)], ON_FILE).record_count == 1


def test_the_pinned_agent_writes_what_is_on_file(bench):
    bench.install_hooks()
    session = new_session()
    bench.run(TOOLS, "Go.", session=session)
    bench.run(TOOLS, "More.", resume=session)

    drift = compare_formats([bench.transcripts()[session]], load_known_format())
    hooks = compare_formats(
        [[event["payload"] for event in bench.hooks(session)]], load_known_format()
    )
    assert load_known_format().version == PINNED
    assert (drift.added_types, drift.added_fields, drift.dropped_types, drift.dropped_fields) == (
        (),
        (),
        (),
        (),
    )
    assert (hooks.added_types, hooks.added_fields, hooks.dropped_fields) == ((), (), ())


@pytest.mark.slow
def test_another_version_is_recognized_by_what_it_lacks(tmp_path):
    bench = make_bench(tmp_path, "2.1.100")
    bench.run(TOOLS, "Go.")

    drift = compare_formats(bench.transcripts().values(), load_known_format())
    assert {"api-request", "api-request-shape"} <= set(drift.dropped_types)
    assert "assistant" in {kind for kind, _ in drift.dropped_fields}


def test_no_recording_of_the_pinned_version_has_an_unknown_type_or_field():
    known = load_known_format()
    root = Path(__file__).parents[1] / "recordings" / "claude-code" / known.version
    files = [path for path in root.rglob("*.jsonl") if path.name != JOURNAL]

    drift = compare_formats(map(read_json_objects, files), known)

    assert len(files) > 20
    assert (drift.added_types, drift.added_fields) == ((), ())
