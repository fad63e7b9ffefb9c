"""Samples and variants as another reader finds them: by their files, whoever wrote them."""

import json

from flightlog.lab.resample.layout import JOURNAL, SampleItem
from flightlog.lab.resample.samples import list_samples, list_variants
from flightlog.lab.resample.state import SampleAnswered, SampleEvent
from flightlog.model.usage import Usage
from flightlog.store.journal import Journal

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "model": "claude-opus-5-5-20260101",
    "content": [
        {"type": "text", "text": "ls first"},
        {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1000, "output_tokens": 10},
}


def write_files(run, files):
    for name, value in files.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return run


def test_samples_are_read_with_what_was_asked_and_what_came(tmp_path):
    edit = {"path": ["messages", 0, "content", 1, "text"], "original": "a", "replacement": "b"}
    run = write_files(
        tmp_path,
        {
            "session_01/resamples/request_005/sample_01.json": ANSWER,
            "session_01/resamples/request_005/sample_02_error.json": {"error": "busy", "status": 529, "body": "x"},
            "session_01/resamples/request_005_v01/sample_10.json": ANSWER,
            "session_01/resamples/request_005_v01/sample_09.json": ANSWER,
            "session_01/resamples/request_005_v01/variant.json": {
                "label": "no notes", "base_request_index": 5, "edits": [edit], "created_at": "t", "source": "cli",
            },
            "session_01/resamples/request_005/sample_01.json.tmp": "half",
            "session_01/resamples/notes/sample_01.json": ANSWER,
        },
    )  # fmt: skip
    journal = Journal(run / JOURNAL, SampleEvent, now=lambda: "t", new_id=iter("abc").__next__)
    journal.append(
        SampleAnswered("b1", SampleItem("session_01", 5, 1, 9), "claude-opus-5-5", 0.1, "msg_1")
    )

    samples = list_samples(run)
    [variant] = list_variants(run)

    assert [
        (sample.request, sample.variant, sample.number, sample.error) for sample in samples
    ] == [
        (5, 0, 1, ""),
        (5, 0, 2, "busy"),
        (5, 1, 9, ""),
        (5, 1, 10, ""),
    ]
    assert samples[0].content[1]["input"] == {"command": "ls"}
    assert (samples[0].stop_reason, samples[0].usage) == ("tool_use", Usage(1000, 10))
    assert samples[0].cost_usd is not None
    assert samples[0].cost_usd > 0
    assert (samples[0].model, samples[2].model) == ("claude-opus-5-5-20260101", "claude-opus-5-5")
    assert samples[1].status == 529
    assert samples[1].cost_usd is None
    assert (variant.label, variant.edits[0].path) == (
        "no notes",
        ("messages", 0, "content", 1, "text"),
    )
    assert variant.path == "session_01/resamples/request_005_v01"


def test_a_file_that_is_no_answer_is_an_error_and_hides_no_other(tmp_path):
    run = write_files(
        tmp_path,
        {
            "session_01/resamples/request_001/sample_01.json": "{half",
            "session_01/resamples/request_001/sample_02.json": {
                **ANSWER,
                "content": ["?", {"type": "text"}],
            },
            "session_01/resamples/request_001/sample_03.json": {
                **ANSWER,
                "usage": None,
                "model": 7,
            },
            "session_01/resamples/request_001_v02/variant.json": "[]",
        },
    )

    first, second, third = list_samples(run)

    assert first.error
    assert second.content == ({"type": "text"},)
    assert (third.model, third.cost_usd) == ("", 0.0)
    assert [(variant.number, variant.label) for variant in list_variants(run)] == [(2, "")]


def test_an_answer_after_an_error_replaces_it(tmp_path):
    run = write_files(
        tmp_path,
        {
            "session_02_r01/resamples/request_012/sample_01.json": ANSWER,
            "session_02_r01/resamples/request_012/sample_01_error.json": {"error": "busy"},
        },
    )

    assert [(sample.session, sample.number, sample.error) for sample in list_samples(run)] == [
        ("session_02_r01", 1, "")
    ]
