import json
import os
import subprocess
import sys

import pytest

from flightlog.privacy.redact import Redactor
from privacy import labelled

ONE = next(iter(labelled.tool_style()))


@pytest.fixture
def run(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    environment = {**clean, "FLIGHTLOG_HOME": str(tmp_path / "home")}

    def run(*words, given="", cwd=tmp_path):
        return subprocess.run([sys.executable, "-m", "flightlog", *words], input=given, capture_output=True, text=True,
                              check=False, env=environment, cwd=cwd)  # fmt: skip

    return run


def test_scan_reports_rule_place_and_confidence_and_never_the_value(run, tmp_path):
    (tmp_path / "x.txt").write_text(f"hello\n{ONE.text}\n")

    done = run("privacy", "scan", "x.txt", "--json")

    (finding, *_) = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert {"rule", "kind", "confidence", "offset", "masked", "line"} <= finding.keys()
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
    lines = [json.dumps({"text": ONE.text}), "not json " + ONE.text.replace("\n", " "), "", json.dumps({"n": 1})]

    done = run("privacy", "redact", "--jsonl", given="\n".join(lines))

    clean = done.stdout.split("\n")
    assert len(clean) == len(lines)
    assert ONE.secret not in done.stdout
    assert clean[2:] == lines[2:]
    assert json.loads(clean[0])


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


def test_a_missing_file_is_told_with_the_next_step(run):
    done = run("privacy", "scan", "nowhere")

    assert done.returncode == 1
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [(), ("scan",), ("redact",), ("preview",), ("check",), ("rules",), ("key",), ("key", "import")]
)
def test_help_has_an_example(run, words):
    done = run("privacy", *words, "--help")

    assert done.returncode == 0
    assert "Example:" in done.stdout


def test_trust_shows_what_it_allows_and_can_be_taken_back(run, tmp_path):
    (tmp_path / "flightlog.toml").write_text('[dataset]\ntrack_words = true\npush = "origin"\n')

    asked = run("trust", "--json")
    assert asked.returncode == 1
    assert json.loads(asked.stdout)["allows"] == {"dataset.track_words": True, "dataset.push": "origin"}

    assert run("trust", "--yes").returncode == 0
    assert run("trust").returncode == 0
    (tmp_path / "flightlog.toml").write_text("[dataset]\ntrack_words = true\n")
    assert run("trust").returncode == 1
    assert run("trust", "--revoke").returncode == 1
    assert run("trust", "--yes", "--revoke").returncode == 2


def test_the_redactor_of_the_command_line_is_the_one_of_the_library(run):
    key = bytes.fromhex(run("privacy", "key", "export").stdout.split(":")[1])

    assert run("privacy", "redact", given=ONE.text).stdout == Redactor(key).text(ONE.text)
