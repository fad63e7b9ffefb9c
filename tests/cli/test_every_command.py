"""The house rule of the command line: every command shows an example and speaks JSON, and the JSON is JSON."""

import json
import re
import subprocess

import click
import pytest

from flightlog.cli.main import cli
from retro.planted import chats, encode_chats
from support.cli_runs import within
from support.recordings import config_dir

# What has no --json, and why.
WITHOUT_JSON = {
    "privacy redact": "a filter: what comes out has the form of what went in, and --jsonl is its JSON",
    "mcp": "a server: it answers each line of JSON with one",
    "dataset tracked merge": "git calls it: it prints nothing and writes the file git names",
}
# Commands whose example leaves a word out.
SHORT_FORMS = {"retro analyze": "retro"}


def leaves(group, *path):
    """Every command that does something, with the words that call it; hidden ones too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)


EVERY = dict(leaves(cli))


def test_walk_over_commands_finds_all_of_them():
    assert len(EVERY) > 90
    assert {
        "up",
        "session show",
        "demo",
        "demo rewind",
        "retro feedback rate",
        "dataset tracked merge",
    } <= set(EVERY)
    assert set(WITHOUT_JSON) <= set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_every_command_has_json_or_a_reason(name):
    flags = {flag for option in EVERY[name].params for flag in option.opts}

    assert ("--json" in flags) != (name in WITHOUT_JSON)


@pytest.mark.parametrize("name", EVERY)
def test_every_option_says_what_it_does_in_a_sentence(name):
    for option in EVERY[name].params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts[0]} says nothing"
            assert re.match(r"[A-Z]|--", option.help), f"{name}: {option.help}"
            assert option.help.endswith((".", "…")), f"{name}: {option.help}"


@pytest.mark.parametrize("name", EVERY)
def test_every_command_says_what_it_does_and_gives_an_example_of_itself(name):
    command = EVERY[name]

    assert re.match(r"[A-Z][^\n]+[.;:,\w`]", command.help or ""), name
    shown = command.epilog or ""
    assert shown.startswith(("Example: ", "\b\nExamples:\n  "))
    assert f"flightlog {SHORT_FORMS.get(name, name)}" in shown
    assert "    " not in shown
    assert "·" not in shown
    assert all(len(line) < 100 for line in shown.splitlines())


@pytest.fixture
def run_command(tmp_path, monkeypatch):
    """Run a command in a repository with one recording and one export; return what it prints, as a value."""
    config = config_dir(tmp_path / "config", "2.1.325/multi-turn-tools")
    place = tmp_path / "place"
    place.mkdir()
    subprocess.run(["git", "init", "-q", place], check=True)
    (place / "export.json").write_bytes(encode_chats(chats(1, 30)[0]))
    monkeypatch.chdir(place)

    def run(*words, code=0):
        ran = within(config, *words, "--json")
        assert ran.code == code, ran.err
        return json.loads(ran.out)

    return run


def test_issue_workflow_prints_json_at_every_step(run_command):
    draft = run_command("issue", "report-bug", "--title", "Broken", "--description", "It fails")
    run_command("issue", "process")
    (cluster,) = run_command("issue", "clusters")
    issue = cluster["issue_ids"][0]

    assert draft["draft"]["title"] == "Broken"
    assert draft["path"].endswith(".json")
    assert run_command("issue", "approve", cluster["id"]) == {"approved_clusters": [cluster["id"]]}
    assert run_command("issue", "publish", "--dry-run")["is_written"] is False
    assert [issue["path"] for issue in run_command("issue", "preview")] == run_command(
        "issue", "publish", "--dry-run"
    )["files"]
    (path,) = run_command("issue", "publish")["files"]
    assert issue in path
    for verb, status in (
        ("start", "in_progress"),
        ("defer", "deferred"),
        ("reopen", "triaged"),
        ("wontfix", "wont_fix"),
    ):
        assert run_command("issue", verb, issue)["status"] == status
    run_command("issue", "reopen", issue)
    run_command("issue", "process")
    run_command("issue", "start", issue)
    assert run_command("issue", "resolve", issue, "--notes", "done")["status"] == "resolved"


def test_feedback_and_preferences_are_kept_in_json(run_command):
    patterns = run_command("retro", "export.json", "--no-draw")["patterns"]

    for words in (
        ("rate", patterns[0]["id"], "4"),
        ("answer", "overall_value", "much", "--rating", "4"),
        ("gap", "It misses something"),
    ):
        assert run_command("retro", "feedback", *words)["path"].endswith(".json")
    assert run_command("retro", "prefs", "set", "focus_areas", "a, b") == {
        "name": "focus_areas",
        "values": ["a", "b"],
    }
    assert run_command("retro", "prefs", "show")["focus_areas"] == ["a", "b"]


def test_feedback_saved_by_an_artifact_is_imported_as_json(run_command, tmp_path):
    (tmp_path / "feedback.json").write_text(json.dumps({"ratings": {"activity": 4}}))

    assert run_command("retro", "feedback", "import", str(tmp_path / "feedback.json"))[
        "path"
    ].endswith(".json")


def test_a_key_is_shown_and_exported_in_json(run_command):
    exported = run_command("privacy", "key", "export")

    assert run_command("privacy", "key", "show")["fingerprint"] == exported["fingerprint"]
    assert exported["key"] not in json.dumps(run_command("privacy", "key", "show"))


def test_a_shared_page_is_described_as_json(run_command, tmp_path):
    written_to = run_command("share", "2123f2df", "--output", str(tmp_path / "page.html"))
    printed = run_command("share", "2123f2df")

    assert written_to["output"] == str(tmp_path / "page.html")
    assert printed["html"] == (tmp_path / "page.html").read_text()
    assert printed["session"].startswith("2123f2df")
    assert (
        printed["removed_count"]
        == written_to["removed_count"]
        == printed["secrets"] + printed["personal"]
    )


def test_the_example_and_the_schema_of_a_plan_in_json(run_command, tmp_path):
    made = run_command("loop", "example", str(tmp_path / "here"))

    assert {path.rpartition("/")[2] for path in made} == {
        path.name for path in (tmp_path / "here").iterdir()
    }
    assert run_command("loop", "schema")["$defs"]


def test_simulated_sessions_are_one_value_however_many_there_are(run_command):
    assert [
        len(run_command("loop", "simulate", "--count", str(count))["simulations"])
        for count in (1, 3)
    ] == [
        1,
        0,
    ]


def test_an_export_is_described_as_json(run_command, tmp_path):
    page = run_command("session", "export", "2123f2df", "--output", str(tmp_path / "one.md"))
    trajectory = run_command(
        "session", "export", "2123f2df", "--atif", "--output", str(tmp_path / "atif")
    )

    assert (page["format"], (tmp_path / "one.md").stat().st_size > 0) == ("md", True)
    assert trajectory["files"] == len(
        [path for path in (tmp_path / "atif").rglob("*") if path.is_file()]
    )


def test_a_session_is_not_printed_beside_what_was_written(tmp_path):
    ran = within(
        config_dir(tmp_path, "2.1.325/multi-turn-tools"), "session", "export", "2123f2df", "--json"
    )

    assert (ran.code, ran.out) == (2, "")
    assert "--format json" in ran.err
