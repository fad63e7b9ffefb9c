import json
import os
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from flightlog.model.errors import Invalid
from flightlog.model.text import parse_since
from support.cli_runs import within
from support.recordings import CASES, config_dir
from support.transcripts import SESSION, assistant, user, write

TOKENS = {
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "cost_usd",
    "cost_source",
}
OTHER = "11111111-2222-4222-8222-222222222222"
NOW_MS = 1793620800000
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def two(tmp_path):
    """Two sessions whose ids begin alike."""
    write(
        tmp_path,
        SESSION,
        user("open the shop", 1),
        assistant("m1", 2, {"type": "text", "text": "open"}),
    )
    elsewhere = {"cwd": "/home/ada/bank"}
    write(
        tmp_path,
        OTHER,
        user("close it", 1, uuid="x1", **elsewhere),
        assistant("m2", 8000, uuid="x2", **elsewhere),
    )
    return tmp_path


def list_sessions(root, *arguments):
    ran = within(root, *arguments)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.mark.parametrize("by", ["session", "day", "month", "model", "project", "block"])
def test_usage_as_json_has_the_documented_keys(two, by):
    report = list_sessions(two, "session", "usage", "--json", "--by", by)

    assert report["total"].keys() >= TOKENS
    assert report["unrecorded"].keys() >= TOKENS
    assert report["rows"]
    assert all(row.keys() >= TOKENS and isinstance(row[by], str) for row in report["rows"])
    assert (
        sum(row["input_tokens"] for row in report["rows"]) == report["total"]["input_tokens"] == 20
    )
    assert sum(row["cost_usd"] for row in report["rows"]) == pytest.approx(
        report["total"]["cost_usd"]
    )


def test_rows_carry_their_key(two):
    def keys(by):
        return {
            row[by]
            for row in list_sessions(
                two, "session", "usage", "--json", "--by", by, "--timezone", "UTC"
            )["rows"]
        }

    assert keys("project") == {"/home/ada/shop", "/home/ada/bank"}
    assert keys("session") == {SESSION, OTHER}
    assert keys("day") == {"2026-11-02"}
    assert keys("month") == {"2026-11"}
    assert keys("model") == {"claude-opus-5-5"}
    assert keys("block") == {"2026-11-02T12:00:00Z"}


def test_usage_can_be_limited_in_time_and_place(two):
    def count_responses(*more):
        return list_sessions(two, "session", "usage", "--json", *more)["total"]["responses"]

    assert count_responses() == 2
    assert count_responses("--project", "bank") == 1
    assert count_responses("--since", "2026-11-02T13:00Z") == 1
    assert count_responses("--since", "2026-11-03") == 0


def test_an_unknown_model_has_no_cost_and_is_named(two):
    record = assistant("m9", 3)
    record["message"]["model"] = "mystery"
    write(two, "third", record)

    report = list_sessions(two, "session", "usage", "--json", "--by", "model")

    (row,) = [row for row in report["rows"] if row["model"] == "mystery"]
    assert row["cost_usd"] is None
    assert report["total"]["unpriced_models"] == ["mystery"]
    assert "no price known for: mystery" in within(two, "session", "usage").err


def test_a_list_is_newest_first_and_says_what_it_left_out(two):
    ran = within(two, "session", "list", "--limit", "1")

    assert "1 more: flightlog session list --limit 0" in ran.err
    assert len(list_sessions(two, "session", "list", "--json", "--limit", "0")) == 2
    assert [
        session["project"]
        for session in list_sessions(two, "session", "list", "--json", "--project", "bank")
    ] == ["/home/ada/bank"]
    assert within(two, "session", "list", "--limit", "-1").code == 2


def test_empty_sessions_are_counted_and_shown_on_request(two):
    empty = "33333333-3333-4333-8333-333333333333"
    write(two, empty, user("<command-name>/exit</command-name>", 1, uuid="y1", sessionId=empty))

    ran = within(two, "session", "list")

    assert "1 empty session hidden: --all" in ran.err
    assert empty[:8] not in ran.out
    assert empty[:8] in within(two, "session", "list", "--all").out
    assert len(list_sessions(two, "session", "list", "--json")) == 2
    assert len(list_sessions(two, "session", "list", "--json", "--all")) == 3


def test_a_list_as_json_has_the_documented_keys(two):
    keys = "session agent title project started_ms ended_ms turns steps tool_calls unknown_records"

    assert all(
        row.keys() >= set(keys.split()) for row in list_sessions(two, "session", "list", "--json")
    )


def test_an_empty_machine_gets_a_first_command(tmp_path):
    ran = within(tmp_path, "session", "list")

    assert ran.code == 0
    assert "flightlog demo" in ran.err
    assert list_sessions(tmp_path, "session", "list", "--json") == []
    assert list_sessions(tmp_path, "session", "usage", "--json")["rows"] == []


def test_show_opens_a_session_a_turn_and_a_step(two):
    assert "open the shop" in within(two, "session", "show", SESSION).out
    assert within(two, "session", "show", f"{SESSION[:10]}#1.1").out.startswith(
        "#1.1  claude-opus-5-5"
    )
    step = list_sessions(two, "session", "show", f"{SESSION}#1.1", "--json")
    assert step["message_id"] == "m1"
    assert step.keys() >= TOKENS
    assert list_sessions(two, "session", "show", f"{SESSION}#1", "--json")["number"] == 1
    assert list_sessions(two, "session", "show", SESSION, "--json")["id"] == SESSION


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "11111111"), 2, "2 sessions begin with '11111111'"),
        (("show", "nobody"), 1, "no session begins with 'nobody'"),
        (("show", f"{SESSION}#9"), 1, "no turn 9"),
        (("show", f"{SESSION}#1.9"), 1, "no step 9"),
        (("show", f"{SESSION}@a1"), 1, "no subagent 'a1'"),
        (("show", "../../etc/passwd"), 2, "not a usable id"),
        (("show", "a\x1b[31m"), 2, "not a usable id"),
        (("show", ""), 2, "not a usable id"),
        (("show", "a#0"), 2, "not an address"),
        (("export", "../x"), 2, "not a usable id"),
        (("follow", "../x"), 2, "not a usable id"),
        (("usage", "--since", "whenever"), 2, "not a time"),
        (("list", "--since", "0001-01-01"), 0, ""),
        (("usage", "--timezone", "Mars/Base"), 2, "no such time zone"),
        (("usage", "--timezone", "../../etc/passwd"), 2, "no such time zone"),
    ],
)
def test_missing_session_prints_one_line_a_hint_and_its_exit_code(two, arguments, code, message):
    ran = within(two, "session", *arguments)

    if code or message:
        assert ran.code == code
        assert message in ran.err
        assert len(ran.err.splitlines()) == 2
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_an_export_is_the_same_on_stdout_and_in_a_file(two, form, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / f"session.{form}"

    on_screen = within(two, "session", "export", SESSION, "--format", form).out
    within(two, "session", "export", SESSION, "--format", form, "--output", str(path))

    assert path.read_text("utf-8") == on_screen
    assert "open the shop" in on_screen


def test_an_export_that_cannot_be_written_is_one_line(two, tmp_path):
    (tmp_path / "file").write_text("")

    ran = within(
        two, "session", "export", SESSION, "--output", str(tmp_path / "file" / "session.md")
    )

    assert ran.code in {2, 69}
    assert "Traceback" not in ran.err


def test_a_spilled_output_is_shown_in_full_only_from_beside_the_transcript(tmp_path):
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "yes"}}

    def session(saved_path):
        result = {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": f"Full output saved to: {saved_path}",
        }
        path = write(tmp_path, SESSION, user("x", 1), assistant("m1", 2, call), user([result], 3))
        (path.with_suffix("") / "tool-results").mkdir(parents=True, exist_ok=True)
        (path.with_suffix("") / "tool-results" / "b1.txt").write_text("the whole of it")
        return within(tmp_path, "session", "show", SESSION, "--full")

    assert "the whole of it" in session("/elsewhere/b1.txt").out
    for saved_path in ("..", "/", ".", "a\x00b", "/etc/passwd", "/etc/", "x" * 5000):
        ran = session(saved_path)
        assert ran.code == 0, ran.err
        assert "root:" not in ran.out


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("30m", NOW_MS - 30 * 60_000),
        ("12h", NOW_MS - 12 * 3_600_000),
        ("7d", NOW_MS - 7 * 86_400_000),
        (" 2w ", NOW_MS - 14 * 86_400_000),
        ("2026-11-01", 1793487600000),
        ("2026-07-01", 1782856800000),
        ("2026-11-01T13:00", 1793534400000),
        ("2026-11-01T13:00Z", 1793538000000),
        ("2026-11-01T13:00+05:30", 1793518200000),
    ],
)
def test_since_is_a_date_here_or_how_long_ago(text, meant):
    assert parse_since(text, NOW_MS, BERLIN) == meant
    assert datetime.fromtimestamp(meant / 1000, tz=UTC)


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 days", "-7d", "1e3d", "2026-13-01", "yesterday", "\x1b[31m"]
)
def test_an_unreadable_time_is_refused(text):
    with pytest.raises(Invalid) as refusal:
        parse_since(text, NOW_MS, BERLIN)

    assert refusal.value.hint
    assert "\x1b" not in refusal.value.message


def test_the_recordings_of_every_version_are_listed_and_counted(tmp_path):
    root = config_dir(
        tmp_path,
        "1.0.128/subagent",
        "2.0.76/subagent",
        "2.1.100/subagent",
        "2.1.325/subagent-foreground",
    )

    listed = list_sessions(root, "session", "list", "--json", "--limit", "0")
    counted = list_sessions(root, "session", "usage", "--json", "--by", "session")

    assert all(session.keys() >= TOKENS for session in listed)
    assert {session["session"] for session in listed} == {row["session"] for row in counted["rows"]}
    for session in listed:
        (row,) = [row for row in counted["rows"] if row["session"] == session["session"]]
        assert (row["output_tokens"], row["cost_usd"]) == (
            session["output_tokens"],
            pytest.approx(session["cost_usd"]),
        )


@pytest.fixture
def uncertain(tmp_path):
    """A session of a client that wrote no final counts, and one without any usage."""
    text = {"type": "text", "text": "word " * 300}
    early = assistant("m1", 2, text, version="2.1.29", tokens={"output_tokens": 1})
    bare = assistant("m2", 2, uuid="x2")
    del bare["message"]["usage"]
    write(tmp_path, SESSION, user("x", 1), early)
    write(tmp_path, OTHER, user("y", 1, uuid="x1"), bare)
    return tmp_path


def test_a_lower_bound_is_the_same_in_list_usage_and_show(uncertain):
    usage = list_sessions(uncertain, "session", "usage", "--by", "session", "--json")["rows"]
    listed = {row["session"]: row for row in list_sessions(uncertain, "session", "list", "--json")}

    for row in usage:
        keys = ("is_lower_bound", "lacks_tokens", "unknown_responses", "cost_usd", "cost_source")
        assert [row[key] for key in keys] == [listed[row["session"]][key] for key in keys]
    by_session = {row["session"]: row for row in usage}
    assert by_session[SESSION]["is_lower_bound"] is by_session[SESSION]["lacks_tokens"] is True
    assert by_session[OTHER]["output_tokens"] is by_session[OTHER]["cost_usd"] is None
    shown = within(uncertain, "session", "show", SESSION).out
    assert "10 + ≥ 1 tokens, ≥ $0.0001" in shown
    assert "tokens unknown, cost unknown" in within(uncertain, "session", "show", OTHER).out


def test_a_lower_bound_is_marked_in_up_search_and_their_hints(uncertain):
    hits = within(uncertain, "session", "search", "word").out
    usage = within(uncertain, "session", "usage", "--by", "model", "--since", "9999d")

    assert "session ≥ $0.0001" in hits
    assert list_sessions(uncertain, "session", "search", "word", "--json")["hits"][0][
        "is_lower_bound"
    ]
    assert "2 sessions, 2 turns, ≥ $0.0001\n" in within(uncertain, "up").out
    assert "flightlog session usage --by model --since 9999d --estimate\n" in usage.err


def test_a_total_with_an_unknown_part_says_so(uncertain):
    ran = within(uncertain, "session", "usage", "--by", "session")

    assert "unknown" in ran.out
    assert "≥ 1 " in ran.out
    assert "$0.0000" not in ran.out
    assert "1 response without recorded usage" in ran.err


@pytest.mark.parametrize("by", ["session", "day", "block"])
def test_an_estimate_is_apart_from_the_recorded_figures(uncertain, by):
    plain = list_sessions(uncertain, "session", "usage", "--by", by, "--json")
    report = list_sessions(uncertain, "session", "usage", "--by", by, "--json", "--estimate")

    estimated = report["total"]["estimated_output_tokens"]

    assert 300 < estimated < 450
    assert report["total"]["output_tokens"] == plain["total"]["output_tokens"] == 1
    assert sum(row["estimated_output_tokens"] for row in report["rows"]) == estimated
    assert report["total"]["estimated_cost_usd"] > 0
    assert "estimated_output_tokens" not in plain["total"]
    assert "estimated" in within(uncertain, "session", "usage", "--estimate").out


def test_the_head_of_a_fork_counts_its_own_responses(tmp_path):
    copied = [user("go", 1), assistant("m1", 2, tokens={"output_tokens": 900})]
    own = [user("more", 4), assistant("m2", 5, tokens={"output_tokens": 5})]
    write(tmp_path, SESSION, *copied)
    write(tmp_path, OTHER, *copied, *own)
    rows = list_sessions(tmp_path, "session", "usage", "--by", "session", "--json")["rows"]

    lines = within(tmp_path, "session", "show", OTHER).out.splitlines()

    cost = next(row["cost_usd"] for row in rows if row["session"] == OTHER)
    head = next(line for line in lines if "2 steps" in line)
    assert "15 tokens" in head
    assert head.endswith(f"${cost:.4f}")
    assert "910 more tokens, of copied responses, count in another session" in lines
    for options in (("--format", "md"), ("--redact",)):
        written = within(tmp_path, "session", "export", OTHER, *options).out
        assert f"15 tokens, ${cost:.4f}" in written
    for command in (("share", OTHER), ("session", "export", OTHER, "--format", "html")):
        page = within(tmp_path, *command).out
        assert f'<span class="cost">${cost:.4f}</span></a></b></dd>' in page
        assert "<dt>Tokens</dt><dd><b>15</b>" in page
        assert "910 more, of copied responses, count in another session" in page


def test_doctor_and_up_name_files_in_an_unknown_layout(two):
    write(two, "s/chat", {"costUSD": 1})

    assert "s/chat.jsonl" in within(two, "doctor").out
    assert list_sessions(two, "up", "--json")["unread_files"] == 1


def test_touching_every_file_changes_neither_order_nor_running(tmp_path):
    config = config_dir(tmp_path, *CASES)
    listed = [within(config, "session", "list", "--limit", "0", "--json").out]
    running = [json.loads(within(config, "status", "--json").out)["live"][0]["state"]["sessions"]]

    for place, path in enumerate(sorted(config.rglob("*.jsonl"), reverse=True)):
        os.utime(path, (time.time() - place, time.time() - place))
    listed.append(within(config, "session", "list", "--limit", "0", "--json").out)
    running.append(
        json.loads(within(config, "status", "--json").out)["live"][0]["state"]["sessions"]
    )

    before, after = ([row["session"] for row in json.loads(text)] for text in listed)
    ended = [row["ended_ms"] or 0 for row in json.loads(listed[1])]
    assert before == after
    assert ended == sorted(ended, reverse=True)
    assert running == [[], []]


def test_a_prompt_about_an_error_of_an_api_is_no_empty_session(tmp_path):
    write(tmp_path, SESSION, user("API Error 500 is what my backend returns", 1))

    assert len(list_sessions(tmp_path, "session", "list", "--json")) == 1
