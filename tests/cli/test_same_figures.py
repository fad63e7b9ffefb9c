"""A number that appears in two places is the same in both, over all recordings."""

import json
import re

import pytest

from flightlog.model.usage import Cost, CostSource, format_cost
from support.cli_runs import within
from support.pages import running
from support.recordings import CASES, config_dir
from support.transcripts import SESSION, assistant, user, write

OTHER = "99999999-9999-4999-8999-999999999999"
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Every recording, a session that copies another's responses, and one with two models."""
    root = config_dir(tmp_path_factory.mktemp("same"), *CASES)
    sonnet = assistant("m2", 3, tokens={"output_tokens": 40_000})
    sonnet["message"]["model"] = "claude-sonnet-4-5"
    shared = [user("x", 1), assistant("m1", 2), sonnet]
    write(root, SESSION, *shared)
    write(root, OTHER, *shared, user("z", 4, uuid="u4"), assistant("m3", 5))
    return root


def read(machine, *words):
    ran = within(machine, *words, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.fixture(scope="module")
def reports(machine):
    by = {by: read(machine, "session", "usage", "--by", by) for by in ("session", "model", "day")}
    return by | {
        "list": read(machine, "session", "list", "--limit", "0", "--all"),
        "up": read(machine, "up"),
    }


def total_of(rows, key):
    return sum(row[key] or 0 for row in rows)


@pytest.mark.parametrize("key", [*TOKENS, "cost_usd"])
def test_usage_list_and_overview_have_the_same_sum(reports, key):
    total = reports["session"]["total"][key]

    assert total > 0
    for by in ("session", "model", "day"):
        assert total_of(reports[by]["rows"], key) == pytest.approx(total)
        assert reports[by]["total"][key] == pytest.approx(total)
    assert total_of(reports["list"], key) == pytest.approx(total)
    assert reports["up"][key] == pytest.approx(total)


def test_each_session_has_one_figure_in_list_and_usage(reports):
    listed = {row["session"]: row for row in reports["list"]}

    assert len(reports["session"]["rows"]) > 30
    for row in reports["session"]["rows"]:
        for key in (*TOKENS, "cost_usd"):
            assert (listed[row["session"]][key] or 0) == pytest.approx(row[key] or 0), row


def test_retro_and_usage_agree_on_total_and_model(machine, reports, tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    ran = within(machine, "retro", "analyze", "--sessions", "--json")
    patterns = {pattern["id"]: pattern for pattern in json.loads(ran.out)["patterns"]}

    costliest = max(reports["model"]["rows"], key=lambda row: row["cost_usd"] or 0)
    label = patterns["cost-models"]["label"]
    cost, total = map(float, re.findall(r"\d+[.]\d+", label.rpartition(": ")[2]))
    assert label.startswith(costliest["model"])
    assert (
        label.count("≥")
        == costliest["is_lower_bound"] + reports["model"]["total"]["is_lower_bound"]
    )
    listed = sum(not row["is_empty"] for row in reports["list"])
    assert f" {listed} conversations " in json.loads(ran.out)["summary"][0]
    assert cost == pytest.approx(costliest["cost_usd"], abs=0.006)
    assert total == pytest.approx(reports["model"]["total"]["cost_usd"], abs=0.006)


def test_the_pages_show_the_totals_of_the_reports(machine, reports):
    with running(machine) as pages:
        usage = pages.ask("/usage").text

    cost = reports["day"]["total"]["cost_usd"]
    assert f"${cost:,.2f}" in usage


def test_damage_is_counted_the_same_way(machine, reports):
    assert reports["up"]["damage_count"] == total_of(reports["list"], "damage_count")
    assert reports["up"]["damage_count"] == reports["session"]["damaged_lines"]


def test_prompts_cost_at_most_the_total(machine, reports, tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    ran = within(machine, "retro", "analyze", "--sessions", "--json")
    pattern = next(p for p in json.loads(ran.out)["patterns"] if p["id"] == "cost-turns")

    assert float(pattern["detail"].split()[-2]) <= reports["model"]["total"]["cost_usd"] + 0.006
    texts = [evidence["address"].partition("#")[0] for evidence in pattern["evidence"]]
    assert not (SESSION in texts and OTHER in texts)


def test_the_head_of_every_page_has_the_figures_of_the_list(machine, reports, tmp_path):
    with running(machine, data_dir=tmp_path) as served:
        for row in reports["list"]:
            facts = served.ask(f"/sessions/{row['session']}").text.split("<dt>Work</dt>")[0]
            cost = Cost(row["cost_usd"], CostSource(row["cost_source"]), row["is_lower_bound"])
            shown = re.sub(r"<[^>]*>", "", facts.split("<dt>Cost</dt>")[1].split("</b>")[0])
            text = served.ask(f"/sessions/{row['session']}/text").text

            assert shown == format_cost(cost)
            assert f" tokens, {format_cost(cost)}\n" in text.split("\n\n")[0] + "\n"
