"""`flightlog session export --atif` as a person runs it."""

import json

import pytest

from flightlog.views.atif.document import read_trajectory
from support.cli_runs import within
from support.recordings import config_dir
from support.transcripts import SESSION, assistant, user, write

SECRET = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"


@pytest.fixture
def recordings_dir(tmp_path):
    return config_dir(
        tmp_path / "config",
        "2.1.325/single-turn",
        "2.1.325/subagent-foreground",
        "2.1.325/odd-outputs",
    )


def test_a_session_of_one_file_is_printed(recordings_dir):
    ran = within(recordings_dir, "session", "export", "dff270bc", "--atif")

    assert ran.code == 0, ran.err
    assert read_trajectory(ran.out.encode()).schema_version == "ATIF-v1.6"
    assert json.loads(ran.out)["agent"]["tool_definitions"]


def test_version_1_7_is_asked_for_by_name(recordings_dir):
    ran = within(recordings_dir, "session", "export", "dff270bc", "--atif-1.7")

    assert (
        read_trajectory(ran.out.encode()).trajectory_id
        == read_trajectory(ran.out.encode()).session_id
    )


@pytest.mark.parametrize(("session", "files"), [("7575a0bb", 2), ("594c6bc1", 2)])
def test_session_with_subagents_or_pictures_needs_a_directory(
    recordings_dir, tmp_path, session, files
):
    refused = within(recordings_dir, "session", "export", session, "--atif")
    ran = within(
        recordings_dir, "session", "export", session, "--atif", "--output", str(tmp_path / "out")
    )

    assert (refused.code, refused.out) == (2, "")
    assert "--output DIR" in refused.err
    assert ran.code == 0, ran.err
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == files
    assert (tmp_path / "out" / "trajectory.json").exists()


def test_a_file_is_not_taken_for_a_directory(recordings_dir, tmp_path):
    (tmp_path / "out").write_text("mine")
    ran = within(
        recordings_dir, "session", "export", "7575a0bb", "--atif", "--output", str(tmp_path / "out")
    )

    assert ran.code == 75
    assert (tmp_path / "out").read_text() == "mine"


def test_a_redacted_trajectory_holds_neither_secrets_nor_pictures(recordings_dir, tmp_path):
    write(
        recordings_dir,
        SESSION,
        user(f"use {SECRET}", 1),
        assistant("m1", 2, {"type": "text", "text": f"I use {SECRET}"}),
    )
    plain = within(recordings_dir, "session", "export", SESSION, "--atif")
    clean = within(recordings_dir, "session", "export", SESSION, "--atif", "--redact")
    within(
        recordings_dir,
        "session",
        "export",
        "594c6bc1",
        "--atif",
        "--redact",
        "--output",
        str(tmp_path / "out"),
    )

    assert SECRET in plain.out
    assert SECRET not in clean.out
    assert len(read_trajectory(clean.out.encode()).steps) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["trajectory.json"]
    assert "[image/png left out]" in (tmp_path / "out" / "trajectory.json").read_text()
