import json
from pathlib import Path

import pytest

from flightlog.agents.claude_code.source import ClaudeCodeSource
from flightlog.archive.archive import Archive
from flightlog.model.session import SessionFile
from support.transcripts import SESSION, user, write

OTHER = "22222222-2222-4222-8222-222222222222"
SUMMARY = {"type": "summary", "summary": "The shop opens", "leafUuid": "u1"}


def read_titles(*paths):
    return [
        entry.event.text
        for entry in ClaudeCodeSource().titles(SessionFile(str(path), "s", 0, 0) for path in paths)
    ]


def test_titles_are_found_wherever_they_stand(tmp_path):
    path = write(
        tmp_path, OTHER, SUMMARY, user('say "summary" twice', 2), {**SUMMARY, "summary": "Second"}
    )

    assert read_titles(path) == ["The shop opens", "Second"]


def test_a_title_is_found_however_the_json_is_spaced(tmp_path):
    path = write(
        tmp_path,
        OTHER,
        json.dumps(SUMMARY),
        json.dumps(SUMMARY, indent=None, separators=(" , ", " : ")),
    )

    assert read_titles(path) == ["The shop opens"] * 2


def test_a_file_that_is_gone_or_broken_has_no_titles(tmp_path):
    broken = write(
        tmp_path, OTHER, b'{"type":"summary","summary":', b'"summary"', b'"type":"summary"', b"\x00"
    )

    assert read_titles(tmp_path / "gone.jsonl", broken) == []


def test_the_titles_of_a_project_are_read_once(tmp_path):
    write(tmp_path, SESSION, user("hello", 1))
    titled = write(tmp_path, OTHER, SUMMARY, user("unrelated", 7))
    archive = Archive({"claude-code": (str(tmp_path),)})

    first = archive.read_session(OTHER).title
    titled.unlink()

    assert (first, archive.read_session(SESSION).title) == ("unrelated", "The shop opens")


@pytest.mark.parametrize("order", [1, -1])
def test_a_title_that_a_person_gave_is_shown_everywhere(tmp_path, order):
    given = {"type": "custom-title", "customTitle": "My shop", "sessionId": SESSION}
    made = {"type": "ai-title", "aiTitle": "Shop work", "sessionId": SESSION}
    first, second = [given, made][::order]
    write(tmp_path, SESSION, user("hello", 1), first, user("more", 2), second)
    archive = Archive({"claude-code": (str(tmp_path),)})

    assert archive.read_session(SESSION).title == "My shop"
    assert [summary.title for summary in archive.iter_summaries()] == ["My shop"]


def test_a_session_is_named_by_a_title_in_another_sessions_file(tmp_path):
    write(tmp_path, SESSION, user("hello", 1))
    write(tmp_path, OTHER, SUMMARY, user("unrelated", 7))

    archive = Archive({"claude-code": (str(tmp_path),)})

    assert archive.read_session(SESSION).title == "The shop opens"
    assert archive.read_session(OTHER).title == "unrelated"
    assert Path(tmp_path).exists()
