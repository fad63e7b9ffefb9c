"""The status line as settings run it: a shell, an isolated Python, a payload on stdin."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flightlog.hooks.statusline_segments import DROPPED, StatusStyle, render_line
from flightlog.setup.install import LINE_SCRIPT, status_line_command
from support.cli_runs import within
from support.waiting import until

SESSION = "11111111-1111-4111-8111-111111111111"
NOW_S = 1_794_744_000.0
PAYLOAD = {
    "session_id": SESSION,
    "cwd": "/nowhere",
    "model": {"id": "claude-opus-5-5", "display_name": "Opus 5.5"},
    "workspace": {"current_dir": "/nowhere", "project_dir": "/nowhere"},
    "version": "2.1.325",
    "cost": {"total_cost_usd": 1.234, "total_duration_ms": 1},
    "context_window": {
        "context_window_size": 200_000,
        "current_usage": {
            "input_tokens": 1155,
            "cache_read_input_tokens": 40_000,
            "output_tokens": 0,
        },
    },
    "rate_limits": {
        "five_hour": {"used_percentage": 29, "resets_at": NOW_S + 3600},
        "seven_day": {"used_percentage": 91.4, "resets_at": NOW_S + 86_400},
    },
}
PAGE = {
    "launch": {"label": "Work", "authProfile": "work"},
    "billing": {"burnRatePerHour": 13.23, "costToday": 17.03, "lastFetched": NOW_S * 1000},
    "health": {"status": "critical", "issues": ["Secrets detected"]},
}
ESCAPES = re.compile(r"\x1b\[[0-9]+m")


def line(payload=PAYLOAD, page=PAGE, width=200, *, color=False):
    return render_line(payload, page, StatusStyle(width, color, NOW_S))


def ran(payload, tmp_path, *, command="", **more):
    config = tmp_path / "config"
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FLIGHTLOG_HOME": str(tmp_path / "home"), "TZ": "UTC",
             "CLAUDE_CONFIG_DIR": str(config), "NO_COLOR": "1", **more}  # fmt: skip
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    done = subprocess.run(["sh", "-c", command or status_line_command(Path(sys.executable))], input=data, env=given,
                          capture_output=True, timeout=20, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def notes(tmp_path):
    path = tmp_path / "home" / "sessions" / "claude-code" / SESSION / "status.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_statusline_shows_profile_model_context_cost_limits_and_problems(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    assert line() == (
        "Work | Opus 5.5 | ctx 25% | $1.23 | $13.23/h | 5h 29% until 13:00 | 7d 91% until Mon 12:00"
        " | ! Secrets detected"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 150, 200])
def test_line_fits_every_width_and_color_adds_no_column(width):
    plain, painted = line(width=width), line(width=width, color=True)

    assert len(plain) <= width
    assert ESCAPES.sub("", painted) == plain
    assert "ctx 25%" in plain
    assert ("\x1b" in painted, "\x1b" in plain) == (True, False)


def test_the_context_says_when_compaction_is_near():
    full = {**PAYLOAD["context_window"], "current_usage": {"input_tokens": 130_000}}

    assert "ctx 78% near compaction" in line({**PAYLOAD, "context_window": full})
    assert "ctx 78%!" in line({**PAYLOAD, "context_window": full}, width=50)


def test_outdated_values_are_not_shown():
    old = {**PAGE, "billing": {**PAGE["billing"], "lastFetched": (NOW_S - 3600) * 1000}}

    assert "/h" in line()
    assert "/h" not in line(page=old)


def test_own_template_is_used_and_unknown_words_are_empty():
    page = {**PAGE, "statusline": {"template": "<{model}> {cost} -- {today} {nonsense} {context}"}}

    assert line(page=page) == "<Opus 5.5> $1.23 -- today $17.03 ctx 25%"
    assert set(DROPPED) >= {"week", "git", "burn", "five", "profile"}


def test_foreign_text_in_the_line_is_inert():
    hostile = "\x1b]0;owned\x07\u202eevil\nline"
    shown = line(
        {**PAYLOAD, "model": {"display_name": hostile}}, {**PAGE, "launch": {"label": hostile}}
    )

    assert "evil" in shown
    assert shown.isprintable()


@pytest.mark.parametrize("payload", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b'{"session_id": "../../etc/x"}',
                                     b'{"cost": {"total_cost_usd": "lots"}, "context_window": [], "model": 7}',
                                     b'{"rate_limits": {"five_hour": {"used_percentage": 1e400}}}'])  # fmt: skip
def test_any_input_prints_a_line_and_exits_with_0(tmp_path, payload):
    assert ran(payload, tmp_path).strip()
    assert not (tmp_path / "etc").exists()


def test_missing_python_or_script_still_prints_a_line(tmp_path):
    for command in (
        status_line_command(tmp_path / "no-python"),
        status_line_command(Path(sys.executable), tmp_path / "gone.py"),
    ):
        assert ran(PAYLOAD, tmp_path, command=command) == "flightlog\n"


def test_a_failure_before_the_line_is_printed_prints_the_name(tmp_path):
    command = f"{{ {status_line_command(Path(sys.executable))}; }} <&-"

    assert ran(b"", tmp_path, command=command) == "flightlog\n"


def test_a_payload_that_cannot_be_logged_adds_no_second_line(tmp_path):
    (tmp_path / "home" / "sessions" / "claude-code" / SESSION / "status.jsonl").mkdir(parents=True)

    shown = ran(PAYLOAD, tmp_path)

    assert "Opus 5.5" in shown
    assert len(shown.splitlines()) == 1


def test_a_directory_in_place_of_the_page_costs_the_page_alone(tmp_path):
    (tmp_path / "config" / "session-health" / f"{SESSION}.json").mkdir(parents=True)

    assert "Opus 5.5" in ran(PAYLOAD, tmp_path)


def test_a_page_that_is_broken_or_a_pipe_is_not_waited_for(tmp_path):
    folder = tmp_path / "config" / "session-health"
    folder.mkdir(parents=True)
    os.mkfifo(folder / f"{SESSION}.json")
    (folder / "billing-shared.json").write_text("{oops")

    started = time.monotonic()

    assert "Opus 5.5" in ran(PAYLOAD, tmp_path)
    assert time.monotonic() - started < 5


def test_a_changed_payload_is_noted_and_the_same_one_is_not(tmp_path):
    path = tmp_path / "home" / "sessions" / "claude-code" / SESSION / "status.jsonl"
    ran(PAYLOAD, tmp_path)
    ran(
        {**PAYLOAD, "effort": {"level": "high"}}, tmp_path
    )  # a moment later, and nothing was spent: throttled
    assert len(notes(tmp_path)) == 1
    os.utime(path, (time.time() - 60, time.time() - 60))
    ran(
        {**PAYLOAD, "cost": {**PAYLOAD["cost"], "total_duration_ms": 99}}, tmp_path
    )  # only the clock moved
    assert len(notes(tmp_path)) == 1
    ran({**PAYLOAD, "cost": {"total_cost_usd": 2.0}}, tmp_path)

    assert [note["payload"]["cost"]["total_cost_usd"] for note in notes(tmp_path)] == [1.234, 2.0]
    assert (tmp_path / "home" / "live" / SESSION).read_text() == str(tmp_path / "config")
    assert path.stat().st_mode & 0o777 == 0o600


def test_new_cost_is_noted_at_once(tmp_path):
    for usd in (1.5, 1.6, 1.6, 1.7):
        ran({**PAYLOAD, "cost": {"total_cost_usd": usd}}, tmp_path)

    assert [note["payload"]["cost"]["total_cost_usd"] for note in notes(tmp_path)] == [
        1.5,
        1.6,
        1.7,
    ]


def test_note_holds_an_account_fingerprint_and_no_environment(tmp_path):
    secret = "sk-" + "ant-" + "x" * 40
    more = {
        "ANTHROPIC_API_KEY": secret,
        "CLAUDE_ALIAS": "claude2",
        "CLAUDE_CODE_MESSAGING_TOKEN": "m" * 30,
        "OTHER": "o" * 9,
    }
    ran(PAYLOAD, tmp_path, **more)

    (note,) = notes(tmp_path)
    text = json.dumps(note)
    assert re.fullmatch(r"key-[0-9a-f]{12}", note["launch"]["account"])
    assert note["launch"]["alias"] == "claude2"
    assert not [value for value in (secret, "m" * 30, "o" * 9) if value in text]


def test_an_account_is_identified_by_the_clients_own_file(tmp_path):
    config = tmp_path / "config"
    config.mkdir()
    accounts = []
    for account in ("1b2c", "9f8e", "1b2c"):
        (config / ".claude.json").write_text(
            json.dumps({"oauthAccount": {"accountUuid": account, "emailAddress": "a@b.c"}})
        )
        path = tmp_path / "home" / "sessions" / "claude-code" / SESSION / "status.jsonl"
        path.unlink(missing_ok=True)
        ran(PAYLOAD, tmp_path)
        accounts.append(notes(tmp_path)[0]["launch"]["account"])

    assert accounts[0] == accounts[2] != accounts[1]
    assert all(account.startswith("oauth-") for account in accounts)


def test_the_script_loads_only_small_modules(tmp_path):
    place = f"sys.path.insert(0, {str(LINE_SCRIPT.parents[2])!r})"
    code = f"import sys; {place}; from flightlog.hooks import payload_log, statusline; print(sorted(sys.modules))"
    listing = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert not {"json", "re", "pathlib", "subprocess", "hashlib", "typing", "enum"} & set(
        re.findall(r"'(\w+)'", listing)
    )


def test_sixteen_concurrent_calls_all_print_their_line(tmp_path):
    command = status_line_command(Path(sys.executable))
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "FLIGHTLOG_HOME": str(tmp_path / "home"),
        "NO_COLOR": "1",
    }
    crowd = [
        subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given
        )
        for _ in range(16)
    ]

    outputs = [
        process.communicate(json.dumps(PAYLOAD).encode(), timeout=30)[0] for process in crowd
    ]

    assert all(b"Opus 5.5" in output for output in outputs)
    assert {process.returncode for process in crowd} == {0}
    assert 1 <= len(notes(tmp_path)) <= 16


def test_the_first_call_in_a_fresh_directory_makes_the_session_known(tmp_path):
    state = tmp_path / "config" / "session-health" / "runtime-state.yaml"
    (tmp_path / "config").mkdir()
    key = "sk-" + "test-" * 5 + "0002"

    first = ran(PAYLOAD, tmp_path, ANTHROPIC_API_KEY=key)
    page = state.with_name(f"{SESSION}.json")
    until(lambda: page.exists() and state.exists(), 30)
    second = ran(PAYLOAD, tmp_path, ANTHROPIC_API_KEY=key)

    assert "API key" not in first
    assert second.startswith("API key …0002 | Opus 5.5")
    assert f"sessionId: {SESSION}" in state.read_text()
    assert (tmp_path / "home" / "config-dirs").read_text() == f"{tmp_path / 'config'}\n"


def test_a_new_session_has_no_label_or_limits_of_another_account(tmp_path):
    folder = tmp_path / "config" / "session-health"
    folder.mkdir(parents=True)
    shared = {
        **PAGE,
        "billing": {
            **PAGE["billing"],
            "limits": {"fiveHour": {"usedPercent": 99, "resetsAt": 4e12}},
        },
        "statusline": {"template": "{profile}|{five}|{cost}|{today}"},
    }
    (folder / "billing-shared.json").write_text(json.dumps(shared))
    bare = {name: value for name, value in PAYLOAD.items() if name != "rate_limits"}

    assert ran(bare, tmp_path) == "$1.23\n"


def test_a_session_whose_account_changed_has_nothing_of_the_one_before(tmp_path):
    folder = tmp_path / "config" / "session-health"
    folder.mkdir(parents=True)
    limits = {"fiveHour": {"usedPercent": 99, "resetsAt": 4e12}}
    page = {
        **PAGE,
        "launch": {**PAGE["launch"], "account": "oauth-1b2c"},
        "billing": {**PAGE["billing"], "limits": limits},
        "statusline": {"template": "{profile}|{five}|{cost}|{today}|{alerts}"},
    }
    (folder / f"{SESSION}.json").write_text(json.dumps(page))
    bare = {name: value for name, value in PAYLOAD.items() if name != "rate_limits"}

    assert ran(bare, tmp_path, ANTHROPIC_API_KEY="sk-" + "test-" * 5 + "0002") == "$1.23\n"


def test_an_idle_line_shows_the_limit_that_other_sessions_reached():
    page = {**PAGE, "statusline": {"template": "{five}"}}
    limit = {"usedPercent": 80, "resetsAt": (NOW_S + 3600) * 1000}
    known = {**page, "billing": {**PAGE["billing"], "limits": {"fiveHour": limit}}}
    over = {"five_hour": {"used_percentage": 97, "resets_at": NOW_S - 60}}

    assert line(page=page).startswith("5h 29%")
    assert line(page=known).startswith("5h 80%")
    assert line({**PAYLOAD, "rate_limits": over}, known).startswith("5h 80%")
    assert "5h" not in line({**PAYLOAD, "rate_limits": over}, page)


def test_an_idle_line_has_no_burn_rate():
    for idle_s, is_shown in ((60, True), (180, False)):
        page = {**PAGE, "metadata": {"lastActivity": (NOW_S - idle_s) * 1000}}
        assert ("/h" in line(page=page)) == is_shown


def test_an_old_burn_rate_is_not_shown_in_an_active_session():
    old = {**PAGE["billing"], "lastFetched": (NOW_S - 601) * 1000}

    assert "/h" not in line(
        page={**PAGE, "billing": old, "metadata": {"lastActivity": NOW_S * 1000}}
    )


def test_after_compaction_no_old_alert_is_shown():
    page = {**PAGE, "health": {"status": "warning", "issues": ["Context near compaction"]}}

    assert "near compaction" not in line(page=page)


TODAY = {
    **PAYLOAD,
    "rate_limits": {
        "seven_day_opus": {"used_percentage": 93, "resets_at": NOW_S + 9},
        "seven_day_sonnet": {"used_percentage": 12, "resets_at": NOW_S + 9},
        "spend_limit": {
            "used_percentage": 42, "resets_at": NOW_S + 9, "used_usd": 21.0, "limit_usd": 50,
            "period": "weekly",
        },
    },
    "prompt_cache": {"warm": True, "expires_at": NOW_S + 250, "hit_ratio": 0.934},
    "pr": {"number": 12, "review_state": "changes_requested"},
    "worktree": {"name": "tax-fix"},
}  # fmt: skip


def test_what_the_client_sends_today_is_shown():
    shown = line(TODAY, {})

    assert "Opus 7d 93% Sonnet 7d 12%" in shown
    assert "spend $21.00 of $50 weekly" in shown
    assert "cache 93% 4m" in shown
    assert "wt tax-fix" in shown
    assert "#12 changes requested" in shown
    assert "Opus 7d" not in line({**TODAY, "rate_limits": {"seven_day_opus": {}}}, {})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"prompt_cache": {"expires_at": NOW_S - 1, "hit_ratio": None}}, "cache cold"),
        ({"prompt_cache": {"expires_at": None}}, "Opus 5.5 | ctx 25%"),
        ({"pr": {"number": 7, "kind": "mr"}}, "!7"),
        ({"pr": {"number": "7"}, "worktree": 5, "rate_limits": []}, "Opus 5.5 | ctx 25%"),
        ({"rate_limits": {"spend_limit": {"used_percentage": 104}}}, "spend 104%"),
    ],
)
def test_odd_and_old_values_of_the_client_are_left_out(fields, text):
    assert text in line({**PAYLOAD, **fields}, {})


def test_an_unknown_word_is_an_error_for_people_and_silent_for_the_agent(tmp_path):
    given = {"FLIGHTLOG_STATUSLINE_TEMPLATE": "{model} {nope}"}
    commands = [("config", "show"), ("init", "--dry-run")]
    shown = [within(tmp_path, *words, **given) for words in commands]
    tried = within(tmp_path, "live", "statusline", "--template", "{modle}")
    doctor = within(tmp_path, "doctor", **given)

    assert [ran.code for ran in shown] == [4, 4]
    assert "unknown word {nope}" in shown[0].err
    assert (tried.code, "did you mean `model`?" in tried.err) == (4, True)
    assert "unknown word {nope}" in doctor.out
    assert line(page={"statusline": {"template": "{model} {nope}"}}) == "Opus 5.5"
