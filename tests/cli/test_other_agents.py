"""Every command on the sessions of an agent that is not Claude Code, with sessions of both."""

import json
import os
import re
import subprocess
import time

import pytest

from support.cli_runs import within
from support.recordings import config_dir
from support.small_agent import SESSION, registering_agent, write_session

GIT = ("git", "-c", "user.name=dev", "-c", "user.email=dev@example.invalid")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine with one session of Claude Code and one of the small agent."""
    folder = config_dir(tmp_path_factory.mktemp("both"), "2.1.325/single-turn")
    write_session(folder / "tinker", {"type": "odd", "ms": 8_000, "id": "o1"})
    with registering_agent():
        yield folder


def run(machine, *arguments, **more):
    ran = within(machine, *arguments, **{"TINKER_HOME": f"{machine}/tinker", **more})
    assert ran.code == 0, ran.err
    return ran.out


def run_json(machine, *arguments, **more):
    return json.loads(run(machine, *arguments, "--json", **more))


def test_list_names_and_filters_the_agent(machine):
    rows = run_json(machine, "session", "list")
    text = run(machine, "session", "list")
    own = run_json(machine, "session", "list", "--agent", "tinker")

    assert {row["agent"] for row in rows} == {"claude-code", "tinker"}
    assert [(row["session"], row["version"]) for row in own] == [(SESSION, "0.9.1")]
    assert "agent" in text.splitlines()[0]
    assert "tinker" in text


def test_list_of_one_agent_has_no_column_for_it(machine, tmp_path):
    text = run(machine, "session", "list", TINKER_HOME=str(tmp_path))

    assert "agent" not in text.splitlines()[0].split()


def test_an_unknown_agent_is_refused_with_the_known_ones(machine):
    for command in (("list",), ("usage",), ("export", "--all", "--atif", "--output", "x")):
        ran = within(machine, "session", *command, "--agent", "codec")

        assert (ran.code, "no such agent: 'codec'" in ran.err) == (2, True)
        assert "claude-code" in ran.err


def test_search_by_agent_alone_finds_its_messages(machine):
    report = run_json(machine, "session", "search", "agent:claude-code")

    assert len(report["hits"]) == report["total"] == 2
    assert all(hit["snippet"] for hit in report["hits"])


def test_usage_by_agent_and_of_one_agent(machine):
    report = run_json(machine, "session", "usage", "--by", "agent")
    own = run_json(machine, "session", "usage", "--by", "model", "--agent", "tinker")

    rows = {row["agent"]: row for row in report["rows"]}
    assert (rows["tinker"]["input_tokens"], rows["tinker"]["output_tokens"]) == (380, 55)
    assert own["total"]["input_tokens"] == 380
    assert report["total"]["input_tokens"] == 380 + rows["claude-code"]["input_tokens"]


def test_show_names_agent_version_and_exit_code(machine):
    text = run(machine, "session", "show", SESSION)

    assert "tinker 0.9.1, /home/dev/shop (main)" in text
    assert "exit code 1" in text
    assert "unknown record type odd, 1 time" in text


def test_follow_begins_with_the_agent(machine):
    text = run(machine, "session", "follow", SESSION, "--idle", "0.1")

    assert text.splitlines()[0] == "tinker 0.9.1, /home/dev/shop"
    assert "double the widgets" in text


def test_search_finds_and_names_the_agent(machine):
    hits = run_json(machine, "session", "search", "widgets agent:tinker")["hits"]

    assert [(hit["session"], hit["agent"]) for hit in hits] == [(SESSION, "tinker")]


def test_up_counts_each_agent(machine):
    overview = run_json(machine, "up")
    text = run(machine, "up")

    assert {row["agent"]: row["sessions"] for row in overview["agents"]} == {
        "claude-code": 1,
        "tinker": 1,
    }
    assert "1 session of Claude Code, 1 session of Tinker" in text
    assert [row["session"] for row in overview["expiring_sessions"]] != [SESSION]


def test_exports_name_the_agent(machine):
    page = run(machine, "session", "export", SESSION, "--format", "html")
    assert "Tinker 0.9.1" in re.sub(r"<svg.*?</svg>|<[^>]*>", "", page)
    assert "tinker 0.9.1" in run(machine, "session", "export", SESSION, "--format", "md")
    trajectory = json.loads(run(machine, "session", "export", SESSION, "--atif"))

    assert (trajectory["agent"]["name"], trajectory["agent"]["version"]) == ("tinker", "0.9.1")


def test_export_of_all_takes_the_sessions_of_one_agent(machine, tmp_path):
    whole = ("session", "export", "--all", "--atif", "--output", str(tmp_path))

    report = run_json(machine, *whole, "--agent", "claude-code")

    assert (report["sessions"], report["failed"]) == (1, {})
    assert not (tmp_path / SESSION).exists()


def test_trajectory_is_accepted_and_loses_nothing(machine, tmp_path):
    run(machine, "session", "export", SESSION, "--atif", "--output", str(tmp_path))

    (report,) = run_json(machine, "lab", "lint", str(tmp_path))

    assert [finding for finding in report["findings"] if finding["level"] == "error"] == []
    missing = [
        count["element"]
        for count in report["fidelity"]
        if count["recorded_count"] > count["exported_count"] and not count["reason"]
    ]
    assert (bool(report["fidelity"]), missing) == (True, [])


def test_settle_archives_it_and_the_copy_reads_the_same(machine, tmp_path):
    path = write_session(tmp_path / "tinker")
    report = run_json(tmp_path, "settle", SESSION)
    before = run(tmp_path, "session", "show", SESSION, "--json")
    path.unlink()

    assert (report["sessions"], report["failures"]) == (1, [])
    assert run(tmp_path, "session", "show", SESSION, "--json") == before


def test_settle_finds_a_session_by_the_hook_log_of_its_agent(machine, tmp_path):
    path = write_session(tmp_path / "elsewhere")
    log = tmp_path / "home" / "sessions" / "tinker" / SESSION / "hooks.jsonl"
    log.parent.mkdir(parents=True)
    payload = {"transcript_path": str(path), "session_id": SESSION}
    event = {"v": 1, "id": "1", "at_ms": 1, "agent": "tinker", "event": "Stop", "payload": payload}
    log.write_text(json.dumps(event) + "\n")

    run(tmp_path, "settle", SESSION)

    assert (log.parent / "transcript.jsonl").read_bytes() == path.read_bytes()


def test_status_shows_recent_sessions_without_saying_they_run(machine, tmp_path):
    start = int(time.time() * 1000) - 1_763_000_000_000 - 60_000
    late = {"type": "prompt", "ms": start, "id": "p9", "text": "now"}
    write_session(tmp_path / "tinker", late)

    status = run_json(tmp_path, "status")
    text = run(tmp_path, "watch", "--once")

    assert [(row["session"], row["agent"]) for row in status["recent"]] == [(SESSION, "tinker")]
    assert (status["running"], "nothing runs" in text, "tinker" in text) == ([], True, True)


def test_status_shortens_no_id_to_the_beginning_of_another(machine, tmp_path):
    start = int(time.time() * 1000) - 1_763_000_000_000 - 60_000
    late = {"type": "prompt", "ms": start, "id": "p9", "text": "now"}
    for session in (SESSION, "tinker-0002"):
        write_session(tmp_path / "tinker", late, session=session)

    words = run(tmp_path, "watch", "--once").split()

    assert {SESSION, "tinker-0002"} <= {*words}


def test_an_old_session_is_not_recent(machine):
    os.utime(machine / "tinker" / f"{SESSION}.jsonl")

    assert run_json(machine, "status")["recent"] == []


def test_doctor_lists_agents_and_what_they_keep(machine):
    findings = run_json(machine, "doctor")
    formats = run_json(machine, "doctor", "--formats")
    table = run(machine, "doctor", "--formats").splitlines()

    messages = [finding["message"] for finding in findings]
    assert "1 record of unknown format: Tinker odd" in messages
    assert any(message.startswith("1 Tinker session: ") for message in messages)
    assert "new: Tinker odd (1 record)" in [finding["message"] for finding in formats]
    fidelity = {row["agent"]: row for row in formats if row["subject"] == "fidelity"}
    facts = ("prompt", "tools", "thinking", "usage", "exit_codes", "permissions", "files")
    assert [fidelity["tinker"][fact] for fact in facts] == [
        False,
        True,
        True,
        True,
        True,
        False,
        True,
    ]
    assert all(fidelity["claude-code"][fact] for fact in facts)
    assert table[0].split()[:4] == ["recorded", "by", "prompt", "tools"]
    assert next(line for line in table if line.startswith("tinker")).split()[1:4] == [
        "-", "kept", "kept"]  # fmt: skip


def test_only_claude_codes_files_are_compared_with_its_format(machine, tmp_path):
    write_session(tmp_path / "tinker")

    messages = [finding["message"] for finding in run_json(tmp_path, "doctor", "--formats")]

    assert "only known fields in 1 transcript" in messages


def test_settings_name_more_directories_of_an_agent(machine, tmp_path):
    write_session(tmp_path / "b", session="tinker-0002")
    settings = tmp_path / "flightlog.toml"
    settings.write_text(f'[agents]\ndirectories = "tinker={tmp_path}/b, tinker={tmp_path}/none"\n')

    def list_tinker_sessions(**more):
        rows = run_json(machine, "session", "list", "--agent", "tinker", **more)
        return {row["session"] for row in rows}

    both = {SESSION, "tinker-0002"}
    assert list_tinker_sessions() == {SESSION}
    assert list_tinker_sessions(FLIGHTLOG_CONFIG=str(settings)) == both
    assert list_tinker_sessions(FLIGHTLOG_AGENTS_DIRECTORIES=f"tinker={tmp_path}/b") == both


def test_a_project_does_not_decide_which_directories_are_read(machine, tmp_path, monkeypatch):
    write_session(tmp_path / "b", session="tinker-0002")
    (tmp_path / "flightlog.toml").write_text(f'[agents]\ndirectories = "tinker={tmp_path}/b"\n')
    monkeypatch.chdir(tmp_path)

    rows = run_json(machine, "session", "list", "--agent", "tinker")
    settings = {row["name"]: row for row in run_json(machine, "config", "show")}

    assert [row["session"] for row in rows] == [SESSION]
    assert settings["agents.directories"]["value"] == ""


@pytest.mark.parametrize("value", ["tinkre=/a", "tinker=a/b", "/a"])
def test_a_wrong_directory_setting_says_what_is_wrong(machine, value):
    ran = within(machine, "session", "list", FLIGHTLOG_AGENTS_DIRECTORIES=value)

    assert ran.code == 4
    assert "FLIGHTLOG_AGENTS_DIRECTORIES" in ran.err


@pytest.fixture
def repository(machine, tmp_path, monkeypatch):
    """A repository with the file that the session wrote, and the session as working in it."""
    repository = tmp_path / "shop"
    repository.mkdir()
    write_session(tmp_path / "tinker", cwd=str(repository))
    (repository / "cart.py").write_text("a = 2\nb = 3\n")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "double")):
        subprocess.run([*GIT, *command], cwd=repository, check=True)
    monkeypatch.chdir(repository)
    return tmp_path


def test_blame_and_trace_lead_to_the_step_that_wrote_a_line(repository):
    (line,) = run_json(repository, "blame", "cart.py:2")
    trace = run_json(repository, "trace", f"step:{SESSION}#1.1")

    assert line["step"] == f"{SESSION}#1.1"
    assert f"{SESSION}#1.1:cart.py:1" in [
        item["address"] for item in trace["links"] if item["kind"] == "hunk"
    ]


def test_training_rows_have_the_agent_and_what_its_tools_did(repository):
    run(repository, "dataset", "session", "sync-to-jsonl", FLIGHTLOG_TRUST="all")

    tracked = repository / "shop" / ".git-ml" / "tracked"
    lines = "".join(file.read_text() for file in tracked.rglob("*.jsonl")).splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["agent"] for row in rows if row.get("session") == SESSION} == {"tinker"}
    assert {row["action_type"] for row in rows if "action_type" in row} == {"edit", "command"}
    assert ["cart.py"] in [row.get("files_modified") for row in rows]


def test_retro_sees_what_its_commands_showed(repository):
    analysis = run_json(repository, "retro", "analyze")

    (outcome,) = (item for item in analysis["patterns"] if item["label"] == "tests failed")
    assert [item["address"] for item in outcome["evidence"]] == [f"{SESSION}#1.2"]


def test_runs_are_made_of_claude_codes_sessions_alone(machine, tmp_path):
    more = {"TINKER_HOME": f"{machine}/tinker"}
    runs = ("--runs-dir", str(tmp_path))

    refused = within(machine, "lab", "collect", SESSION, *runs, **more)
    listed = run_json(machine, "lab", "collect", "--list", *runs)

    assert (refused.code, "is of tinker" in refused.err) == (2, True)
    assert SESSION not in {row["session"] for row in listed}


def test_a_fork_in_another_directory_is_known_as_a_copy(machine, tmp_path):
    write_session(tmp_path / "tinker")
    own = {"type": "reply", "ms": 9_000, "id": "r9", "model": "m", "text": "own", "tokens": [1, 1]}
    write_session(tmp_path / "b", own, session="tinker-0002")
    more = {"FLIGHTLOG_AGENTS_DIRECTORIES": f"tinker={tmp_path}/b"}

    fork = json.loads(run(tmp_path, "session", "export", "tinker-0002", "--atif", **more))
    first = json.loads(run(tmp_path, "session", "export", SESSION, "--atif", **more))

    def copies(trajectory):
        steps = (step for step in trajectory["steps"] if step["source"] == "agent")
        return [step.get("is_copied_context", False) for step in steps]

    assert copies(fork) == [True, True, True, False]
    assert copies(first) == [False, False, False]
    total = run_json(tmp_path, "session", "usage", **more)["total"]
    assert total["input_tokens"] == 381
