"""The commands on what the real clients of all registered agents wrote, each case in a home of its own."""

import json
import re

import pytest

from flightlog.agents import agent_names
from support.cli_runs import within
from support.client_recordings import ROOT, lay_out_home
from support.judges import HARBORS, STRICT, validate_files

OTHERS = [name for name in agent_names() if name != "claude-code"]
CASES = [
    str(path.parent.relative_to(ROOT))
    for name in OTHERS
    for path in sorted((ROOT / name).glob("*/*/session"))
]


@pytest.fixture(scope="module", params=CASES)
def home(request, tmp_path_factory):
    """A home with the sessions of one case; our own data is elsewhere."""
    where = tmp_path_factory.mktemp("home")
    lay_out_home(where, request.param)
    return request.param.partition("/")[0], where, tmp_path_factory.mktemp("data")


def run(home, *arguments):
    _, where, data = home
    ran = within(data, *arguments, HOME=str(where), CLAUDE_CONFIG_DIR=f"{data}/none")
    assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
    return ran.out


def run_json(home, *arguments):
    return json.loads(run(home, *arguments, "--json"))


def sessions(home):
    return [row["session"] for row in run_json(home, "session", "list", "--all", "--limit", "0")]


def test_list_and_usage_name_the_agent_and_agree(home):
    rows = run_json(home, "session", "list", "--all", "--limit", "0")
    usage = run_json(home, "session", "usage", "--by", "agent")

    assert {row["agent"] for row in rows} == {home[0]}
    assert [row["agent"] for row in usage["rows"] if row["responses"]] == (
        [home[0]] if usage["total"]["responses"] else []
    )
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        assert sum(row[name] for row in rows) == (usage["total"][name] or 0)


def test_show_follow_and_export_work(home):
    for session in sessions(home):
        shown = run_json(home, "session", "show", session)
        header = f"{home[0]} {shown['version']}".strip()

        assert header in run(home, "session", "show", session)
        assert header in run(home, "session", "follow", session, "--idle", "0.05")
        assert header in run(home, "session", "export", session, "--format", "md")
        assert "<svg" in run(home, "session", "export", session, "--format", "html", "--redact")


def test_search_finds_a_prompt(home):
    for session in sessions(home):
        turns = run_json(home, "session", "show", session)["turns"]
        text = next((turn["prompt"][0]["text"] for turn in turns if turn["prompt"]), "")
        words = re.findall(r"\w+", text)[:2]
        query = " ".join([*words, f"agent:{home[0]}"])

        assert session in {
            hit["session"]
            for hit in run_json(home, "session", "search", query, "--limit", "0")["hits"]
        }


def test_a_search_by_agent_alone_shows_text_in_every_hit(home):
    query = f"agent:{home[0]}"

    report = run_json(home, "session", "search", query, "--limit", "0")

    assert report["hits"]
    assert [hit for hit in report["hits"] if not hit["snippet"]] == []


def test_the_copy_reads_the_same_when_the_original_is_gone(home, tmp_path):
    agent, _, data = home
    names = sessions(home)
    run(home, "settle")

    for session in names:
        before = run_json(home, "session", "show", session)
        after = run_json((agent, tmp_path, data), "session", "show", session)

        assert after == before


@pytest.mark.parametrize("version", HARBORS)
def test_harbor_accepts_the_trajectories_and_nothing_is_lost(home, version, tmp_path):
    flag = "--atif" if version == STRICT else "--atif-1.7"
    for session in sessions(home):
        run(home, "session", "export", session, flag, "--output", str(tmp_path / session))
        reports = run_json(home, "lab", "lint", str(tmp_path / session))

        missing = [
            count["element"]
            for report in reports
            for count in report["fidelity"] or ()
            if count["recorded_count"] > count["exported_count"] and not count["reason"]
        ]
        findings = [finding for report in reports for finding in report["findings"]]
        assert missing == []
        assert [item for item in findings if item["severity"] == "error"] == []
    assert not any(validate_files(version, sorted(tmp_path.rglob("*.json"))).values())


def test_doctor_finds_no_damage_and_no_unknown_record(home):
    levels = {finding["level"] for finding in run_json(home, "doctor")}

    assert levels & {"damage", "failure"} == set()
