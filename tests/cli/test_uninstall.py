import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.machines import FLIGHTLOG, contents, home, init, read, settings, uninstall
from flightlog.app.runtime import open_runtime
from flightlog.setup.init import END, apply_uninstall, plan_uninstall
from support.transcripts import user, write


def test_uninstall_restores_every_byte_that_init_changed(machine, project, tmp_path):
    before = contents(project, home(machine))
    assert init(machine, "--yes").returncode == 0
    assert init(machine, "--project", "--yes", "--dataset", cwd=project).returncode == 0
    assert contents(project, home(machine)) != before

    done = uninstall(machine, "--yes", "--json", cwd=tmp_path)

    report = json.loads(done.stdout)
    after = contents(project, home(machine))
    leftovers = {leftover["path"] for leftover in report["leftovers"]}
    assert (done.returncode, report["is_written"], len(report["removals"])) == (0, True, 4)
    new = {path for path in after if path not in before}
    assert {path for path in new if leftovers.isdisjoint(map(str, [path, *path.parents]))} == set()
    assert {path for path in before if after.get(path) != before[path]} == set()
    assert {str(project / ".git-ml"), sys.prefix} <= leftovers
    assert [path for path in leftovers if not Path(path).exists()] == []
    assert all(leftover["command"] for leftover in report["leftovers"])


@pytest.mark.parametrize("words", [["--dry-run"], ["--json"], []])
def test_uninstall_without_consent_removes_nothing(machine, project, words):
    init(machine, "--yes")
    before = contents(project, home(machine))

    done = uninstall(machine, *words, stdin=subprocess.DEVNULL)

    assert done.returncode == (0 if words == ["--dry-run"] else 1)
    assert contents(project, home(machine)) == before


def test_uninstall_goes_on_after_settings_that_cannot_be_read(machine, project, tmp_path):
    init(machine, "--yes")
    (project / ".claude").mkdir()
    (project / ".claude/settings.local.json").write_text("{ not JSON")

    done = uninstall(machine, "--yes", "--json", cwd=tmp_path)

    report = json.loads(done.stdout)
    assert (done.returncode, report["is_written"]) == (0, True), done.stderr
    assert "hooks" not in read(machine)
    assert str(project / ".claude/settings.local.json") in str(report["leftovers"])


def test_uninstall_goes_on_after_a_dead_work_tree_and_a_directory(machine, project, tmp_path):
    init(machine, "--yes")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/.git").write_text(f"gitdir: {tmp_path}/deleted/.git/worktrees/gone\n")
    write(settings(machine).parent, "bbbb", user("hello", cwd=str(tmp_path / "gone")))
    (project / ".claude/settings.local.json").mkdir(parents=True)

    done = uninstall(machine, "--yes", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "hooks" not in read(machine)
    assert str(project / ".claude/settings.local.json") in done.stdout


def test_uninstall_goes_on_after_a_file_that_changed_meanwhile(machine, project):
    init(machine, "--yes")
    init(machine, "--project", "--yes", "--dataset", cwd=project)
    runtime = open_runtime(machine)
    plan = plan_uninstall(runtime)
    settings(machine).write_text('{"model": "sonnet"}')

    failed = apply_uninstall(runtime, plan)

    assert [leftover.path for leftover in failed] == [str(settings(machine))]
    assert (project / "CLAUDE.md").read_text() == "# Shop\n\nUse tabs.\n"


def test_uninstall_keeps_the_text_after_a_section_without_its_end(machine, project, tmp_path):
    init(machine, "--project", "--yes", "--dataset", cwd=project)
    path = project / "CLAUDE.md"
    text = path.read_text().replace(END, "Run make test.")
    path.write_text(text)

    done = uninstall(machine, "--yes", "--json", cwd=tmp_path)

    report = json.loads(done.stdout)
    assert (done.returncode, path.read_text()) == (0, text)
    assert str(path) in {leftover["path"] for leftover in report["leftovers"]}
    assert str(path) not in str(report["removals"])


def test_uninstall_cleans_a_directory_that_a_hook_reported(machine, tmp_path):
    other = tmp_path / "other"
    assert init({**machine, "CLAUDE_CONFIG_DIR": str(other)}, "--yes").returncode == 0
    hook = json.loads((other / "settings.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
    event = {"session_id": "s1", "hook_event_name": "SessionStart", "cwd": str(tmp_path)}
    event["transcript_path"] = str(other / "projects/x/s1.jsonl")
    data = json.dumps(event).encode()
    subprocess.run(["sh", "-c", hook["command"]], env=machine, input=data, check=True)

    done = uninstall(machine, "--yes", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert not (other / "settings.json").exists()


def test_uninstall_finds_what_init_wrote_before_any_session(machine, tmp_path):
    top, other = tmp_path / "new", tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    before = contents(top)
    assert init({**machine, "CLAUDE_CONFIG_DIR": str(other)}, "--yes").returncode == 0
    assert init(machine, "--project", "--yes", cwd=top).returncode == 0

    report = json.loads(uninstall(machine, "--yes", "--json", cwd=tmp_path).stdout)

    assert contents(top) == before
    assert not (other / "settings.json").exists()
    assert all(Path(leftover["path"]).exists() for leftover in report["leftovers"])


def test_uninstall_names_a_project_that_was_moved_and_removes_it_there(machine, tmp_path):
    top, moved = tmp_path / "new", tmp_path / "moved"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    before = contents(top)
    init(machine, "--project", "--yes", cwd=top)
    top.rename(moved)

    first = uninstall(machine, "--yes", cwd=tmp_path)
    second = uninstall(machine, "--yes", cwd=moved)

    expected = f"  a project that is no longer there: {top}\n    flightlog uninstall --yes"
    assert expected in first.stdout
    assert "@@" not in first.stdout + second.stdout  # no diffs: a summary
    assert second.returncode == 0
    after = contents(moved)
    assert [after[moved / path.relative_to(top)] for path in before] == list(before.values())
    assert len(after) == len(before)


def test_uninstall_names_the_command_that_removes_the_datasets_hooks(machine, project, tmp_path):
    program = {**machine, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{machine['PATH']}"}
    words = [*FLIGHTLOG, "dataset", "install-hooks"]
    subprocess.run(words, env=program, cwd=project, capture_output=True, check=True)

    def commands():
        report = json.loads(uninstall(machine, "--yes", "--json", cwd=tmp_path).stdout)
        commands = [leftover["command"] for leftover in report["leftovers"]]
        return [command for command in commands if "install-hooks --remove" in command]

    (command,) = commands()
    subprocess.run(["sh", "-c", command], env=program, capture_output=True, check=True)

    assert commands() == []
    assert not (project / "scripts").exists()


def test_instructions_that_are_a_link_stay_a_link(machine, project, tmp_path):
    text = (project / "CLAUDE.md").rename(project / "AGENTS.md").read_text()
    (project / "CLAUDE.md").symlink_to("AGENTS.md")

    init(machine, "--project", "--yes", "--dataset", cwd=project)
    assert (project / "CLAUDE.md").is_symlink()
    assert END in (project / "AGENTS.md").read_text()
    assert uninstall(machine, "--yes", cwd=tmp_path).returncode == 0

    assert (project / "CLAUDE.md").is_symlink()
    assert (project / "AGENTS.md").read_text() == text


@pytest.mark.parametrize(
    "text", [b"", b"Use tabs.", b"Use tabs.\n", b"Use tabs.\n\n", b"a\r\nb\r\n", b"\xff\n"]
)
def test_instructions_get_their_bytes_and_mode_back(machine, project, tmp_path, text):
    path = project / "CLAUDE.md"
    path.write_bytes(text)
    path.chmod(0o600)

    done = init(machine, "--project", "--yes", "--dataset", cwd=project)
    assert done.returncode == 0, done.stderr
    assert END in path.read_text("utf-8", "replace")
    assert path.read_bytes().startswith(text)
    assert uninstall(machine, "--yes", cwd=tmp_path).returncode == 0

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (text, 0o600)


@pytest.mark.parametrize(("days", "stays"), [("400", True), ("20", False)])
def test_uninstall_names_the_days_that_stay_raised(machine, project, tmp_path, days, stays):
    settings(machine).write_text('{"cleanupPeriodDays": 30, "model": "opus"}')
    init(machine, "--yes", "--keep-days", days, "--no-statusline")
    settings(machine).write_text(settings(machine).read_text().replace("opus", "sonnet"))

    done = uninstall(machine, "--yes", cwd=tmp_path)

    assert f"hook: {settings(machine)}" in done.stdout.splitlines()
    assert (f"cleanupPeriodDays: 400: {settings(machine)}" in done.stdout) is stays


def test_uninstall_where_nothing_was_installed_says_so(machine, tmp_path):
    done = uninstall(machine, "--yes", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "nothing was removed\n")
    assert "what stays, and how to delete it:" in done.stdout
