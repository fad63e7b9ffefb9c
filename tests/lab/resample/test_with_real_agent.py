"""What the real client asked, asked again; and its second session run once more from where it began."""

import json

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.resample import requests
from flightlog.lab.resample.plan import Sweep
from flightlog.lab.resample.samples import list_samples, list_variants
from flightlog.lab.resample.service import (
    SamplingOptions,
    dump_request,
    list_requests,
    rerun_session,
    resample_edited,
    resample_grid,
)
from flightlog.lab.resample.state import BatchLimits
from support import labs
from support.paying import paying
from support.sampled import KEY, holds

SCRIPT = {
    "rules": [
        {
            "when": {"prompt": "number two"},
            "replies": [{"blocks": [labs.bash("echo two >> log")]}, {"text": "two is done"}],
        },
        {
            "replies": [
                {
                    "blocks": [
                        {"thinking": "First look.", "signature": "signed"},
                        labs.bash("echo one >> log"),
                    ]
                },
                {"text": "one is done"},
            ]
        },
    ]
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    more = {"session_mode": "chained", "in_place": "keep"}
    given = labs.config(root, SCRIPT, "number one", "number two", **more)
    labs.run(root, given)
    return root


@pytest.fixture
def book(ran, monkeypatch):
    for name, value in labs.environment(ran).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return service.open_run(open_runtime(), ran / "runs", "run")


def test_a_request_of_the_real_client_is_asked_again(book):
    listed = list_requests(open_runtime(), book, 1, 0)
    wanted = next(request for request in listed if request.turn == 2)
    recorded = json.loads(
        (book.path / f"session_01/raw_dumps/request_{wanted.request_index:03d}.json").read_text()
    )
    heads = json.loads(
        (
            book.path / f"session_01/raw_dumps/request_{wanted.request_index:03d}_headers.json"
        ).read_text()
    )

    with paying() as till:
        sent = SamplingOptions(BatchLimits(), lambda *_: None, base_url=till.url)
        resample_grid(open_runtime(), book, Sweep(turns=(2,), count=3), sent, dry_run=False)
        body = dump_request(book, 1, 0, wanted.request_index)
        edited = requests.replace_values(body, {"tools": body["tools"][:1], "max_tokens": 100})
        resample_edited(
            open_runtime(),
            book,
            Sweep(requests=(wanted.request_index,), count=1),
            edited,
            "one tool",
            sent=sent,
        )

    assert {"stream", "metadata"} <= set(recorded)
    gone = {"stream", "metadata", "context_management"}
    assert till.came[0].body == {
        name: value for name, value in recorded.items() if name not in gone
    }
    assert "signed" in json.dumps(till.came[0].body["messages"])
    assert till.came[0].headers["anthropic-beta"] == heads["headers"]["anthropic-beta"]
    assert till.came[0].path == heads["path"]
    assert not [
        name
        for name in till.came[0].headers
        if name.startswith(("x-stainless", "x-claude", "x-app"))
    ]
    assert len(till.came[3].body["tools"]) == 1
    assert [(sample.variant, sample.error) for sample in list_samples(book.path)] == [
        (0, "")
    ] * 3 + [(1, "")]
    assert {change.path[0] for change in list_variants(book.path)[0].edits} == {
        "max_tokens",
        "tools",
    }
    assert holds(book.path, KEY) == []


def test_a_session_that_went_on_from_another_is_run_again_from_there(book, ran):
    before = (ran / "work" / "log").read_text()

    again = rerun_session(open_runtime(), book, 2, 2, budget_usd=None, tell=lambda *_: None)

    assert before == "one\ntwo\n"
    assert (ran / "work" / "log").read_text() == before
    for name in ("session_02_r02", "session_02_r03"):
        assert again.state.last_attempt(name).stop_reason == "completed"
        asked = json.loads((again.path / name / "raw_dumps/request_001.json").read_text())
        assert "number one" in json.dumps(asked["messages"])
        assert "+two" in (again.path / name / "session_diff.patch").read_text()
    meta = labs.meta(again)
    assert meta["session_count"] == 4
    assert meta["total_steps"] == sum(session["step_count"] for session in meta["sessions"])
    assert holds(again.path, KEY) == []
