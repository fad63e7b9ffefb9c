"""Asking again: what is sent, what is kept, what it costs, and what is never sent at all."""

import json
import threading
import time

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab.resample import requests, service
from flightlog.lab.resample.layout import JOURNAL
from flightlog.lab.resample.plan import Sweep, SweepVariant
from flightlog.lab.resample.samples import list_samples
from flightlog.model.errors import Conflict, Invalid, Misconfigured, NotFound
from flightlog.store.locks import exclusive_lock
from support.paying import PaidReply, message, paying
from support.sampled import KEY, SONNET, answers, ask, book, edit, holds, sampling_options


def test_a_request_is_resent_as_recorded_without_client_only_fields(run):
    recorded = json.loads((run / "session_01/raw_dumps/request_002.json").read_text())

    with paying() as till:
        batch = ask(run, till.url)

    assert (batch["stop_reason"], batch["samples"], batch["remaining"]) == ("completed", 5, 0)
    assert len(till.came) == 5
    dropped = {"stream", "metadata", "context_management"}
    assert till.came[0].body == {
        name: value for name, value in recorded.items() if name not in dropped
    }
    assert till.came[0].body["messages"][1]["content"][0] == {
        "type": "thinking", "thinking": "Look first.", "signature": "signed-1",
    }  # fmt: skip
    assert till.came[0].headers["x-api-key"] == KEY
    assert till.came[0].headers["anthropic-version"]
    assert not [
        name
        for name in till.came[0].headers
        if name.startswith(("x-stainless", "x-claude", "x-app"))
    ]
    assert till.came[0].path.startswith("/v1/messages")
    assert list(answers(run)) == [f"sample_0{number}.json" for number in range(1, 6)]
    assert {sample["id"] for sample in answers(run).values()} == {
        message(request)["id"] for request in till.came
    }


def test_new_samples_are_numbered_after_old_ones_and_totals_add_up(run):
    before = json.loads((run / "run_meta.json").read_text())

    with paying() as till:
        ask(run, till.url, sweep=Sweep(requests=(2,), count=2))
        ask(run, till.url, sweep=Sweep(requests=(2,), count=1, models=(SONNET,)))

    assert list(answers(run)) == ["sample_01.json", "sample_02.json", "sample_03.json"]
    assert [sample.model for sample in list_samples(run)] == [
        "claude-opus-5-5",
        "claude-opus-5-5",
        SONNET,
    ]
    meta = json.loads((run / "run_meta.json").read_text())
    assert meta["total_resamples"] == 3
    assert meta["total_resample_cost_usd"] == pytest.approx(
        sum(sample.cost_usd for sample in list_samples(run))
    )
    assert meta["total_cost_usd"] == before["total_cost_usd"]
    assert len({request.key for request in till.came}) == 3


def test_the_key_is_in_no_file_of_a_run_though_the_model_says_it(run):
    with paying(
        lambda asked: PaidReply(body=message(asked, f"your key is {asked.headers['x-api-key']}"))
    ) as till:
        ask(run, till.url)
    with paying(
        lambda asked: PaidReply(
            401, {"error": {"message": f"bad key {asked.headers['x-api-key']}"}}
        )
    ) as till:
        batch = ask(run, till.url)
    with paying() as till:
        edit(
            run,
            till.url,
            requests.replace_values(
                service.dump_request(book(run), 1, 0, 2), {"system": f"use {KEY}"}
            ),
        )

    assert batch["stop_reason"] == "auth_error"
    assert holds(run, KEY) == []
    assert "[scrubbed]" in json.dumps(answers(run))


def test_without_a_key_nothing_is_sent_and_nothing_is_on_record(run, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    with paying() as till, pytest.raises(Misconfigured, match="no API key"):
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


def test_a_key_goes_to_no_host_that_a_recorded_path_names(run):
    journal = run / "session_01" / ".exchanges" / "exchanges.jsonl"
    journal.write_text(
        journal.read_text().replace(
            '"path":"/v1/messages', '"path":"@elsewhere.example/v1/messages'
        )
    )

    with paying() as till, pytest.raises(Invalid, match="elsewhere"):
        ask(run, till.url)

    assert till.came == []
    assert not (run / JOURNAL).exists()


def test_a_busy_api_is_asked_again_after_the_time_it_says(run):
    def say(asked):
        return (
            PaidReply(429, {"error": {"message": "slow down"}}, {"retry-after": "0.2"})
            if asked.time < 3
            else PaidReply()
        )

    with paying(say) as till:
        batch = ask(run, till.url, sweep=Sweep(requests=(2,), count=2), parallel=1)

    assert (batch["samples"], batch["errors"]) == (2, 0)
    assert [request.time for request in till.came] == [1, 2, 3, 1, 2, 3]
    assert till.at[1] - till.at[0] >= 0.19
    assert answers(run).keys() == {"sample_01.json", "sample_02.json"}


def test_an_api_that_stays_busy_ends_the_batch_which_goes_on_later(run):
    with paying(lambda _: PaidReply(529, {"error": {"message": "overloaded"}})) as till:
        batch = ask(run, till.url, retries=1, parallel=2)
    with paying() as till:
        again = service.resume_batch(open_runtime(), book(run), "", sampling_options(till.url), {})

    assert (batch["stop_reason"], batch["remaining"], batch["errors"]) == ("rate_limited", 5, 0)
    assert (again["stop_reason"], again["samples"]) == ("completed", 5)
    assert list(answers(run)) == [f"sample_0{number}.json" for number in range(1, 6)]


def test_a_refused_request_is_recorded_and_its_other_samples_not_sent(run):
    refused = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "temperature: too hot"},
    }
    sweep = Sweep(requests=(2, 3), count=4)

    with paying(
        lambda asked: PaidReply(400, refused) if len(asked.body["messages"]) == 3 else PaidReply()
    ) as till:
        batch = ask(run, till.url, sweep=sweep, parallel=1)

    assert (batch["stop_reason"], batch["samples"], batch["errors"]) == ("refused", 4, 1)
    assert answers(run) == {
        "sample_01_error.json": {"error": "temperature: too hot", "status": 400, "body": refused}
    }
    assert len(answers(run, "request_003")) == 4
    assert len(till.came) == 5


def test_a_server_error_costs_one_sample_not_the_batch(run):
    def say(asked):
        return PaidReply(500, b"<html>oops") if message(asked)["id"] == broken[0] else PaidReply()

    broken: list[str] = []
    with paying(
        lambda asked: (broken.append(message(asked)["id"]) if not broken else None, say(asked))[1]
    ) as till:
        batch = ask(run, till.url, retries=1, parallel=1)

    assert (batch["stop_reason"], batch["samples"], batch["errors"]) == ("completed", 4, 1)
    assert answers(run)["sample_01_error.json"] == {
        "error": "status 500",
        "status": 500,
        "body": "<html>oops",
    }
    assert till.paid[""] == 0


def test_no_more_is_spent_than_the_budget(run):
    with paying() as till:
        one = ask(run, till.url, sweep=Sweep(requests=(2,), count=1))["cost_usd"]
        batch = ask(
            run,
            till.url,
            sweep=Sweep(requests=(2,), count=20),
            max_budget_usd=one * 5.5,
            parallel=3,
        )
        more = service.resume_batch(open_runtime(), book(run), "", sampling_options(till.url), {})
        all_of_it = service.resume_batch(
            open_runtime(), book(run), "", sampling_options(till.url), {"max_budget_usd": one * 21}
        )

    assert batch["stop_reason"] == "budget_exhausted"
    # The first of them were expected to cost what the recorded answer did, which was less.
    assert one * 4 <= batch["cost_usd"] <= one * 7
    assert batch["samples"] + batch["remaining"] == 20
    assert more["samples"] == batch["samples"]
    assert (all_of_it["stop_reason"], all_of_it["samples"]) == ("completed", 20)


def test_an_impossible_budget_is_refused(run):
    with paying() as till, pytest.raises(Invalid, match="no price"):
        ask(run, till.url, sweep=Sweep(requests=(2,), models=("my-own-model",)), max_budget_usd=1.0)

    assert till.came == []


def test_rate_and_parallelism_limits_hold(run):
    with paying(lambda _: PaidReply(delay_s=0.05)) as till:
        ask(run, till.url, sweep=Sweep(requests=(2,), count=8), parallel=3)
        at_once = till.most_at_once
        del till.at[:]
        began = time.monotonic()
        ask(run, till.url, sweep=Sweep(requests=(2,), count=11), per_minute=600)

    assert at_once == 3
    # A busy machine makes one late, never early.
    assert all(at - began >= 0.1 * number for number, at in enumerate(sorted(till.at)))


def test_one_process_at_a_time_asks_for_samples_of_a_run(run):
    with paying() as till, exclusive_lock(run / ".resamples.lock"), pytest.raises(Conflict):
        ask(run, till.url)

    assert till.came == []


def test_missing_request_turn_variant_or_batch_is_refused(run):
    with pytest.raises(NotFound, match="no request 99"):
        ask(run, sweep=Sweep(requests=(99,)))
    with pytest.raises(NotFound, match="turn 99"):
        ask(run, sweep=Sweep(turns=(99,)))
    with pytest.raises(NotFound, match="variant 7"):
        ask(run, sweep=Sweep(requests=(2,), numbers=(7,)))
    with pytest.raises(NotFound, match="no batch"):
        service.resume_batch(open_runtime(), book(run), "", sampling_options(), {})
    with pytest.raises(Invalid, match="no such path"):
        SweepVariant("x", {"messages.9.content": "y"}).apply_to({"messages": []})


def test_a_scripted_run_is_asked_again_offline(run, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    batch = ask(run, sweep=Sweep(requests=(1, 2, 3), count=2))

    assert (batch["stop_reason"], batch["samples"]) == ("completed", 6)
    assert [sample.content[-1].get("name") for sample in list_samples(run)] == ["Bash"] * 4 + [
        None
    ] * 2
    assert threading.active_count() < 20


def test_a_batch_of_a_dead_process_is_counted_by_the_next_command(run):
    with paying() as till:
        ask(run, till.url, sweep=Sweep(requests=(2,), count=3))
        # As a process leaves it that is killed after an answer's file was there and before its line was.
        journal = run / JOURNAL
        lines = journal.read_text().splitlines(keepends=True)
        remaining = [
            line for line in lines if '"batch_ended"' not in line and '"number":3' not in line
        ]
        journal.write_text("".join(remaining))
        ask(run, till.url, sweep=Sweep(requests=(3,), count=1))

    meta = json.loads((run / "run_meta.json").read_text())
    assert meta["total_resamples"] == 4
    assert len(till.came) == 4
    assert [
        batch.name for batch in service.list_unfinished_batches(open_runtime(), book(run))
    ] == []
