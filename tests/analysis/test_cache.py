"""Verdicts, causes and costs of cache misses: as the real client counted them, and by rule."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from flightlog.agents import agent_names
from flightlog.analysis.cache import (
    CacheVerdict,
    compare_with_client,
    judge_requests,
    total_outcomes,
)
from flightlog.analysis.requests import ModelRequest, RequestStart, list_requests
from flightlog.analysis.service import analyze_archive, analyze_session, read_client_count
from flightlog.archive.archive import Archive
from flightlog.hooks.payload_log import append_payload
from flightlog.model.exchange import LoggedRequest, RequestShape, ToolShape
from flightlog.model.usage import ClientCacheReport, Usage
from flightlog.usage.prices import price
from support.recordings import CASES, archive

RECORDED = Path(__file__).parents[1] / "recordings" / "cache-causes"
RECORDED_CASES = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())
MODEL = "claude-opus-5-5"
OTHERS = Path(__file__).parents[1] / "recordings"


def open_case(name, home=""):
    return Archive({"claude-code": (str(RECORDED / name),)}, home)


def main_outcomes(opened):
    """The outcomes of the main threads, by time; `/clear` makes a second session."""
    details = [analyze_session(opened, session) for session in opened.recordings]
    outcomes = [outcome for detail in details for outcome in detail.cache if not outcome.thread]
    return sorted(outcomes, key=lambda outcome: outcome.at_ms)


@pytest.mark.parametrize("case", RECORDED_CASES)
def test_recorded_case_has_the_verdicts_and_causes_of_the_client(case):
    expected = json.loads((RECORDED / case / "case.json").read_text())["requests"]

    outcomes = main_outcomes(open_case(case))

    assert [(o.verdict.value, list(o.causes)) for o in outcomes] == [
        (request["verdict"], request["causes"]) for request in expected
    ]
    for outcome, request in zip(outcomes, expected, strict=True):
        if request["client_causes"]:
            assert list(outcome.causes) == request["client_causes"]


@pytest.mark.parametrize("case", [name for name in RECORDED_CASES if name != "headless-resume"])
def test_totals_equal_what_the_client_reported_in_the_status_line(case, tmp_path):
    opened = open_case(case, str(tmp_path))
    payloads = map(json.loads, (RECORDED / case / "statusline.jsonl").read_text().splitlines())
    last = {payload["session_id"]: payload for payload in payloads if "prompt_cache" in payload}
    assert last

    for session, payload in last.items():
        append_payload(str(tmp_path), payload, str(tmp_path), 2 * 10**12)
        client = read_client_count(opened, session)
        ours, differences = compare_with_client(analyze_session(opened, session).cache, client)

        assert differences == ()
        assert (ours.misses, ours.recached_tokens) == (
            payload["prompt_cache"]["misses"],
            payload["prompt_cache"]["miss_recache_tokens"],
        )


def test_miss_names_the_change_and_what_caused_it():
    def miss(case):
        return next(o for o in main_outcomes(open_case(case)) if o.verdict.is_miss)

    assert miss("model").done_by == ("/model sonnet",)
    assert miss("model").changes[0].detail == "claude-opus-5-5 to claude-sonnet-5-5"
    assert miss("effort").done_by == ("/effort high",)
    assert miss("resume-model").done_by == ("resume",)
    assert miss("mcp-tool").changes[0].detail == "added mcp__lab__tool2"
    assert miss("mcp-server-late").changes[0].detail == "added 2 tools of the MCP server lab"
    assert miss("idle").changes[0].detail == "5 minutes without request"


def test_subagent_is_a_thread_of_its_own():
    (session,) = open_case("subagent").recordings
    outcomes = analyze_session(open_case("subagent"), session).cache

    assert [o.verdict.value for o in outcomes if o.thread] == ["cold"]


def test_ordinary_recordings_have_a_miss_only_where_the_client_counted_one(tmp_path):
    # Its status line in that recording counts two misses; those of all others count none.
    counted = {"72a5ce76-dfde-4696-9435-2fe6d2f3356a": 2}

    misses = {
        analysis.session: len(analysis.cache)
        for analysis in analyze_archive(archive(tmp_path, *CASES))
        if analysis.cache
    }

    assert misses == counted


def test_agents_without_cache_writes_have_a_verdict_and_no_cause():
    names = [name for name in agent_names() if name not in {"claude-code", "opencode"}]
    dirs = {name: tuple(map(str, sorted((OTHERS / name).glob("*/*/session")))) for name in names}
    opened = Archive(dirs)

    verdicts = {
        outcome.verdict
        for session in opened.recordings
        for outcome in analyze_session(opened, session).cache
    }
    one, two = request(1, read=9_000, fresh=1_000), request(2, fresh=11_000)
    (_, missed) = judge_requests([replace(r, has_cache_writes=False) for r in (one, two)])

    assert verdicts == {CacheVerdict.COLD, CacheVerdict.HIT}
    assert (missed.verdict, missed.causes) == (CacheVerdict.MISS, ())
    assert missed.recached_tokens == 10_000


def request(number, *, read=0, write=0, fresh=10, hour=0, seconds=10, **fields):
    logged = fields.pop("logged", None)
    return ModelRequest(
        address=f"s#1.{number}",
        thread="",
        at_ms=10**12 + 1000 * seconds * number,
        model=fields.pop("model", MODEL),
        effort=fields.pop("effort", ""),
        usage=Usage(fresh, 5, read, write, hour),
        logged=logged,
        **fields,
    )


def verdict_of(read, *, before=20_000, after=20_000, **fields):
    first = request(1, write=before, fresh=0)
    second = request(2, read=read, write=after - read, fresh=0, **fields)
    return judge_requests([first, second])[1].verdict.value


@pytest.mark.parametrize(
    ("read", "before", "after", "verdict"),
    [
        (19_000, 20_000, 20_500, "hit"),  # 95 % of the smaller prompt
        (18_999, 20_000, 20_500, "hit"),  # fewer than 2,000 tokens less
        (18_000, 20_000, 20_500, "partial"),
        (1_000, 20_000, 20_500, "partial"),  # 5 % of the smaller prompt
        (999, 20_000, 20_500, "miss"),
        (0, 1_999, 20_500, "hit"),  # too little was there to be read
        (10_000, 90_000, 10_000, "hit"),  # the smaller prompt was read whole
    ],
)
def test_the_verdict_follows_the_rule_of_the_client(read, before, after, verdict):
    assert verdict_of(read, before=before, after=after) == verdict


def test_cache_is_cold_after_clear_and_rebuilt_after_compaction():
    assert verdict_of(0, begins=RequestStart.CLEARED) == "cold"
    assert verdict_of(0, begins=RequestStart.COMPACTED) == "rebuild"
    assert verdict_of(20_000, begins=RequestStart.COMPACTED) == "hit"


def test_prompts_that_never_touched_a_cache_are_no_misses():
    outcomes = judge_requests([request(1, fresh=20_000), request(2, fresh=30_000)])

    assert [outcome.verdict.value for outcome in outcomes] == ["cold", "cold"]


SHAPE = RequestShape("a", ("Be brief.", "Rules\nNo tabs."), {"Bash": ToolShape("x", 10)})
LOGGED = LoggedRequest(
    id="r1",
    model=MODEL,
    effort="medium",
    thinking_mode="adaptive",
    thinking_display="updates",
    betas=("one", "two"),
    cache_marks=('{"type":"ephemeral"}',),
    cache_ttls=("5m",),
    shape_id="a",
    shape=SHAPE,
    kept_messages=4,
    previous_messages=4,
)


def make_shape(**fields):
    return {"shape_id": "b", "shape": replace(SHAPE, id="b", **fields)}


@pytest.mark.parametrize(
    ("changed", "causes", "detail"),
    [
        ({"model": "x"}, ["model_changed"], f"{MODEL} to x"),
        ({"effort": "high"}, ["effort_changed"], "medium to high"),
        ({"thinking_mode": "disabled"}, ["thinking_mode_changed"], "adaptive to disabled"),
        ({"thinking_display": ""}, ["thinking_display_changed"], "updates to none"),
        ({"betas": ("one",)}, ["betas_changed"], "removed two"),
        ({"betas": ("afk-mode-2026-01-31", "one", "two")}, ["auto_mode_changed"], "auto mode entered"),
        ({"cache_marks": ()}, ["cache_scope_or_ttl_changed"], "cache marks now: none"),
        ({"kept_messages": 2}, ["messages_rewritten"], "from message 3 of 4 on"),
        (make_shape(system=("Be brief.", "Rules\nNo spaces.")), ["system_prompt_changed"],
         "+2 characters: + No spaces."),
        (make_shape(tools={}), ["tools_changed"], "removed Bash"),
        (make_shape(tools={"Bash": ToolShape("y", 11)}), ["tools_changed"], "redefined Bash"),
        (make_shape(tools={"Bash": ToolShape("x", 10, is_deferred=True)}), ["defer_loading_changed"],
         "added Bash"),
        ({"effort": "high", "kept_messages": 0}, ["effort_changed", "messages_rewritten"],
         "medium to high"),
        ({}, ["likely_server_side"], ""),
    ],
)  # fmt: skip
def test_each_difference_between_two_logged_requests_is_a_cause(changed, causes, detail):
    first = request(1, write=20_000, logged=LOGGED)
    second = request(2, write=20_000, logged=replace(LOGGED, id="r2", **changed))

    missed = judge_requests([first, second])[1]

    assert list(missed.causes) == causes
    assert missed.changes[0].detail == detail


@pytest.mark.parametrize(
    ("hour", "seconds", "fields", "cause"),
    [
        (0, 301, {}, "ttl_expired_5m"),
        (20_000, 301, {}, "unknown"),
        (20_000, 3_601, {}, "ttl_expired_1h"),
        (0, 10, {"model": "claude-haiku-4-5"}, "model_changed"),
        (0, 10, {"effort": "high"}, "effort_changed"),
        (0, 10, {"effort": "low"}, "unknown"),
    ],
)
def test_without_a_log_only_model_effort_and_gap_are_causes(hour, seconds, fields, cause):
    first = request(1, write=20_000, hour=hour, seconds=seconds, effort="low")
    second = request(2, write=20_000, seconds=seconds, **{"effort": "low", **fields})

    assert judge_requests([first, second])[1].causes == (cause,)


def test_tokens_written_for_an_hour_cost_their_own_price():
    outcomes = judge_requests([request(1, write=9_000), request(2, write=9_000, hour=4_000)])

    written = price(MODEL, Usage(cache_write_tokens=9_000, cache_write_1h_tokens=4_000), 10**12)
    read = price(MODEL, Usage(cache_read_tokens=9_000), 10**12)
    assert outcomes[1].extra_cost_usd == pytest.approx(written.usd - read.usd)


def test_unknown_price_stays_unknown_and_does_not_hide_known_ones():
    unpriced = [request(number, write=9_000, model="house-model") for number in (1, 2)]
    priced = [request(number, write=9_000) for number in (1, 2)]

    assert total_outcomes(judge_requests(unpriced)).extra_cost_usd is None
    assert total_outcomes(judge_requests([*unpriced, *priced])).extra_cost_usd > 0


def test_a_difference_from_the_client_is_named():
    outcomes = judge_requests([request(1, write=9_000), request(2, write=9_000)])
    client = ClientCacheReport(2 * 10**12, 2, 0, 0, 0)

    _, differences = compare_with_client(outcomes, client)

    assert differences == (
        "misses: we count 1, the client 0",
        "tokens written again: we count 9,000, the client 0",
    )


@pytest.mark.parametrize("case", RECORDED_CASES)
def test_every_address_opens_its_step(case):
    opened = open_case(case)
    for session, recording in opened.recordings.items():
        whole = opened.read_session(session)
        requests = list_requests(whole, recording.source.logged_requests(recording.files))

        assert {r.address for r in requests} == {
            o.address for o in analyze_session(opened, session).cache
        }
        assert all(r.logged and r.logged.shape for r in requests)
