"""Asking again with something changed: what may be, what is refused, and what is said of it."""

import json

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab.resample import requests, service
from flightlog.lab.resample.plan import Sweep
from flightlog.lab.resample.samples import list_variants
from flightlog.model.errors import Invalid
from support.paying import paying
from support.sampled import book, edit, sampling_options


def test_an_edit_becomes_a_variant_that_says_what_was_changed(run):
    body = service.dump_request(book(run), 1, 0, 2)
    body["messages"][2]["content"][0]["content"] = "nothing here"
    body["temperature"] = 0.5
    del body["tools"]

    with paying() as till:
        batch = edit(run, till.url, body, "empty result")
        again = edit(run, till.url, body, "empty result")
        other = edit(run, till.url, {**body, "temperature": 0.6}, "empty result")

    assert [target["path"][-4:] for target in batch["targets"]] == ["_v01"]
    assert [target["first_sample"] for target in again["targets"]] == [3]
    assert [target["variant"] for target in other["targets"]] == [2]
    assert till.came[0].body == body
    folder = run / "session_01/resamples/request_002_v01"
    assert sorted(path.name for path in folder.iterdir()) == [
        "request.json", "sample_01.json", "sample_02.json", "sample_03.json", "sample_04.json", "variant.json",
    ]  # fmt: skip
    assert json.loads((folder / "request.json").read_text()) == body
    variant = json.loads((folder / "variant.json").read_text())
    assert (variant["label"], variant["base_request_index"], variant["source"]) == (
        "empty result",
        2,
        "cli",
    )
    assert [(change["path"], change["replacement"]) for change in variant["edits"]] == [
        (["messages", 2, "content", 0, "content"], "nothing here"),
        (["tools"], None),
        (["temperature"], 0.5),
    ]
    assert [variant.label for variant in list_variants(run)] == ["empty result", "empty result"]


def _first(body, message):
    return body["messages"][message]["content"][0]


def test_an_edited_thinking_block_is_refused_before_anything_is_sent(run):
    original = service.dump_request(book(run), 1, 0, 3)
    place = "messages.1.content.0"
    edits = {
        "words": requests.replace_values(original, {f"{place}.thinking": "Do not look."}),
        "signature": requests.replace_values(original, {f"{place}.signature": "signed-9"}),
        "added": requests.replace_values(
            original, {"messages.0.content": [{"type": "thinking", "thinking": "x"}]}
        ),
        "redacted": requests.replace_values(
            original, {place: {"type": "redacted_thinking", "data": "zzz"}}
        ),
        "swapped": requests.replace_values(
            original,
            {
                place: original["messages"][3]["content"][0],
                "messages.3.content.0": original["messages"][1]["content"][0],
            },
        ),
    }

    with paying() as till:
        for label, body in edits.items():
            with pytest.raises(Invalid, match="thinking"):
                service.resample_edited(
                    open_runtime(),
                    book(run),
                    Sweep(requests=(3,), count=1),
                    body,
                    label,
                    sent=sampling_options(till.url),
                )

        dropped = service.resample_edited(
            open_runtime(),
            book(run),
            Sweep(requests=(3,), count=1),
            requests.without_thinking(original),
            "dropped",
            sent=sampling_options(till.url),
        )

    assert len(till.came) == 1
    assert "thinking" not in json.dumps(till.came[0].body["messages"])
    assert dropped["samples"] == 1
    assert [variant.label for variant in list_variants(run)] == ["dropped"]
