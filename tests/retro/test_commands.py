"""The commands of retro as a person runs them: what is written, what git would take, what is done twice."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from flightlog.retro.store import ROOT
from retro.planted import chats, encode_chats
from retro.planted_sessions import plant_sessions
from support.cli_runs import FLIGHTLOG, environment
from support.sources_exports import claude_conversation

FOLDERS = {"state", "logs", "issue-drafts", "issues", "feedback", "outputs", "tmp"}


def run(place, *words, program="flightlog", **more):
    return subprocess.run(
        [FLIGHTLOG.with_name(program), *words],
        cwd=place,
        env=environment(place / "config", **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def run_json(place, *words, **more):
    ran = run(place, *words, "--json", **more)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_second_retro_over_unchanged_sessions_reads_no_transcript(place):
    plant_sessions(place / "config", 5)
    first = run_json(place, "retro", "analyze", "--no-draw")
    for path in place.glob("config/projects/*/*.jsonl"):  # other bytes, with the old times
        stat = path.stat()
        path.write_bytes(b"x" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    again = run_json(place, "retro", "analyze", "--no-draw")

    assert first["patterns"]
    assert again["patterns"] == first["patterns"]


def test_recommended_commands_have_the_name_that_was_typed(place):
    conversations = [
        claude_conversation(f"c{n}", f"Fix bug {n}. Never use tabs.") for n in range(5)
    ]
    (place / "export.json").write_text(json.dumps(conversations))

    ran = run(place, "export.json", "--no-draw", program="chat-retro")

    assert ran.stdout.count("chat-retro apply instruction-") == 2
    assert "flightlog" not in ran.stdout


def test_retro_directory_matches_the_document_and_git_tracks_safe_files(place):
    (place / "export.json").write_bytes(encode_chats(chats(1, 30)[0]))
    assert run(place, "export.json", program="chat-retro").returncode == 0
    run(place, "report-bug", "--title", "Broken", "--description", "x", program="issue-workflow")
    run(place, "process", "--yes", program="issue-workflow")
    run(place, "feedback", "gap", "More", program="chat-retro")
    (place / ROOT / "tmp" / "script.py").write_text("x")
    (place / ROOT / "logs" / "debug.jsonl").write_text("{}\n")

    asked = ["git", "ls-files", "--others", "--exclude-standard", ROOT]
    taken = subprocess.run(
        asked, cwd=place, capture_output=True, text=True, check=True
    ).stdout.split()

    names = {name.removeprefix(f"{ROOT}/") for name in taken}
    issues = {name for name in names if name.startswith("issues/issue_")}
    assert len(issues) == 1
    assert names - issues == {
        ".gitignore",
        ".gitattributes",
        "logs/metrics.jsonl",
        *(f"{folder}/.gitkeep" for folder in FOLDERS),
    }
    assert {path.name for path in (place / ROOT).iterdir() if path.is_dir()} == FOLDERS
    assert (place / ROOT / "outputs").glob("*.html")
    assert not list((place / ROOT / "issue-drafts").glob("*.json"))


def test_the_same_export_again_does_nothing_and_a_newer_one_adds(place):
    old = [claude_conversation(f"c{number}", f"Question number {number}") for number in range(3)]
    (place / "old.json").write_text(json.dumps(old))
    (place / "new.json").write_text(json.dumps([*old[1:], claude_conversation("c9", "Another")]))
    digests = place / ROOT / "state" / "digests.jsonl"
    run(place, "retro", "old.json")
    before = (digests.read_bytes(), (place / ROOT / "state" / "analysis.json").read_bytes())

    run(place, "retro", "old.json")
    assert (digests.read_bytes(), (place / ROOT / "state" / "analysis.json").read_bytes()) == before
    analysis = run_json(place, "retro", "new.json")

    assert digests.read_bytes().count(b"\n") == 4
    assert (
        analysis["meta"]["conversation_count"] == 4
    )  # the one that is gone from the newer export stays known
    assert analysis["meta"]["export_format"] == "claude"


def test_every_finding_has_evidence_that_opens(place):
    (place / "export.json").write_bytes(encode_chats(chats(3, 40)[0]))
    plant_sessions(place / "config", 5, 6)

    analysis = run_json(place, "retro", "export.json", "--no-draw")

    kinds = {pattern["kind"] for pattern in analysis["patterns"]}
    assert {"question again", "friction"} <= kinds
    for kind in ("question again", "friction"):
        shown = next(pattern for pattern in analysis["patterns"] if pattern["kind"] == kind)[
            "evidence"
        ][0]
        opened = run_json(place, "retro", "show", shown["address"])
        assert opened, shown
        assert opened[0]["text"], shown


def test_preferences_are_obeyed(place):
    chats_told = [
        claude_conversation(f"a{n}", f"My diabetes insulin dose question {n}") for n in range(8)
    ]
    chats_told += [
        claude_conversation(f"b{n}", f"Postgres index vacuum question {n}") for n in range(8)
    ]
    (place / "export.json").write_text(json.dumps(chats_told))
    assert (
        run(place, "prefs", "set", "excluded_topics", "diabetes", program="chat-retro").returncode
        == 0
    )
    run(place, "prefs", "set", "focus_areas", "postgres vacuum", program="chat-retro")
    refused = run(place, "prefs", "set", "preferred_viz", "pie", program="chat-retro")

    analysis = run_json(place, "retro", "export.json")

    assert "diabetes" not in json.dumps(analysis["patterns"])
    assert "vacuum" in json.dumps(analysis["patterns"][0])
    assert analysis["user_preferences"]["excluded_topics"] == ["diabetes"]
    assert refused.returncode == 2
    (artifact,) = (place / ROOT / "outputs").glob("*.html")
    assert "insulin" not in artifact.read_text()


def test_resume_goes_on_with_the_last_session_and_temporary_scripts_go(place):
    (place / "export.json").write_text(json.dumps([claude_conversation()]))
    run(place, "retro", "export.json")
    first = json.loads((place / ROOT / "resume-session.json").read_text())["session_id"]
    (place / ROOT / "tmp" / "script.py").write_text("x")

    assert run(place, "export.json", "--resume", program="chat-retro").returncode == 0

    assert json.loads((place / ROOT / "resume-session.json").read_text())["session_id"] == first
    assert [path.name for path in (place / ROOT / "tmp").iterdir()] == [".gitkeep"]
    metrics = [
        json.loads(line)
        for line in (place / ROOT / "logs" / "metrics.jsonl").read_text().splitlines()
    ]
    assert len({metric["session_id"] for metric in metrics}) == 1
    assert first not in json.dumps(metrics)


def test_errors_say_what_to_do_next(place):
    missing = run(place, "retro", "none.zip")
    nothing = run(place, "retro", "patterns")

    assert (missing.returncode, nothing.returncode) == (1, 1)
    assert "name a zip or JSON file" in missing.stderr
    assert "flightlog retro analyze" in nothing.stderr


def test_the_last_analysis_is_drawn_again_as_pictures_and_as_markdown(place):
    (place / "export.json").write_bytes(encode_chats(chats(1, 30)[0]))
    assert run(place, "retro", "export.json", "--no-sessions", "--no-draw").returncode == 0

    pictures = run(place, "retro", "draw").stdout.strip()
    words = run_json(place, "retro", "draw", "--format", "md")["artifact"]

    assert Path(pictures).read_text().startswith("<!doctype html>")
    assert Path(words).read_text().startswith("---\ncreated: ")
    assert run(place, "retro", "draw", "--format", "pdf").returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "missing.zip"),
        ("analyze", "not-json.txt"),
        ("analyze", "--resume"),
        ("patterns",),
        ("show", "x#1"),
    ],
)
def test_refused_command_makes_no_directory(place, words):
    (place / "not-json.txt").write_text("hello")

    ran = run(place, "retro", *words)

    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert not (place / ROOT).exists()


def test_looking_at_issues_makes_no_directory(place):
    for words in (("list",), ("clusters",), ("drafts",), ("preview",)):
        assert run(place, "issue", *words).returncode == 0

    assert not (place / ROOT).exists()
