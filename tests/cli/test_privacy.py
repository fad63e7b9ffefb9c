import json
import os
import subprocess
import sys

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.service import make_redactor
from privacy import labelled

ONE = next(iter(labelled.tool_style()))


@pytest.fixture
def run(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    environment = {**clean, "FLIGHTLOG_HOME": str(tmp_path / "home")}

    def run(*words, given="", stdin=None, cwd=tmp_path):
        source = {"input": given} if stdin is None else {"stdin": stdin}
        return subprocess.run([sys.executable, "-m", "flightlog", *words], capture_output=True, text=True,
                              check=False, env=environment, cwd=cwd, **source)  # fmt: skip

    return run


def test_scan_reports_rule_place_and_confidence_and_never_the_value(run, tmp_path):
    (tmp_path / "x.txt").write_text(f"hello\n{ONE.text}\n")

    done = run("privacy", "scan", "x.txt", "--json")

    (finding, *_) = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert {"rule", "kind", "confidence", "start", "masked_value", "line"} <= finding.keys()
    assert ONE.secret not in done.stdout + done.stderr


def test_scan_of_clean_text_finds_nothing(run):
    done = run("privacy", "scan", "-", given="all is well\n")

    assert (done.returncode, done.stdout) == (0, "")


def test_redact_is_a_filter(run):
    once = run("privacy", "redact", given=f"a {ONE.text} b\n")
    twice = run("privacy", "redact", given=once.stdout)

    assert once.returncode == 0
    assert ONE.secret not in once.stdout
    assert once.stdout == twice.stdout


def test_redact_keeps_lines_of_json(run):
    lines = [
        json.dumps({"text": ONE.text}),
        "not json " + ONE.text.replace("\n", " "),
        "",
        json.dumps({"n": 1}),
    ]

    done = run("privacy", "redact", "--jsonl", given="\n".join(lines))

    clean = done.stdout.split("\n")
    assert len(clean) == len(lines)
    assert ONE.secret not in done.stdout
    assert clean[2:] == lines[2:]
    assert json.loads(clean[0])


BARE = "sent 9fQ2xL7vKp3W" + "zR8tYb6N"
NAMED = "export ACME_TOKEN=" + BARE.split()[1]


@pytest.mark.parametrize("jsonl", [False, True])
def test_redact_reads_a_file_twice_and_a_pipe_once(run, tmp_path, jsonl):
    texts = [BARE, "x" * 2_000_000, NAMED, BARE]
    lines = "".join((json.dumps({"a": text}) if jsonl else text) + "\n" for text in texts)
    (tmp_path / "x.txt").write_text(lines)
    words = ["privacy", "redact", *(["--jsonl"] if jsonl else [])]

    named, piped = run(*words, "x.txt").stdout, run(*words, given=lines).stdout
    with (tmp_path / "x.txt").open() as source:
        redirected = run(*words, stdin=source).stdout

    assert BARE.split()[1] not in named
    assert redirected == named
    assert piped.count(BARE.split()[1]) == 1
    assert piped.splitlines()[1:] == named.splitlines()[1:]


def test_redact_separate_takes_each_line_as_a_document(run, tmp_path):
    lines = [json.dumps({"a": text}) for text in (NAMED, BARE)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))

    done = run("privacy", "redact", "--jsonl", "--separate", "x.jsonl")
    refused = run("privacy", "redact", "--separate", "x.jsonl")

    assert done.stdout.split("\n")[1] == lines[1]
    assert BARE.split()[1] not in done.stdout.split("\n")[0]
    assert refused.returncode == 2
    assert "--jsonl" in refused.stderr


def test_scan_reports_every_occurrence_that_redact_removes(run, tmp_path):
    (tmp_path / "x.txt").write_text(f"{BARE}\n{NAMED}\n{BARE}\n")

    lines = run("privacy", "scan", "x.txt", "--json").stdout.splitlines()
    clean = run("privacy", "redact", "x.txt").stdout

    assert [json.loads(line)["line"] for line in lines] == [1, 2, 3]
    assert clean.count("<secret:") == 3


def test_redactor_knows_the_project_it_is_given_and_its_git_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "home"))
    project = tmp_path / "shop"
    (project / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "config", "user.name", "Mirabelle Plum"], check=True)
    (project / ".env").write_text(
        "DB_PASSWORD=tree-in-the-yard\nPORT=8080-8090\nMODE=blue-green-mode\nPIN=12345\n"
    )

    clean = make_redactor(open_runtime(), project / "src").redact_string(
        "tree-in-the-yard 8080-8090 blue-green-mode 12345 by Mirabelle Plum"
    )

    assert "tree" not in clean
    assert "Mirabelle" not in clean
    assert "8080-8090 blue-green-mode 12345 by <person:name:" in clean
    assert "tree" in make_redactor(open_runtime(), tmp_path).redact_string("tree-in-the-yard")


def test_preview_shows_what_would_be_public_and_not_what_is_taken_out(run, tmp_path):
    (tmp_path / "x.txt").write_text(f"kept\n{ONE.text}\n")

    done = run("privacy", "preview", "x.txt")

    assert "+" in done.stdout
    assert "<secret:" in done.stdout
    assert ONE.secret not in done.stdout


def test_check_names_the_rule_and_fails_for_a_private_file(run, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".chat-retro-runtime").mkdir()
    (tmp_path / ".chat-retro-runtime/resume-session.json").write_text("{}")

    done = run("privacy", "check", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[0])["rule"].startswith("retro: resume")


def test_rules_can_be_listed(run):
    assert len(run("privacy", "rules", "--json").stdout.splitlines()) > 400
    wrong = run("privacy", "rules", "--family", "nope")
    assert wrong.returncode == 1
    assert "clouds" in wrong.stderr


def test_the_key_moves_and_tags_with_it(run, tmp_path):
    exported = run("privacy", "key", "export").stdout
    before = run("privacy", "redact", given=ONE.text).stdout

    (tmp_path / "home/privacy.key").unlink()
    assert run("privacy", "redact", given=ONE.text).stdout != before
    assert run("privacy", "key", "import", given=exported).returncode == 75
    taken = run("privacy", "key", "import", "--yes", "--json", given=exported)
    assert json.loads(taken.stdout) == json.loads(run("privacy", "key", "show", "--json").stdout)
    assert run("privacy", "redact", given=ONE.text).stdout == before


def test_a_missing_file_is_reported_with_the_next_step(run):
    done = run("privacy", "scan", "nowhere")

    assert done.returncode == 1
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [(), ("scan",), ("redact",), ("preview",), ("check",), ("rules",), ("key",), ("key", "import")],
)
def test_help_has_an_example(run, words):
    done = run("privacy", *words, "--help")

    assert done.returncode == 0
    assert "Example:" in done.stdout


def test_trust_shows_what_it_allows_and_can_be_taken_back(run, tmp_path):
    (tmp_path / "flightlog.toml").write_text('[dataset]\ntrack_words = true\npush = "origin"\n')

    asked = run("trust", "--json")
    assert asked.returncode == 1
    assert json.loads(asked.stdout)["effects"] == {
        "dataset.track_words": True,
        "dataset.push": "origin",
    }

    assert run("trust", "--yes").returncode == 0
    assert run("trust").returncode == 0
    (tmp_path / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    assert run("trust").returncode == 1
    assert run("trust", "--revoke").returncode == 1
    assert run("trust", "--yes", "--revoke").returncode == 2


def test_the_redactor_of_the_command_line_is_the_one_of_the_library(run):
    key = bytes.fromhex(run("privacy", "key", "export").stdout.split(":")[1])

    assert run("privacy", "redact", given=ONE.text).stdout == Redactor(key).redact_string(ONE.text)
