"""Law: a report made of digests says what single responses say."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from flightlog.model.usage import (
    Breakdown,
    ClientTotals,
    ModelTotal,
    Usage,
    UsageLine,
    row_to_response,
)
from flightlog.usage.attribution import attribute_responses
from flightlog.usage.digest import SessionUsage, digest_sessions
from flightlog.usage.prices import price_responses
from flightlog.usage.reconciliation import GapEvidence
from flightlog.usage.report import UsageFilter, build_report, filter_digests
from support.usage_oracle import AGENTS, rows, total

HOUR_MS = 3_600_000
NOON_MS = 1_793_620_800_000
ZONES = [UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("America/St_Johns")]

lines = st.builds(
    UsageLine,
    message_id=st.integers(1, 6).map(lambda number: f"m{number}"),
    session=st.just("s"),
    model=st.sampled_from(
        ["claude-opus-5-5", "claude-sonnet-4-5", "gpt-5.6-sol", "qwen3-coder-flash", "mystery"]
    ),
    input_tokens=st.sampled_from([0, 10, 90_000, 250_000]),
    output_tokens=st.integers(0, 3),
    cache_read_tokens=st.integers(0, 9),
    cache_write_tokens=st.integers(9, 18),
    cache_write_1h_tokens=st.integers(0, 9),
    web_searches=st.integers(0, 1),
    at_ms=st.just(0) | st.integers(NOON_MS, NOON_MS + 400 * HOUR_MS),
    project=st.sampled_from(["", "/shop", "/bank"]),
    request_id=st.sampled_from(["", "r"]),
    subagent=st.sampled_from(["", "a1"]),
    is_aborted=st.booleans(),
    quality=st.sampled_from([0, 1]),
)


@st.composite
def groups(draw):
    group = []
    for name in draw(st.sampled_from([("s1",), ("s1", "s2")])):
        session_rows = [row._replace(session=name) for row in draw(st.lists(lines, max_size=8))]
        model = ModelTotal("mystery", 2.5, input_tokens=1)
        totals = draw(
            st.sampled_from([(), (ClientTotals(name, 3.0, NOON_MS + len(group), (model,)),)])
        )
        group.append(SessionUsage(name, draw(st.integers(0, 2)), session_rows, totals))
    return group


@given(groups(), st.sampled_from(Breakdown), st.sampled_from(ZONES))
def test_a_report_of_digests_equals_a_report_of_responses(group, by, zone):
    ledger = attribute_responses(
        [row_to_response(row) for session in group for row in session.rows],
        {session.session: session.first_ms for session in group if session.first_ms},
    )
    items = price_responses(
        ledger.responses,
        {session.session: session.totals[0] for session in group if session.totals},
    )

    report = build_report(digest_sessions(group, lambda *_: GapEvidence()), by, zone, 0, AGENTS)

    assert report.total.usage == total(items).usage
    for ours, theirs in zip(
        [row for row in report.rows if row.responses], rows(items, by, zone), strict=True
    ):
        assert (ours.key, ours.usage, ours.responses, ours.sessions, ours.models, ours.unpriced_models) == (
            theirs.key, theirs.usage, theirs.responses, theirs.sessions, theirs.models, theirs.unpriced_models,
        )  # fmt: skip
        assert ours.cost.source == theirs.cost.source
        assert ours.cost.usd == (
            None if theirs.cost.usd is None else pytest.approx(theirs.cost.usd, abs=1e-8)
        )


def test_a_part_of_a_report_leaves_out_what_was_before_and_elsewhere():
    row = UsageLine(
        "m1", "s1", "claude-opus-5-5", 10, 5, 0, 0, 0, 0, NOON_MS, "/shop", "", "", False
    )
    sessions = [
        SessionUsage("s1", 1, [row, row._replace(message_id="m2", at_ms=NOON_MS + HOUR_MS)], ())
    ]
    digests = digest_sessions(sessions, lambda *_: GapEvidence())

    def count_responses(only):
        return build_report(
            filter_digests(digests, only), Breakdown.DAY, UTC, 0, {}
        ).total.responses

    assert count_responses(UsageFilter()) == 2
    assert count_responses(UsageFilter(NOON_MS + 1)) == 1
    assert count_responses(UsageFilter(NOON_MS + 2 * HOUR_MS)) == 0
    assert count_responses(UsageFilter(project="sho")) == 2
    assert count_responses(UsageFilter(project="bank")) == 0


def test_a_session_without_a_response_has_a_row_of_its_own():
    report = build_report(
        digest_sessions([SessionUsage("s1", 1, [], ())], lambda *_: GapEvidence()),
        Breakdown.SESSION,
        UTC,
        0,
        {},
    )

    assert [(row.key, row.responses, row.cost.usd) for row in report.rows] == [("s1", 0, 0.0)]


def test_a_forks_unknown_model_costs_what_the_client_counted_since_then():
    row = UsageLine("m1", "s1", "mystery", 10, 5, 0, 0, 0, 0, NOON_MS, "/shop", "", "", False)
    own = row._replace(message_id="m2", session="s2", at_ms=NOON_MS + HOUR_MS)

    def make_totals(session, usd, counted, as_of_ms):
        return ClientTotals(
            session, usd, NOON_MS - 1, (ModelTotal("mystery", usd, **asdict(counted)),), as_of_ms
        )

    parent = SessionUsage("s1", 1, [row], (make_totals("s1", 2.0, Usage(10, 5), NOON_MS + 1),))
    fork = SessionUsage(
        "s2",
        2,
        [row._replace(session="s2"), own],
        (make_totals("s2", 3.0, Usage(20, 10), NOON_MS + 2 * HOUR_MS),),
    )

    report = build_report(
        digest_sessions([parent, fork], lambda *_: GapEvidence()), Breakdown.SESSION, UTC, 0, {}
    )

    assert {row.key: row.cost.usd for row in report.rows} == {"s1": 2.0, "s2": 1.0}
    assert report.total.cost.usd == 3.0
    assert [gap for truth in report.reconciliations for gap in truth.gaps] == []
