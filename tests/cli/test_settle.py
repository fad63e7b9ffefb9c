"""Keeping sessions for good, and saying how that stands."""

import json
import os
import shutil

from flightlog.store.locks import exclusive_lock
from support.cli_runs import within
from support.recordings import config_dir

CASES = ("2.1.325/multi-turn-tools", "2.1.325/subagent-foreground")


def run_settle(config, *arguments):
    ran = within(config, *arguments, "--json")
    return ran.code, json.loads(ran.out)


def test_settle_archives_everything_and_twice_copies_nothing(tmp_path):
    config = config_dir(tmp_path, *CASES)

    first, again = run_settle(config, "settle"), run_settle(config, "settle")

    assert (first[0], first[1]["sessions"]) == (0, 2)
    assert first[1]["adopted_bytes"] > 100_000
    assert (again[0], again[1]["adopted_bytes"]) == (0, 0)


def test_a_transcript_behind_a_link_is_archived_like_any_other(tmp_path):
    config = config_dir(tmp_path, CASES[0])
    (transcript,) = config.glob("projects/*/*.jsonl")
    transcript.rename(tmp_path / "elsewhere.jsonl")
    transcript.symlink_to(tmp_path / "elsewhere.jsonl")

    code, report = run_settle(config, "settle")
    transcript.unlink()

    assert (code, report["failures"]) == (0, [])
    assert report["adopted_bytes"] > 1_000
    assert within(config, "doctor", "--verify").code == 0
    assert len(json.loads(within(config, "session", "list", "--json").out)) == 1


def test_status_counts_archived_and_unarchived_sessions(tmp_path):
    config = config_dir(tmp_path, *CASES)
    assert run_settle(config, "status")[1]["unarchived_sessions"] == 2

    within(config, "settle")
    shutil.rmtree(config / "projects")

    status = run_settle(config, "status")[1]
    assert (
        status["archived_sessions"],
        status["archived_only_sessions"],
        status["unarchived_sessions"],
        status["source_sessions"],
    ) == (
        2,
        2,
        0,
        0,
    )
    assert within(config, "session", "list", "--json").code == 0
    assert "2 sessions archived (2 deleted by the agent)" in within(config, "status").out


def test_one_session_is_settled_by_a_prefix_of_its_id(tmp_path):
    config = config_dir(tmp_path, *CASES)

    code, report = run_settle(config, "settle", "2123")

    assert (code, report["sessions"]) == (0, 1)
    assert run_settle(config, "status")[1]["archived_sessions"] == 1


def test_the_hook_finds_a_session_the_configuration_does_not(tmp_path):
    config = config_dir(tmp_path / "known", CASES[0])
    other = config_dir(tmp_path / "other", CASES[1])
    (path,) = other.glob("projects/*/7575a0bb-*.jsonl")
    hooks = config / "home" / "sessions" / "claude-code" / path.stem / "hooks.jsonl"
    hooks.parent.mkdir(parents=True)
    hooks.write_text(json.dumps({"payload": {"transcript_path": str(path)}}) + "\nnot json\n")

    code, _ = run_settle(config, "settle", path.stem)

    assert code == 0
    assert (hooks.parent / "transcript.jsonl").read_bytes() == path.read_bytes()
    assert list((hooks.parent / "subagents").glob("*.meta.json"))


def test_a_session_that_another_process_settles_is_named_with_code_75(tmp_path):
    config = config_dir(tmp_path, CASES[0])
    within(config, "settle")
    (folder,) = (config / "home" / "sessions" / "claude-code").glob("2123*")

    with exclusive_lock(folder / ".lock"):
        ran = within(config, "settle")

    assert ran.code == 75
    assert "not archived, busy: 2123f2df" in ran.err
    assert f"held by process {os.getpid()}" in ran.err


def test_an_unknown_session_is_not_found(tmp_path):
    ran = within(config_dir(tmp_path, CASES[0]), "settle", "nobody")

    assert ran.code == 1
    assert "no session 'nobody'" in ran.err


def test_old_sessions_are_sealed_and_still_shown(tmp_path):
    config = config_dir(tmp_path, *CASES)
    before = within(config, "session", "usage", "--json", "--by", "session").out

    code, report = run_settle(config, "settle")
    more = within(config, "settle", "--json", FLIGHTLOG_ARCHIVE_SEAL_AFTER_DAYS="0")
    assert (code, report["sealed_files"], json.loads(more.out)["sealed_files"]) == (0, 0, 0)
    for path in config.glob("projects/**/*.jsonl"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert run_settle(config, "settle")[1]["sealed_files"] >= 2
    shutil.rmtree(config / "projects")

    assert within(config, "session", "usage", "--json", "--by", "session").out == before
