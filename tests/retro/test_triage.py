"""What triage removes before an issue can be public, and what it keeps."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from flightlog.model.errors import Invalid
from flightlog.privacy.redactor import Redactor
from flightlog.retro.analysis import analyze
from flightlog.retro.issues import workflow
from flightlog.retro.issues.board import Issue
from flightlog.retro.issues.triage import (
    is_intranet,
    is_reserved,
    triage_issue,
    without_private_text,
)
from flightlog.retro.store import ROOT
from retro.rooms import make_room, report, report_issue
from support.cli_runs import FLIGHTLOG, environment
from support.sources_exports import claude_conversation

SAID = "my divorce lawyer is Ottilie Quenneville"
PRIVATE = [
    f'The user said: "{SAID}"',
    f"The user said: {SAID}",
    f"The customer asked me \u201c{SAID}\u201d again",
    f"When asked, she wrote 'the lawyer of {SAID}'",
    f"user: {SAID}\n{SAID}",
    f"[12:01] **Human**: {SAID}",
    f"> {SAID}\n{SAID}",
    f'{{"role": "user", "content": "{SAID}"}}',
    f"```\nassistant: hello\nuser: x\n  {SAID}\n```",
    f"~~~json\n{{'type': 'user', 'text': '{SAID}'}}\n{SAID}",
    f'It failed on "{SAID}"',
]


@pytest.mark.parametrize("text", PRIVATE)
def test_quoted_conversation_is_removed(text):
    public = without_private_text(text)

    assert "lawyer" not in public
    assert without_private_text(public) == public


@pytest.mark.parametrize(
    "text",
    [
        "It shows “total is wrong” and 'x.py' in src/a/b.py",
        'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: no such key "total"',
        "```\nZeroDivisionError: division by zero\n```",
        "https://github.com/o/r/issues/1 and http://localhost:3000/page and a@example.com, b@x.example.org, c@x.test",
        "pkg.internal.parser in app.py fails with version 1.2.3",
    ],
)
def test_error_texts_files_and_public_addresses_stay(text):
    assert without_private_text(text) == text


@pytest.mark.parametrize(
    "address",
    [
        "https://intranet.acme-corp.com/wiki/secret?token=abc", "http://jira/browse/X-1", "https://wiki.acme/secret",
        "http://10.1.2.3:8080/secret", "gitlab.acme.internal/secret", "db01.corp.acme.com", "printer.local",
        "192.168.1.20", "\\\\files\\share\\secret.doc", "file:///srv/secret", "fd00:1:2::3",
    ],
)  # fmt: skip
def test_intranet_addresses_are_removed(address):
    assert without_private_text(f"see {address} now") == "see <intranet address> now"


def test_a_public_url_loses_its_query_and_user():
    url = "https://jane:" + "pw@github.com/o/r?token=abc#access=1"

    assert without_private_text(f"at {url} it fails") == "at https://github.com/o/r it fails"


@pytest.mark.parametrize(
    "domain", ["myexample.com", "counterexample.org", "example.com.evil.io", "contest", "gmail.com"]
)
def test_a_domain_is_compared_by_labels(domain):
    assert not is_reserved(domain)
    assert without_private_text(f"mail jane@x.{domain}") == "mail <email>"


def test_hosts_inside_and_outside_a_network():
    assert [is_intranet(host) for host in ("jira", "a.lan", "10.0.0.1", "build.vpn.acme.com")] == [
        True
    ] * 4
    assert [
        is_intranet(host) for host in ("localhost", "127.0.0.1", "github.com", "x.example")
    ] == [False] * 4


def test_names_known_from_git_and_an_export_are_removed(tmp_path):
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as box:
        box.writestr("conversations.json", json.dumps([claude_conversation()]))
        box.writestr(
            "users.json", '[{"full_name": "Ottilie Quenneville", "email_address": "oq@acme.io"}]'
        )
    room = make_room(tmp_path)
    analyze.read_export(room, archive)

    name = report_issue(
        room, "Ottilie cannot log in", "QUENNEVILLE sees an empty page", category="Ottilie's bug"
    )

    issue = room.load_board().issues[name]
    assert (issue.title, issue.description) == ("<name> cannot log in", "<name> sees an empty page")
    assert "Ottilie" not in issue.category


def test_the_git_identity_is_removed_by_the_command(tmp_path):
    (tmp_path / "config").mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(
        ["git", "-C", tmp_path, "config", "user.name", "Ottilie Quenneville"], check=True
    )
    words = [
        "issue",
        "report-bug",
        "--title",
        "Crash for Quenneville",
        "--description",
        "Ottilie saw ValueError: x",
    ]
    for argv in (words, ["issue", "process", "--yes"]):
        subprocess.run([FLIGHTLOG, *argv], cwd=tmp_path, env=environment(tmp_path / "config"), check=True, timeout=60,
                       stdin=subprocess.DEVNULL, capture_output=True)  # fmt: skip

    (public,) = (tmp_path / ROOT / "issues").glob("issue_*.json")

    assert "Crash for <name>" in public.read_text()
    assert "Ottilie" not in public.read_text()


def test_an_affected_file_is_a_whole_path():
    issue = Issue(
        "a" * 12, "Fails", "in /home/x/secret-client/app.py and ./src/b-c/d.test.ts", 1, 1
    )

    triaged = triage_issue(issue, Redactor(b"k" * 32), 1)

    assert triaged.affected_files == ("~/secret-client/app.py", "src/b-c/d.test.ts")


def test_notes_of_a_resolution_are_public_text_too(tmp_path):
    room = make_room(tmp_path)
    name = report_issue(room, "Something")

    workflow.resolve_issue(room, name, f'The user said: "{SAID}", see http://jira/X')

    assert "lawyer" not in (room.root / "issues" / "CHANGELOG.md").read_text()
    assert "jira" not in (room.root / "issues" / "CHANGELOG.md").read_text()


def test_an_issue_whose_names_became_known_later_is_refused(tmp_path):
    room = make_room(tmp_path)
    name = report(room, "Ottilie cannot log in")
    workflow.process_drafts(room)
    room._own_names = frozenset({"Ottilie"})

    with pytest.raises(Invalid):
        workflow.publish_issues(room, name)

    assert not list(Path(room.root / "issues").glob("issue_*"))


def test_a_published_issue_says_how_much_was_removed(tmp_path):
    room = make_room(tmp_path)
    token = "gh" + "p_" + "A7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    name = report_issue(
        room, f"Login fails with {token}", f"mail jane@acme.io, see http://jira/X; {token} again"
    )
    workflow.approve_clusters(room)

    (path,) = workflow.publish_issues(room)

    public = json.loads((room.root / path).read_text())
    assert public["removed"] == {"secrets": 2, "personal": 2}
    assert token not in str(public)
    assert room.load_board().issues[name].is_published
