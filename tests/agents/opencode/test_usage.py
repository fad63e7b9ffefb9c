"""OpenCode: every token that the model sent is counted once, but for the call that makes a title."""

import json
import sqlite3
from datetime import UTC

import pytest

from flightlog.agents.opencode.usage import decode_tokens
from flightlog.archive.archive import Archive
from flightlog.model.session import ThreadContext
from flightlog.model.usage import Breakdown, CostSource, Usage
from flightlog.usage.reconciliation import GapReason
from support.client_recordings import DECODE, lay_out_home, list_cases, wire_lines, wire_usage
from support.real_clients import make_machine

CASES = list_cases("opencode")
FOLDER = ".local/share/opencode"
VERSION = "opencode/1.18.33"


def report(home):
    return Archive({"opencode": (str(home / FOLDER),)}).usage_report(Breakdown.SESSION, UTC)


def change(home, statement, *values):
    with sqlite3.connect(home / FOLDER / "opencode.db") as database:
        database.execute(statement, values)


def tokens(total, reasoning=0, **counts):
    cache = {"read": counts.pop("read", 0), "write": counts.pop("write", 0)}
    return {"total": total, "reasoning": reasoning, "cache": cache, **counts}


@pytest.mark.parametrize("case", CASES)
def test_usage_equals_the_wire_without_the_call_for_the_title(case, tmp_path):
    title = DECODE["chat"](wire_lines(case)[0]["usage"])

    usage_report = report(lay_out_home(tmp_path, case))

    assert usage_report.total.usage == wire_usage(case) - title
    assert usage_report.total.unknown_responses == 0
    assert [gap for truth in usage_report.reconciliations for gap in truth.gaps] == []


@pytest.mark.parametrize(
    ("recorded", "usage"),
    [
        (tokens(1000, input=100, output=60, read=800, write=40), Usage(100, 60, 800, 40)),
        (tokens(180, input=100, output=60, reasoning=20), Usage(100, 80)),
        # Clients before April 2026 had reasoning in the output, too.
        (tokens(160, input=100, output=60, reasoning=20), Usage(100, 60)),
        ({"input": 100, "output": 60, "reasoning": 20}, Usage(100, 60)),
    ],
)
def test_reasoning_is_output_and_cached_tokens_are_no_input(recorded, usage):
    assert decode_tokens(recorded) == usage


def test_a_response_that_a_fork_copied_counts_in_the_original(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/forked-session")

    usage_report = report(home)

    archive = Archive({"opencode": (str(home / FOLDER),)})
    contexts = [
        archive.thread_contexts(row.key).get("", ThreadContext()) for row in usage_report.rows
    ]
    # The prompt and its answer.
    assert sorted(len(context.copied_message_ids) for context in contexts) == [0, 2]
    rows = sorted((row.usage.input_tokens, row.responses) for row in usage_report.rows)
    assert rows == [(7000, 1), (14_150, 2)]
    inherited = {truth.inherited for truth in usage_report.reconciliations}
    assert inherited == {Usage(), Usage(7000, 4)}


def test_a_fork_of_a_session_that_went_on_inherits_its_copies_only(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/forked-session")
    change(
        home,
        "UPDATE session SET tokens_input = 9000, time_updated = 1 << 41 WHERE title NOT LIKE '%fork%'",
    )

    truths = report(home).reconciliations

    assert {truth.inherited for truth in truths} == {Usage(), Usage(7000, 4)}
    assert [gap.usage for truth in truths for gap in truth.gaps] == [Usage(2000)]


def test_what_only_the_client_counted_is_a_call_without_a_message(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/subagent")
    change(home, "UPDATE session SET tokens_input = tokens_input + 602 WHERE parent_id IS NULL")

    (truth,) = report(home).reconciliations

    assert [(gap.reason, gap.usage) for gap in truth.gaps] == [(GapReason.SIDE_CALL, Usage(602))]


def test_without_counts_usage_is_unknown_and_not_zero(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/subagent")
    zero = json.dumps(tokens(0, input=0, output=0))
    change(home, "UPDATE message SET data = json_set(data, '$.tokens', json(?))", zero)
    change(home, "UPDATE session SET tokens_input = 0, tokens_output = 0, tokens_cache_read = 0")

    total = report(home).total

    assert (total.responses, total.unknown_responses, total.cost.usd) == (4, 4, None)


def test_a_refused_request_is_no_response(tmp_path):
    usage_report = report(lay_out_home(tmp_path, f"{VERSION}/api-error"))

    assert (usage_report.total.responses, usage_report.total.unknown_responses) == (1, 0)


def test_a_command_that_a_person_ran_is_no_response(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/subagent")
    zero = json.dumps(tokens(0, input=0, output=0))
    change(
        home,
        "UPDATE message SET data = json_remove(json_set(data, '$.tokens', json(?)), '$.finish')"
        ' WHERE data LIKE \'%"finish":"stop"%\'',
        zero,
    )

    usage_report = report(home)

    (session,) = Archive({"opencode": (str(home / FOLDER),)}).iter_sessions()
    assert (usage_report.total.responses, usage_report.total.unknown_responses) == (2, 0)
    assert [step.cost_usd for step in session.steps] == [None, 0.0]


def test_a_model_without_price_costs_what_the_client_said(tmp_path):
    usage_report = report(lay_out_home(tmp_path, f"{VERSION}/subagent"))

    (truth,) = usage_report.reconciliations
    assert usage_report.total.cost.source is CostSource.CLIENT
    assert usage_report.total.cost.usd == pytest.approx(truth.client.cost_usd) == 0.02157


def test_the_real_client_is_counted_while_its_database_has_a_log(tmp_path):
    machine = make_machine(tmp_path, "opencode")
    reply = {
        "text": "Hello.",
        "usage": {"input": 900, "output": 40, "cache_read": 80, "reasoning": 9},
    }

    run = machine.run({"rules": [{"name": "main", "replies": [reply]}]}, "Say hello")

    assert run.exit_code == 0, run.stderr
    assert (machine.home / FOLDER / "opencode.db-wal").stat().st_size
    assert report(machine.home).total.usage == Usage(900, 40, 80)


def test_the_client_total_is_not_that_of_one_model_of_several(tmp_path):
    home = lay_out_home(tmp_path, f"{VERSION}/multi-turn-tools")
    client_usd = report(home).total.cost.usd
    change(
        home,
        "UPDATE message SET data = json_set(data, '$.modelID', 'gpt-5') WHERE id NOT IN"
        " (SELECT id FROM message ORDER BY time_created DESC LIMIT 1)",
    )

    usage_report = Archive({"opencode": (str(home / FOLDER),)}).usage_report(Breakdown.MODEL, UTC)

    costs = {row.key: row.cost.usd for row in usage_report.rows}
    assert costs["scripted"] == pytest.approx(client_usd / 6, rel=0.2)
