"""Our copies stand in for what the agent deleted or rewrote, and never for what it still has."""

import shutil

import pytest

from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.recordings import list_recorded_files, recording_name
from flightlog.archive.archive import Archive
from flightlog.model.usage import Breakdown
from flightlog.store.recordings.sessions import seal_session
from support.recordings import config_dir

CASES = (
    "2.1.325/multi-turn-tools",
    "2.1.325/subagent-foreground",
    "2.1.325/odd-outputs",
    "2.0.76/subagent",
    "2.1.325/workflow",
)


@pytest.fixture
def places(tmp_path):
    return config_dir(tmp_path / "config", *CASES), tmp_path / "home"


def keep_all(config, home):
    for session, recording in Archive({"claude-code": (str(config),)}).recordings.items():
        adopt_session_files(str(home), session, recording.files)


def report_usage(config, home):
    from datetime import UTC

    archive = Archive({"claude-code": (str(config),)}, str(home))
    sessions = {
        session.id: (session.title, session.turns, session.subagents)
        for session in archive.iter_sessions()
    }
    return sessions, archive.usage_report(Breakdown.SESSION, UTC)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_deleted_session_is_shown_the_same_from_our_copy(places, sealed):
    config, home = places
    before = report_usage(config, home)
    keep_all(config, home)
    for session in Archive({"claude-code": (str(config),)}).recordings if sealed else ():
        seal_session(home, "claude-code", session, at_least=1)

    shutil.rmtree(config / "projects")

    assert report_usage(config, home) == before
    assert any(home.rglob("transcript.jsonl")) is not sealed


def test_a_large_output_is_kept_beside_its_session(places):
    config, home = places
    keep_all(config, home)
    shutil.rmtree(config / "projects")

    whole = Archive({"claude-code": (str(config),)}, str(home)).read_spilled_output(
        "594c6bc1", "/anywhere/b0s4s74qm.txt"
    )

    assert whole is not None
    assert whole.split() == [str(number) for number in range(1, 8001)]


def test_what_the_agent_still_has_is_read_in_place_and_once(places):
    config, home = places
    keep_all(config, home)

    files = list_recorded_files({"claude-code": (str(config),)}, str(home)).files

    assert not [file for file in files if file.path.startswith(str(home))]


def test_records_the_agent_removed_are_still_shown(places):
    config, home = places
    keep_all(config, home)
    (path,) = config.glob("projects/*/2123f2df-*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b"Add a test and commit." not in line))
    keep_all(config, home)

    session = Archive({"claude-code": (str(config),)}, str(home)).read_session("2123f2df")

    assert "Add a test and commit." in [turn.text for turn in session.turns]


def test_archiving_twice_copies_nothing_again(places):
    config, home = places
    keep_all(config, home)

    for session, recording in Archive({"claude-code": (str(config),)}).recordings.items():
        again = adopt_session_files(str(home), session, recording.files)
        assert [span.end - span.start for span in again.adopted if span.end != span.start] == []


def test_names_inside_a_copy_do_not_depend_on_the_layout(places):
    config, _ = places

    names = {
        recording_name(file)
        for file in list_recorded_files({"claude-code": (str(config),)}, "").files
    }

    assert {
        "transcript.jsonl",
        "subagents/agent-a141daf.jsonl",
        "subagents/agent-a18a8ad043c6ab8dd.jsonl",
    } <= names
