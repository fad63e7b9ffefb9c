"""Usage of several agents: the report, the first screen and the page name each of them.

A second agent is registered for these tests; its sessions are transcripts of Claude Code.
"""

import sys
from datetime import UTC
from types import SimpleNamespace

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from flightlog import agents
from flightlog.agents import RegisteredAgent, recordings
from flightlog.agents.claude_code import AGENT
from flightlog.archive.archive import Archive
from flightlog.cli.session.usage import print_usage
from flightlog.model.usage import Breakdown, ClientTotals, CostSource, ModelTotal, Usage
from flightlog.recorder.overview import build_overview
from flightlog.sources.protocol import FileListing
from flightlog.usage.digest import SessionUsage, digest_sessions
from flightlog.usage.reconciliation import GapEvidence
from flightlog.usage.report import build_report
from flightlog.usage.report_json import report_json
from flightlog.views.atif.steps import sum_final_metrics
from flightlog.views.overview import iter_facts
from flightlog.views.transcript import RenderOptions, render_session
from support.pages import make_runtime, running
from support.recordings import config_dir

FIRST, SECOND = "2.1.325/single-turn", "2.1.325/multi-turn-tools"


class SecondAgent:
    """Reads transcripts of Claude Code as sessions of its own."""

    name = "second"
    source = AGENT.source

    def find(self, dirs):
        files = AGENT.find(dirs).files
        return FileListing(tuple(replace(file, agent=self.name) for file in files))


@pytest.fixture
def second_dir(monkeypatch, tmp_path):
    folder = config_dir(tmp_path / "second", SECOND)
    entry = RegisteredAgent("second", "Second Agent", "SECOND_HOME", (".second",))
    monkeypatch.setenv("SECOND_HOME", str(folder))
    registered = agents.REGISTRY
    agents.REGISTRY = recordings.REGISTRY = (*registered[:1], entry)
    sys.modules["flightlog.agents.second"] = SimpleNamespace(AGENT=SecondAgent())
    yield folder
    del sys.modules["flightlog.agents.second"]
    agents.REGISTRY = recordings.REGISTRY = registered


def test_a_table_by_agent_has_the_names_as_people_write_them(second_dir, tmp_path, capsys):
    dirs = {"claude-code": (str(config_dir(tmp_path / "first", FIRST)),)}
    archive = Archive({**dirs, "second": (str(second_dir),)})

    report = archive.usage_report(Breakdown.AGENT, UTC)
    print_usage(report)

    first, second = (line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:3])
    assert (first, second) == ("Second Agent", "Claude Code"), "the most expensive one first"
    assert [row["agent"] for row in report_json(report, "UTC")["rows"]] == ["claude-code", "second"]
    assert report.total.usage == sum((row.usage for row in report.rows), Usage())


def test_one_session_id_of_two_agents_counts_for_each_of_them(second_dir, tmp_path):
    folder = config_dir(tmp_path / "first", FIRST)
    (own,), (other,) = (list(config.rglob("projects/*/*.jsonl")) for config in (folder, second_dir))
    expected = Archive({"claude-code": (str(folder),), "second": (str(second_dir),)})
    rows = expected.usage_report(Breakdown.AGENT, UTC).rows
    other.rename(other.with_name(own.name))

    archive = Archive({"claude-code": (str(folder),), "second": (str(second_dir),)})
    report = archive.usage_report(Breakdown.AGENT, UTC)
    second = archive.usage_pipeline.report(Breakdown.DAY, UTC, agent="second")

    assert [row.key for row in report.rows] == ["claude-code", "second"]
    assert [row.usage for row in report.rows] == [row.usage for row in rows]
    assert [row.cost for row in report.rows] == [row.cost for row in rows]
    assert second.total.usage == rows[1].usage


def test_the_first_screen_counts_the_sessions_of_each_agent(second_dir, tmp_path):
    assert second_dir.is_dir()
    runtime = make_runtime(config_dir(tmp_path / "first", FIRST, "2.1.325/thinking"))

    overview = build_overview(replace(runtime, data_dir=str(tmp_path / "home")))

    facts = {fact.text: fact.next_command for fact in iter_facts(overview, UTC)}
    named = "2 sessions of Claude Code, 1 session of Second Agent"
    assert facts[named] == "flightlog session usage --by agent"


def test_the_usage_page_has_a_table_by_agent_only_for_several(second_dir, tmp_path):
    assert second_dir.is_dir()
    folder = config_dir(tmp_path / "first", FIRST)

    with running(folder, data_dir=tmp_path / "home") as served:
        html = served.ask("/usage").text
        again = served.ask("/usage").text

    assert ">Second Agent</a></th>" in html
    assert html.count("By agent") == again.count("By agent") > 0


def test_the_usage_page_of_one_agent_has_no_table_by_agent(tmp_path):
    with running(config_dir(tmp_path, FIRST), data_dir=tmp_path / "home") as served:
        html = served.ask("/usage").text

    assert "By model" in html
    assert "By agent" not in html


@pytest.mark.parametrize(
    ("totals", "shown", "final"),
    [
        (
            ClientTotals("s", None, 0, credits=2.5, premium_requests=1.0),
            "2.5 credits, 1 premium request",
            {"client_total_credits": 2.5, "client_total_premium_requests": 1.0},
        ),
        (
            ClientTotals("s", 0.25, 0, premium_requests=0.33),
            "$0.250000, 0.33 premium requests",
            {"client_total_cost_usd": 0.25, "client_total_premium_requests": 0.33},
        ),
        (ClientTotals("s", None, 0, (ModelTotal("m", None, input_tokens=7),)), "7 tokens", UNSET),
    ],
)
def test_a_session_shows_its_clients_total_in_the_clients_units(tmp_path, totals, shown, final):
    archive = Archive({"claude-code": (str(config_dir(tmp_path, FIRST)),)})
    session = replace(archive.read_session(archive.latest_session()), client_totals=totals)

    lines = [line.text for line in render_session(session, RenderOptions())]

    assert f"the client's own total: {shown}" in lines
    assert sum_final_metrics((), (), totals).extra == final


def test_credits_are_printed_as_such_and_never_as_dollars(capsys):
    model = ModelTotal("m", None, input_tokens=1000)
    client = ClientTotals("s1-of-copilot", None, 0, (model,), credits=2.5, premium_requests=1.0)
    sessions = [SessionUsage("s1-of-copilot", 1, [], [client])]
    digests = digest_sessions(sessions, lambda *_: GapEvidence())

    report = build_report(digests, Breakdown.SESSION, UTC, 0, {})
    print_usage(report)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["s1-of-co", "1,000", "unknown", "unknown"] in lines
    assert ["s1-of-co", "2.5", "credits,", "1", "premium", "request"] in lines
    (row,) = report_json(report, "UTC")["rows"]
    total = row["client_total"]
    assert (total["credits"], total["premium_requests"]) == (2.5, 1.0)
    assert (total["cost_usd"], total["cost_source"]) == (None, CostSource.UNKNOWN)
    assert row["unrecorded_usage"]["cost_usd"] is None
    assert row["unrecorded_usage"]["input_tokens"] == 1000
