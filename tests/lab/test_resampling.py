"""Asking again: what is sent, what is kept, what it costs, and what is never sent at all."""

import json
import re
import threading

import pytest

from flightlog.app import lab, lab_resample
from flightlog.app.lab_resample import Sent
from flightlog.lab.resampling import editing
from flightlog.lab.resampling.events import Limits
from flightlog.lab.resampling.layout import JOURNAL
from flightlog.lab.resampling.reading import samples, variants
from flightlog.lab.resampling.sweep import Change, Sweep, parse
from flightlog.model.errors import Conflict, Invalid, Misconfigured, NotFound
from flightlog.store.files import lock
from paying import Said, message, paying
from sampled import KEY, answers, copied, finished, holds

SONNET = "claude-sonnet-4-5"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("made"))


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    return copied(made, tmp_path)


def book(run):
    return lab.open_book(run.parent, run.name)


def sent(url="", **limits):
    return Sent(Limits(**({"wait_s": 0.01} | limits)), lambda *_: None, base_url=url)


def ask(run, url="", *, sweep=None, dry_run=False, **limits):
    return lab_resample.resampled(book(run), sweep or Sweep(requests=(2,)), sent(url, **limits), dry_run=dry_run)


def edit(run, url, body, label="edit", **more):
    return lab_resample.edited(book(run), Sweep(requests=(2,), count=2, **more), body, label, sent(url))


def test_a_request_is_sent_as_it_was_recorded_but_for_what_only_its_client_needs(run):
    recorded = json.loads((run / "session_01/raw_dumps/request_002.json").read_text())

    with paying() as till:
        told = ask(run, till.url)

    assert (told["stop_reason"], told["samples"], told["left"]) == ("completed", 5, 0)
    assert len(till.came) == 5
    dropped = {"stream", "metadata", "context_management"}
    assert till.came[0].body == {name: value for name, value in recorded.items() if name not in dropped}
    assert till.came[0].body["messages"][1]["content"][0] == {
        "type": "thinking", "thinking": "Look first.", "signature": "signed-1",
    }  # fmt: skip
    assert till.came[0].headers["x-api-key"] == KEY
    assert till.came[0].headers["anthropic-version"]
    assert not [name for name in till.came[0].headers if name.startswith(("x-stainless", "x-claude", "x-app"))]
    assert till.came[0].path.startswith("/v1/messages")
    assert list(answers(run)) == [f"sample_0{number}.json" for number in range(1, 6)]
    assert {each["id"] for each in answers(run).values()} == {message(each)["id"] for each in till.came}


def test_new_samples_get_numbers_after_those_there_are_and_totals_stay_true(run):
    before = json.loads((run / "run_meta.json").read_text())

    with paying() as till:
        ask(run, till.url, sweep=Sweep(requests=(2,), count=2))
        ask(run, till.url, sweep=Sweep(requests=(2,), count=1, models=(SONNET,)))

    assert list(answers(run)) == ["sample_01.json", "sample_02.json", "sample_03.json"]
    assert [each.model for each in samples(run)] == ["claude-opus-5-5", "claude-opus-5-5", SONNET]
    meta = json.loads((run / "run_meta.json").read_text())
    assert meta["total_resamples"] == 3
    assert meta["total_resample_cost_usd"] == pytest.approx(sum(each.cost_usd for each in samples(run)))
    assert meta["total_cost_usd"] == before["total_cost_usd"]
    assert len({each.key for each in till.came}) == 3


def test_the_key_stands_in_no_byte_of_the_run_even_when_the_model_says_it(run):
    with paying(lambda asked: Said(body=message(asked, f"your key is {asked.headers['x-api-key']}"))) as till:
        ask(run, till.url)
    with paying(lambda asked: Said(401, {"error": {"message": f"bad key {asked.headers['x-api-key']}"}})) as till:
        told = ask(run, till.url)
    with paying() as till:
        edit(run, till.url, editing.with_set(lab_resample.dumped(book(run), 1, 0, 2), {"system": f"use {KEY}"}))

    assert told["stop_reason"] == "auth_error"
    assert holds(run, KEY) == []
    assert "[scrubbed]" in json.dumps(answers(run))


def test_without_a_key_nothing_is_sent_and_nothing_is_on_record(run, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    with paying() as till, pytest.raises(Misconfigured, match="no key"):
        ask(run, till.url)

    assert till.came == []
    assert not (run / JOURNAL).exists()


def test_a_key_goes_to_no_address_that_only_the_run_names(run):
    config = run / "config.yaml"
    text = config.read_text()
    start = text.index("scenario:")
    end = text.index("\nprovider:")
    real = (text[:start] + text[end + 1 :]).replace("engine: scripted", "engine: claude_code")
    config.write_text(real.replace("base_url: ''", "base_url: https://elsewhere.example"))

    with pytest.raises(Invalid, match="elsewhere"):
        ask(run)

    assert not (run / JOURNAL).exists()


def test_a_busy_api_is_asked_again_after_the_time_it_says(run):
    def say(asked):
        return Said(429, {"error": {"message": "slow down"}}, {"retry-after": "0.2"}) if asked.time < 3 else Said()

    with paying(say) as till:
        told = ask(run, till.url, sweep=Sweep(requests=(2,), count=2), parallel=1)

    assert (told["samples"], told["errors"]) == (2, 0)
    assert [each.time for each in till.came] == [1, 2, 3, 1, 2, 3]
    assert till.at[1] - till.at[0] >= 0.19
    assert answers(run).keys() == {"sample_01.json", "sample_02.json"}


def test_an_api_that_stays_busy_ends_the_batch_which_goes_on_later(run):
    with paying(lambda _: Said(529, {"error": {"message": "overloaded"}})) as till:
        told = ask(run, till.url, retries=1, parallel=2)
    with paying() as till:
        again = lab_resample.resumed(book(run), "", sent(till.url), {})

    assert (told["stop_reason"], told["left"], told["errors"]) == ("rate_limited", 5, 0)
    assert (again["stop_reason"], again["samples"]) == ("completed", 5)
    assert list(answers(run)) == [f"sample_0{number}.json" for number in range(1, 6)]


def test_what_the_api_refuses_is_beside_the_samples_and_the_rest_of_it_is_not_sent(run):
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "temperature: too hot"}}
    sweep = Sweep(requests=(2, 3), count=4)

    with paying(lambda asked: Said(400, refused) if len(asked.body["messages"]) == 3 else Said()) as till:
        told = ask(run, till.url, sweep=sweep, parallel=1)

    assert (told["stop_reason"], told["samples"], told["errors"]) == ("refused", 4, 1)
    assert answers(run) == {"sample_01_error.json": {"error": "temperature: too hot", "status": 400, "body": refused}}
    assert len(answers(run, "request_003")) == 4
    assert len(till.came) == 5


def test_a_server_error_costs_one_sample_not_the_batch(run):
    def say(asked):
        return Said(500, b"<html>oops") if message(asked)["id"] == broken[0] else Said()

    broken: list[str] = []
    with paying(lambda asked: (broken.append(message(asked)["id"]) if not broken else None, say(asked))[1]) as till:
        told = ask(run, till.url, retries=1, parallel=1)

    assert (told["stop_reason"], told["samples"], told["errors"]) == ("completed", 4, 1)
    assert answers(run)["sample_01_error.json"] == {"error": "status 500", "status": 500, "body": "<html>oops"}
    assert till.paid[""] == 0


def test_no_more_is_spent_than_the_budget(run):
    with paying() as till:
        one = ask(run, till.url, sweep=Sweep(requests=(2,), count=1))["cost_usd"]
        told = ask(run, till.url, sweep=Sweep(requests=(2,), count=20), max_budget_usd=one * 5.5, parallel=3)
        more = lab_resample.resumed(book(run), "", sent(till.url), {})
        all_of_it = lab_resample.resumed(book(run), "", sent(till.url), {"max_budget_usd": one * 21})

    assert told["stop_reason"] == "budget_exhausted"
    # The first of them were expected to cost what the recorded answer did, which was less.
    assert one * 4 <= told["cost_usd"] <= one * 7
    assert told["samples"] + told["left"] == 20
    assert more["samples"] == told["samples"]
    assert (all_of_it["stop_reason"], all_of_it["samples"]) == ("completed", 20)


def test_a_budget_that_nobody_could_keep_is_refused(run):
    with paying() as till, pytest.raises(Invalid, match="not known"):
        ask(run, till.url, sweep=Sweep(requests=(2,), models=("my-own-model",)), max_budget_usd=1.0)

    assert till.came == []


def test_the_rate_and_the_number_at_once_are_kept(run):
    with paying(lambda _: Said(delay_s=0.05)) as till:
        ask(run, till.url, sweep=Sweep(requests=(2,), count=8), parallel=3)
        at_once = till.most_at_once
        del till.at[:]
        ask(run, till.url, sweep=Sweep(requests=(2,), count=5), per_minute=600)

    assert at_once == 3
    gaps = [after - before for before, after in zip(till.at, till.at[1:], strict=False)]
    assert min(gaps) >= 0.08


def test_an_edit_becomes_a_variant_that_says_what_was_changed(run):
    body = lab_resample.dumped(book(run), 1, 0, 2)
    body["messages"][2]["content"][0]["content"] = "nothing here"
    body["temperature"] = 0.5
    del body["tools"]

    with paying() as till:
        told = edit(run, till.url, body, "empty result")
        again = edit(run, till.url, body, "empty result")
        other = edit(run, till.url, {**body, "temperature": 0.6}, "empty result")

    assert [each["path"][-4:] for each in told["targets"]] == ["_v01"]
    assert [each["first"] for each in again["targets"]] == [3]
    assert [each["variant"] for each in other["targets"]] == [2]
    assert till.came[0].body == body
    folder = run / "session_01/resamples/request_002_v01"
    assert sorted(path.name for path in folder.iterdir()) == [
        "request.json", "sample_01.json", "sample_02.json", "sample_03.json", "sample_04.json", "variant.json",
    ]  # fmt: skip
    assert json.loads((folder / "request.json").read_text()) == body
    said = json.loads((folder / "variant.json").read_text())
    assert (said["label"], said["base_request_index"], said["source"]) == ("empty result", 2, "cli")
    assert [(each["path"], each["replacement"]) for each in said["edits"]] == [
        (["messages", 2, "content", 0, "content"], "nothing here"),
        (["tools"], None),
        (["temperature"], 0.5),
    ]
    assert [each.label for each in variants(run)] == ["empty result", "empty result"]


def _first(body, message):
    return body["messages"][message]["content"][0]


def test_an_edited_thinking_block_is_refused_before_anything_is_sent(run):
    original = lab_resample.dumped(book(run), 1, 0, 3)
    place = "messages.1.content.0"
    edits = {
        "words": editing.with_set(original, {f"{place}.thinking": "Do not look."}),
        "signature": editing.with_set(original, {f"{place}.signature": "signed-9"}),
        "added": editing.with_set(original, {"messages.0.content": [{"type": "thinking", "thinking": "x"}]}),
        "redacted": editing.with_set(original, {place: {"type": "redacted_thinking", "data": "zzz"}}),
        "swapped": editing.with_set(
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
                lab_resample.edited(book(run), Sweep(requests=(3,), count=1), body, label, sent(till.url))

        dropped = lab_resample.edited(
            book(run), Sweep(requests=(3,), count=1), editing.without_thinking(original), "dropped", sent(till.url)
        )

    assert len(till.came) == 1
    assert "thinking" not in json.dumps(till.came[0].body["messages"])
    assert dropped["samples"] == 1
    assert [each.label for each in variants(run)] == ["dropped"]


def test_a_grid_is_one_batch_with_one_budget(run):
    text = f"""
    turns: [1, 2]
    models: [claude-opus-5-5, {SONNET}]
    variants:
      - {{label: cold, set: {{temperature: 0}}}}
      - {{label: quiet, drop_thinking: true, set: {{messages.0.content: do nothing}}}}
    count: 2
    max_budget_usd: 3
    """

    with paying() as till:
        told = ask(run, till.url, sweep=parse(text))

    assert (told["samples"], len(told["targets"])) == (24, 12)
    assert {(each.body["model"], each.body.get("temperature")) for each in till.came} == {
        (model, heat) for model in ("claude-opus-5-5", SONNET) for heat in (None, 0)
    }
    by_cell = {}
    for each in samples(run):
        by_cell.setdefault((each.request, each.variant, each.model), []).append(each.number)
    assert len(by_cell) == 12
    assert all(len(numbers) == 2 for numbers in by_cell.values())
    assert by_cell[2, 1, SONNET] == [3, 4]
    assert len((run / JOURNAL).read_text().split('"batch_begun"')) == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("turns: [1]\nmodls: [x]", "models"),
        ("models: [x]", "turns"),
        ("turns: [1]\nvariants: [{label: x}]", "ask-again"),
        ("turns: [1]\ncount: 0", "ask-again"),
        ("turns: [1]\ncount: 1000000", "ask-again"),
        ("- 1", "ask-again"),
        ("turns: [", "line"),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused_with_a_word_on_what_was(text, hint):
    with pytest.raises(Misconfigured) as refused:
        parse(text)

    assert hint in refused.value.hint


def test_a_dry_run_sends_nothing_and_says_about_what_it_costs(run):
    with paying() as till:
        sweep = Sweep(requests=(2,), variants=(Change("cold", {"temperature": 0}),), count=10)
        told = ask(run, till.url, sweep=sweep, dry_run=True)

    assert told["expected_usd"] > 0
    assert [each["path"] for each in told["targets"]] == [
        "session_01/resamples/request_002",
        "session_01/resamples/request_002_v01",
    ]
    assert not (run / "session_01/resamples").exists()
    assert (till.came, (run / JOURNAL).exists()) == ([], False)


def test_one_process_at_a_time_asks_for_samples_of_a_run(run):
    with paying() as till, lock(run / ".resamples.lock"), pytest.raises(Conflict):
        ask(run, till.url)

    assert till.came == []


def test_what_is_not_there_is_said(run):
    with pytest.raises(NotFound, match="no request 99"):
        ask(run, sweep=Sweep(requests=(99,)))
    with pytest.raises(NotFound, match="turn 99"):
        ask(run, sweep=Sweep(turns=(99,)))
    with pytest.raises(NotFound, match="variant 7"):
        ask(run, sweep=Sweep(requests=(2,), numbers=(7,)))
    with pytest.raises(NotFound, match="no batch"):
        lab_resample.resumed(book(run), "", sent(), {})
    with pytest.raises(Invalid, match="no such place"):
        Change("x", {"messages.9.content": "y"}).applied({"messages": []})


def test_a_scripted_run_is_asked_again_offline(run, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    told = ask(run, sweep=Sweep(requests=(1, 2, 3), count=2))

    assert (told["stop_reason"], told["samples"]) == ("completed", 6)
    assert [each.content[-1].get("name") for each in samples(run)] == ["Bash"] * 4 + [None] * 2
    assert threading.active_count() < 20


def test_a_whole_session_is_run_again_as_more_replicates_and_the_totals_tell(run, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine").write_text("since then")
    config = run / "config.yaml"
    config.write_text(re.sub(r"(?m)^work_dir: .*", f"work_dir: {work}", config.read_text()))
    before = json.loads((run / "run_meta.json").read_text())

    lab_resample.session_again(book(run), 1, 2, (None, "local"), lambda *_: None)
    again = lab_resample.session_again(book(run), 1, 1, (None, "local"), lambda *_: None)

    meta = json.loads((run / "run_meta.json").read_text())
    names = ["session_01", "session_01_r01", "session_01_r02", "session_01_r03"]
    assert [each["session_dir"] for each in meta["sessions"]] == names
    assert [each["stop_reason"] for each in meta["sessions"]] == ["completed"] * 4
    assert meta["total_steps"] == 4 * before["total_steps"]
    assert meta["total_file_writes"] == 4 * before["total_file_writes"]
    assert meta["total_cost_usd"] == pytest.approx(4 * before["total_cost_usd"], rel=0.01)
    assert [path.name for path in work.iterdir()] == ["mine"], "the directory is the person's again"
    assert {name: (run / name / "session_diff.patch").read_bytes() for name in names[1:]} == dict.fromkeys(
        names[1:], (run / "session_01/session_diff.patch").read_bytes()
    )
    assert again.state.ended.stop_reason == "completed"


def test_more_of_a_session_cost_no_more_than_is_said(run, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    config = run / "config.yaml"
    config.write_text(re.sub(r"(?m)^work_dir: .*", f"work_dir: {work}", config.read_text()))

    again = lab_resample.session_again(book(run), 1, 3, (0.000001, "local"), lambda *_: None)

    assert "budget_exhausted" in {attempt.stop_reason for tries in again.state.attempts.values() for attempt in tries}
    with pytest.raises(NotFound, match="no session 9"):
        lab_resample.session_again(book(run), 9, 1, (None, "local"), lambda *_: None)
