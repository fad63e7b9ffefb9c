"""`flightlog cache`: the JSON contract, the tables, and what is said when something is wrong."""

import json
import shutil
from pathlib import Path

import pytest

from support import labs
from support.cli_runs import within
from support.real_agent import agent_program
from support.transcripts import SESSION, assistant, user, write

RECORDED = Path(__file__).parents[1] / "recordings" / "cache-causes"


@pytest.fixture(scope="module")
def config_dir(tmp_path_factory):
    """Three recorded cases as one configuration directory, with the status line of one."""
    where = tmp_path_factory.mktemp("analysis")
    for case in ("model", "idle", "compact"):
        shutil.copytree(RECORDED / case / "projects", where / "projects", dirs_exist_ok=True)
    payload = json.loads((RECORDED / "model" / "statusline.jsonl").read_text().splitlines()[-1])
    folder = where / "home" / "sessions" / "claude-code" / session_of("model")
    folder.mkdir(parents=True)
    record = {"v": 1, "at_ms": 2 * 10**12, "launch": {}, "payload": payload}
    (folder / "status.jsonl").write_text(json.dumps(record) + "\n")
    return where


def session_of(case):
    return next((RECORDED / case / "projects").rglob("*.jsonl")).stem


def test_requests_of_a_session_as_json(config_dir):
    ran = within(config_dir, "cache", session_of("model")[:8], "--json")

    printed = json.loads(ran.out)
    missed = printed["requests"][2]
    assert [request["verdict"] for request in printed["requests"]] == ["cold", "hit", "miss", "hit"]
    assert missed["address"] == f"{session_of('model')}#4.1"
    assert missed["causes"] == ["model_changed"]
    assert (missed["recached_tokens"], missed["model"]) == (20_600, "claude-sonnet-5-5")
    assert printed["totals"] == {
        "misses": 1,
        "recached_tokens": 20_600,
        "extra_cost_usd": pytest.approx(0.04944),
        "causes": {"model_changed": 1},
    }
    assert (printed["client"]["misses"], printed["differences"]) == (1, [])


@pytest.mark.parametrize("by", ["cause", "project", "day", "model"])
def test_all_sessions_as_json_by_each_key(config_dir, by):
    ran = within(config_dir, "cache", "--by", by, "--json")

    printed = json.loads(ran.out)
    assert set(printed) == {"rows", "totals"}
    assert printed["totals"]["causes"] == {"model_changed": 1, "ttl_expired_5m": 1}
    assert sum(row["misses"] for row in printed["rows"]) == 2
    assert all(by in row for row in printed["rows"])


def test_table_of_a_session_names_change_doer_and_the_client(config_dir):
    ran = within(config_dir, "cache", session_of("model"))

    assert ran.code == 0
    assert "claude-opus-5-5 to claude-sonnet-5-5" in ran.out
    assert "/model sonnet" in ran.out
    assert "1 of 4 requests missed the cache: 20,600 tokens written again" in ran.out
    assert "counted by the client since its last start: 1 of 4 requests missed" in ran.out
    assert "differs" not in ran.out


def test_session_without_caching_is_no_table_of_cold_requests(tmp_path):
    tokens = {"input_tokens": 30_000}
    replies = [
        assistant(f"m{n}", n + 1, {"type": "text", "text": "So."}, tokens=tokens) for n in (1, 2)
    ]
    write(tmp_path, SESSION, user("Look"), *replies)

    ran = within(tmp_path, "cache", SESSION)

    assert (
        ran.out
        == "0 of 2 requests missed the cache: 0 tokens written again, $0.0000 more than hits\n"
    )
    assert "no request used the prompt cache" in ran.err


def test_table_of_all_sessions_ends_with_the_total(config_dir):
    ran = within(config_dir, "cache")

    assert ran.out.splitlines()[0].split()[:2] == ["cause", "misses"]
    assert ran.out.splitlines()[-1].split()[:3] == ["total", "2", "2"]
    assert "causes are known from requests in 3 of 3 sessions" in ran.err


def test_since_in_the_future_leaves_no_rows(config_dir):
    assert json.loads(within(config_dir, "cache", "--since", "2100-01-01", "--json").out) == {
        "rows": [],
        "totals": {"misses": 0, "recached_tokens": 0, "extra_cost_usd": 0.0, "causes": {}},
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("cache", "nothing-here"), 1, "no session begins with"),
        (("cache", "--since", "yesterday"), 2, "not a time"),
        (("cache", "--by", "mood"), 2, "'mood' is not one of"),
        (("cache", "4", "--by", "day"), 2, "--by sums up all sessions"),
    ],
)
def test_errors_name_the_problem(config_dir, arguments, code, message):
    ran = within(config_dir, *arguments)

    assert (ran.code, message in ran.err) == (code, True)


def test_doctor_says_where_causes_can_be_known(config_dir):
    ran = within(config_dir, "doctor")

    assert "causes of cache misses are known for 3 of 3 sessions (100 %)" in ran.out


def test_a_session_of_a_run_has_causes_from_its_captured_requests(tmp_path, monkeypatch):
    counts = [(0, 20_000), (20_000, 500), (0, 20_600), (20_600, 300)]
    answers = [{"blocks": [labs.bash(f"echo {at}")]} for at in range(3)] + [{"text": "Done."}]
    for answer, (read, write_count) in zip(answers, counts, strict=True):
        answer["usage"] = {"input": 10, "cache_read": read, "cache_write": write_count}
    old = labs.environment(tmp_path, FLIGHTLOG_CLAUDE=str(agent_program("2.1.100")))
    labs.run(tmp_path, labs.config(tmp_path, {"rules": [{"replies": answers}]}, "go"), env=old)
    monkeypatch.chdir(tmp_path)

    missed = json.loads(within(tmp_path, "cache", "run/session_01", "--json").out)
    context = json.loads(within(tmp_path, "context", "run#1", "--json").out)
    doctor, none = (within(tmp_path, *words) for words in (["doctor"], ["cache", "run/session_02"]))

    assert [request["verdict"] for request in missed["requests"]] == ["cold", "hit", "miss", "hit"]
    assert missed["totals"]["causes"] == {"likely_server_side": 1}
    assert {share["kind"] for share in context["requests"][0]["parts"][0]["shares"]} >= {
        *("tools", "system", "prompt")
    }
    assert "known for 1 of 1 session (100 %)" in doctor.out
    assert (none.code, "run has no session 2" in none.err) == (1, True)
