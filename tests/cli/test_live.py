"""The commands of live as a person runs them."""

import fcntl
import json
import os
import time

import pytest

from flightlog.live.cleanup import LOG_BYTES_MAX, clean_up, log_line
from flightlog.live.collector import LOCK
from flightlog.live.state_file import runtime_state
from support.cli_runs import FLIGHTLOG, environment, within
from support.live_files import MINUTE_MS, Desk, session_id

ONE = session_id(1)


@pytest.fixture
def desk(tmp_path):
    now = int(time.time() * 1000)
    made = Desk(tmp_path, now)
    made.home = made.config / "home"
    made.responses(ONE, (now - 2 * MINUTE_MS, 10_000, 100))
    made.tell(
        ONE, now - MINUTE_MS, account="oauth-aaaa", cost={"total_cost_usd": 0.07}, version="2.1.325"
    )
    return made


def test_status_shows_the_board_then_the_recording_and_as_json_both(desk):
    board = within(desk.config, "status")
    as_json = json.loads(within(desk.config, "status", "--json").out)

    assert board.code == 0
    assert (
        board.out.index("Primary Account")
        < board.out.index("SESSION")
        < board.out.index("1 session in the agent's files")
    )
    assert "Hooks missing" in board.out
    assert as_json["live"][0]["state"]["sessions"][0]["sessionId"] == ONE
    assert as_json["source_sessions"] == 1


def test_watch_shows_the_last_state_while_another_process_collects(desk):
    assert "1 running" in within(desk.config, "watch").out
    now_ms = int(time.time() * 1000)
    desk.responses(session_id(2), (now_ms - MINUTE_MS, 10_000, 100))
    desk.hook(session_id(2), "Stop", now_ms - MINUTE_MS)
    with (desk.where().folder / runtime_state.OWN / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        meanwhile = within(desk.config, "watch")
    assert (meanwhile.code, "1 running" in meanwhile.out) == (0, True), meanwhile.err
    assert "2 running" in within(desk.config, "watch").out


def test_watch_prints_once_without_a_terminal(desk):
    assert "1 running" in within(desk.config, "watch").out
    assert json.loads(within(desk.config, "watch", "--once", "--json").out)[0]["error"] == ""
    assert within(desk.config, "watch", "--json").code == 2


def test_a_label_is_given_shown_and_kept(desk):
    within(desk.config, "status")

    dry = within(desk.config, "live", "label", "default", "Work", "--dry-run")
    assert ("not written" in dry.out, "label: Primary Account" in desk.yaml.read_text()) == (
        True,
        True,
    )
    assert (
        within(desk.config, "live", "label", "default", "Work").out
        == "default: Primary Account -> Work\n"
    )

    assert "label: Work" in desk.yaml.read_text()
    assert "Work" in within(desk.config, "live", "profiles").out
    assert "Work | Opus" in within(desk.config, "live", "statusline").out
    missing = within(desk.config, "live", "label", "nobody", "x")
    assert (missing.code, "flightlog live profiles" in missing.err) == (1, True)


def test_swap_splits_the_cost_and_without_arguments_advises(desk):
    within(desk.config, "status")
    text = desk.yaml.read_text().replace(
        "authProfiles:\n", "authProfiles:\n  - profileId: work\n    label: Work\n"
    )
    desk.yaml.write_text(text)

    assert "no switch needed" in within(desk.config, "live", "swap").out
    assert within(desk.config, "live", "swap", ONE[:8], "work", "--at", "nonsense").code == 2
    assert within(desk.config, "live", "swap", ONE[:8], "nobody").code == 1
    done = within(desk.config, "live", "swap", ONE[:8], "work", "--json")
    assert json.loads(done.out)["profile"] == "work"

    session = json.loads(within(desk.config, "status", "--json").out)["live"][0]["state"][
        "sessions"
    ][0]
    assert [swap["authProfile"] for swap in session["profileSwitches"]] == ["default", "work"]


def test_state_reads_the_file_and_says_where_it_is_broken(desk):
    within(desk.config, "status")
    good = within(desk.config, "live", "state", "--json")
    desk.yaml.write_text(desk.yaml.read_text() + "oops: [\n")

    bad = within(desk.config, "live", "state")
    shown = within(desk.config, "status")

    assert (good.code, json.loads(good.out)[0]["state"]["authProfiles"][0]["profileId"]) == (
        0,
        "default",
    )
    assert bad.code == 3
    assert f"left unchanged: {desk.yaml}: line " in bad.err
    assert f"not read: {desk.yaml}: line " in shown.out


def test_cleanup_moves_old_sessions_to_a_compressed_archive(desk):
    within(desk.config, "status")
    assert within(desk.config, "live", "cleanup").out == "nothing to clean up\n"
    assert within(desk.config, "live", "cleanup", "--days", "0", "--dry-run").out == f"{ONE}\n"

    assert within(desk.config, "live", "cleanup", "--days", "0").out == f"{ONE}\n"

    assert "sessionId" not in desk.yaml.read_text()
    assert [session["sessionId"] for session in desk.list_archived()] == [ONE]
    assert [path.suffix for path in (desk.folder / "archive").iterdir()] == [".zst"]


def test_cleanup_removes_only_pages_and_marks_of_old_sessions(tmp_path):
    old = time.time() - 8 * 86_400
    for name in (f"{ONE}.json", "billing-shared.json", "sessions.json", f"{session_id(2)}.json"):
        (tmp_path / name).write_text("{}")
        if name != f"{session_id(2)}.json":
            os.utime(tmp_path / name, (old, old))

    assert clean_up(tmp_path, tmp_path / "home", int(time.time() * 1000)) == [ONE]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        f"{session_id(2)}.json", "billing-shared.json", "sessions.json",
    ]  # fmt: skip


def test_the_log_is_cut_to_its_last_lines(tmp_path):
    (tmp_path / "daemon.log").write_text(
        "x" * 99 + "\n" * 1 + ("y" * 99 + "\n") * (LOG_BYTES_MAX // 100)
    )

    log_line(tmp_path, "last\nword")

    lines = (tmp_path / "daemon.log").read_text().splitlines()
    assert (len(lines), lines[-1]) == (500, "last word")


def test_the_status_line_of_a_payload_on_stdin(desk):
    import subprocess

    payload = json.dumps(
        {"model": {"display_name": "Opus"}, "cost": {"total_cost_usd": 3}}
    ).encode()
    words = [FLIGHTLOG, "live", "statusline", "--width", "60", "--template", "{cost} by {model}"]
    done = subprocess.run(
        words, input=payload, env=environment(desk.config), capture_output=True, check=True
    )

    assert done.stdout == b"$3.00 by Opus\n"
