import json
import re
import shutil
import subprocess
import time
from datetime import UTC
from pathlib import Path

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.model.usage import Breakdown
from flightlog.setup.demo import DEMO_SCENARIO, perform_demo
from support.cli_runs import flightlog, within


def test_the_demo_takes_seconds_and_leaves_nothing_behind(tmp_path):
    began = time.monotonic()

    ran = flightlog(
        tmp_path, "demo", "--json", TMPDIR=str(tmp_path), http_proxy="http://127.0.0.1:9"
    )

    assert ran.code == 0, ran.err
    assert time.monotonic() - began < 20
    report = json.loads(ran.out)
    assert report["usage"]["total"]["output_tokens"] > 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("flightlog-demo")] == []


def test_demo_shows_what_its_commands_printed():
    out = within(None, "demo").out

    assert "ERROR: test_a_contract_of_january_31_renews_in_february" in out
    assert "AssertionError: Lists differ: [datetime.date(2026, 3, 2)]" in out
    assert "AssertionError: datetime.date(2026, 3, 28) != datetime.date(2026, 3, 31)" in out
    assert re.search(r"← \.\.\.\.\n\s+-+\n\s+Ran 4 tests in .*\n\s*\n\s+OK\n", out)
    assert "2 files changed, 9 insertions(+), 1 deletion(-)" in out


def test_the_demo_begins_with_what_went_wrong():
    out = within(None, "demo").out

    finding = out.index("2 edits thrown away by git checkout renewals.py")
    assert finding < out.index("> The renewal job crashes")


def test_the_demo_names_no_command_for_its_deleted_session():
    out = within(None, "demo").out

    assert re.search("… [0-9]+ more lines$", out, re.MULTILINE)
    assert "session show" not in out


def test_the_demo_leaves_a_repository_named_by_git_dir_alone(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=D", "-c", "user.email=d@example.invalid"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Mine"], check=True)
    (tmp_path / "renewals.py").write_text("mine\n")

    ran = within(None, "demo", GIT_DIR=str(tmp_path / ".git"), GIT_WORK_TREE=str(tmp_path))

    log = subprocess.run([*git, "log", "--format=%s"], check=True, capture_output=True, text=True)
    assert ran.code == 0, ran.err
    assert "2 files changed" in ran.out
    assert log.stdout == "Mine\n"
    assert (tmp_path / "renewals.py").read_text() == "mine\n"


def test_another_scenario_gives_another_story(tmp_path):
    other = tmp_path / "demo.yaml"
    other.write_text(
        DEMO_SCENARIO.read_text().replace("git log --oneline", "echo $((6 * 7)) answers")
    )

    with perform_demo(open_runtime(), other) as shown:
        session = shown.archive.read_session(shown.session)
        counted = shown.archive.usage_report(Breakdown.DAY, UTC).total

    outputs = [call.output for step in session.steps for call in step.tool_calls]
    assert any("42 answers" in output for output in outputs)
    assert not any("Compute monthly renewals" in output for output in outputs)
    assert counted.responses == len(session.steps)
    assert shown.is_same_from_archive
    assert f"{shown.session}#1.4" in shown.search_hits
    assert shown.archived_bytes > 10_000


def test_the_demo_is_honest_about_a_machine_without_python(tmp_path):
    """The tools are real: without `python3` on the path the agent's own test cannot pass."""
    for name in ("bash", "grep", "git"):
        (tmp_path / name).symlink_to(Path(shutil.which(name)))

    out = within(None, "demo", PATH=str(tmp_path)).out

    assert "Ran 4 tests" not in out
    assert "python3: command not found" in out


@pytest.mark.parametrize("scenario", ["rules: [", "nonsense"])
def test_a_broken_scenario_is_an_error_a_person_can_read(tmp_path, scenario):
    from flightlog.model.errors import FlightlogError

    path = tmp_path / "broken.yaml"
    path.write_text(scenario)

    with pytest.raises(FlightlogError), perform_demo(open_runtime(), path):
        pass
