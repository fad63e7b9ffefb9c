import json
import os
import re
import shlex
import subprocess
import time
from datetime import UTC, datetime

import pytest

from flightlog.archive.archive import Archive
from support.cli_runs import FLIGHTLOG, environment, within
from support.recordings import CASES, config_dir
from support.transcripts import SESSION, assistant, user, write


def next_commands(out):
    """Return the commands that `up` names; `serve` runs until a person ends it."""
    lines = [line.strip() for line in out.splitlines() if line.startswith("    flightlog")]
    return [line for line in lines if not line.endswith(" serve")]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return config_dir(
        tmp_path_factory.mktemp("all"), *(case for case in CASES if case.startswith("2.1.325"))
    )


def test_every_next_command_works(everything):
    ran = within(everything, "up")

    commands = next_commands(ran.out)
    assert ran.code == 0
    assert len(commands) >= 5
    for command in commands:
        if "--output" not in command:
            assert within(everything, *shlex.split(command)[1:]).code in {0, 3}, command


def test_the_figures_are_those_of_the_reports(everything):
    overview = json.loads(within(everything, "up", "--json").out)
    report = json.loads(within(everything, "session", "usage", "--json", "--by", "session").out)

    assert overview["sessions"] == len(
        json.loads(within(everything, "session", "list", "--json", "--limit", "0").out)
    )
    assert overview["cost_usd"] == pytest.approx(report["total"]["cost_usd"])
    assert overview["unrecorded_cost_usd"] == pytest.approx(report["unrecorded"]["cost_usd"])
    assert overview["is_sample"] is False


def test_empty_sessions_count_in_no_line_of_the_overview(tmp_path):
    text = "<command-name>/exit</command-name>"
    write(tmp_path, SESSION, user("x", 1), assistant("m", 2))
    write(tmp_path, f"9{SESSION[1:]}", user(text, 1, uuid="x1"))

    overview = json.loads(within(tmp_path, "up", "--json").out)

    (project,) = overview["top_projects"]
    assert [overview["sessions"], overview["turns"]] == [1, 1]
    assert [project["sessions"], project["turns"]] == [1, 1]


def test_a_project_path_cannot_add_a_line(tmp_path):
    forged = {"cwd": "/a\n    flightlog evil\nb"}
    write(tmp_path, SESSION, user("x", 1, **forged), assistant("m", 2, **forged))

    commands = next_commands(within(tmp_path, "up").out)

    assert not [command for command in commands if command.startswith("flightlog evil")]


def test_sessions_about_to_be_deleted_are_named_with_the_way_to_keep_them(tmp_path):
    write(tmp_path, SESSION, user("open the shop", 1))
    (tmp_path / "settings.json").write_text('{"cleanupPeriodDays": 3}')

    out = within(tmp_path, "up").out

    assert "3-day rule: 1 session, first 'open the shop'" in out
    assert f"first 'open the shop', {datetime.now(UTC):%Y-%m}" in out, "no date that has passed"
    assert "    flightlog init\n" in out


def test_an_old_archive_is_said_in_months_without_a_date_that_has_passed(tmp_path):
    path = write(tmp_path, SESSION, user("x", 1, timestamp="2026-01-02T03:04:05Z"))
    os.utime(path, (0, 0))

    out = within(tmp_path, "status").out

    assert re.search(r"last record \d+ (months?|years?) ago", out)
    assert f"the agent deletes the oldest transcript on {datetime.now(UTC):%Y-%m-%d}" in out
    assert "resets" not in out
    assert "    flightlog init\n" in out


@pytest.mark.parametrize(
    "body",
    ["", "[]", "nonsense", '{"cleanupPeriodDays":"x"}', '{"cleanupPeriodDays":-1}', "[" * 100_000],
)
def test_broken_settings_of_the_agent_mean_its_default(tmp_path, body):
    write(tmp_path, SESSION, user("x", 1))
    (tmp_path / "settings.json").write_text(body)

    assert json.loads(within(tmp_path, "up", "--json").out)["keep_days"] == 30


def test_the_next_commands_work_when_ids_begin_alike(tmp_path):
    write(tmp_path, "session-one", user("x", 1), assistant("m1", 2))
    write(tmp_path, "session-two", user("y", 1), assistant("m2", 2))

    for command in next_commands(within(tmp_path, "up").out):
        assert within(tmp_path, *shlex.split(command)[1:]).code == 0, command


def test_up_prints_facts_early_and_ends_without_an_address(everything):
    began = time.monotonic()
    with subprocess.Popen(
        [FLIGHTLOG, "up"], env=environment(everything), stdout=subprocess.PIPE, text=True
    ) as child:
        lines = [(time.monotonic() - began, line) for line in child.stdout]

    assert child.returncode == 0
    assert "recordings, " in lines[0][1]
    assert lines[0][0] < lines[-1][0]
    assert lines[-1][1] == "    flightlog serve\n"
    assert "http" not in "".join(line for _, line in lines)


def test_without_sessions_samples_and_demo_are_offered(tmp_path):
    ran = within(tmp_path, "up")

    assert ran.code == 0
    assert "No sessions on this machine yet" in ran.out
    assert "flightlog demo" in ran.out
    assert "    flightlog --samples session list\n" in ran.out


def test_the_search_for_secrets_stops_when_its_time_is_up(tmp_path):
    for number in range(3):
        write(tmp_path, f"s{number}", user("x" * 1000, 1), assistant(f"m{number}", 2))
    archive = Archive({"claude-code": (str(tmp_path),)}, str(tmp_path / "home"))

    assert archive.count_secrets(limit_s=0) == {}
    assert len(archive.count_secrets(limit_s=60)) == 3
    assert len(archive.count_secrets(limit_s=0)) == 3, "now they are in the index"


def test_sessions_that_hold_secrets_are_counted_with_the_way_to_see_them(tmp_path):
    secret = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    write(tmp_path, "one", user(f"use {secret}", 1))
    write(tmp_path, "two", user("no secret", 1))

    ran = within(tmp_path, "up")
    (command,) = [command for command in next_commands(ran.out) if "privacy scan" in command]
    shown = within(tmp_path, *shlex.split(command)[1:])

    assert "1 session holds what looks like secrets" in ran.out
    assert shown.code == 1
    assert "github-token" in shown.out
    assert secret not in shown.out


def test_what_was_counted_once_is_not_read_again(tmp_path):
    write(tmp_path, "one", user("use " + "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i", 1))
    archive = Archive({"claude-code": (str(tmp_path),)}, str(tmp_path / "home"))

    counts = archive.count_secrets()

    assert counts == {"one": {"github-token": 1}}
    assert (
        Archive({"claude-code": (str(tmp_path),)}, str(tmp_path / "home")).count_secrets(
            bytes_max=0
        )
        == counts
    )
    assert Archive({"claude-code": (str(tmp_path),)}).count_secrets(bytes_max=0) == {}
