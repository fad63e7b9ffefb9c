import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.setup.init import END, apply_uninstall, plan_uninstall
from support.real_agent import VERSIONS, agent_program
from support.transcripts import user, write

FLIGHTLOG = [sys.executable, "-m", "flightlog"]


@pytest.fixture
def machine(tmp_path):
    """A person's machine with one client on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(agent_program("2.1.325"))
    (tmp_path / "home").mkdir()
    path = os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": str(tmp_path / "home")}


def init(machine, *arguments, **more):
    return subprocess.run(
        [*FLIGHTLOG, "init", *arguments],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def settings(machine):
    return home(machine) / ".claude" / "settings.json"


def home(machine):
    return Path(machine["HOME"])


def read(machine):
    return json.loads(settings(machine).read_text())


def test_with_yes_the_hook_is_written_and_the_diff_shown(machine):
    done = init(machine, "--yes")

    assert (done.returncode, "+      " in done.stdout, "written" in done.stderr) == (0, True, True)
    assert {"PostToolUseFailure", "UserPromptExpansion"} < set(read(machine)["hooks"])


def test_without_a_terminal_nothing_is_asked_and_nothing_written(machine):
    done = init(machine, stdin=subprocess.DEVNULL)

    assert (done.returncode, "--yes" in done.stderr) == (1, True)
    assert not settings(machine).exists()


def test_a_dry_run_shows_and_writes_nothing(machine):
    done = init(machine, "--dry-run")

    assert (done.returncode, "record.py" in done.stdout) == (0, True)
    assert list(home(machine).iterdir()) == []


def test_json_tells_the_change(machine):
    change = json.loads(init(machine, "--json", "--yes").stdout)

    assert (change["is_written"], change["is_needed"], change["settings_path"]) == (
        True,
        True,
        str(settings(machine)),
    )
    again = json.loads(init(machine, "--json", "--yes").stdout)
    assert (again["is_written"], again["is_needed"], again["backup_path"]) == (False, False, None)


def test_remove_leaves_no_trace(machine):
    init(machine, "--yes", "--keep-days", "3650")
    assert read(machine)["cleanupPeriodDays"] == 3650

    done = init(machine, "--remove", "--yes")

    assert (done.returncode, list(home(machine).iterdir())) == (0, [])


def test_a_project_gets_its_local_settings(machine, tmp_path):
    project = tmp_path / "project"
    project.mkdir()

    init(machine, "--project", "--yes", cwd=project)

    assert [path.name for path in (project / ".claude").iterdir()] == ["settings.local.json"]
    assert [path.name for path in home(machine).iterdir()] == [".local"]


def test_another_config_directory_is_honoured(machine, tmp_path):
    init(machine | {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}, "--yes")

    assert (tmp_path / "config" / "settings.json").exists()


@pytest.mark.parametrize(
    ("versions", "count"), [(("1.0.128",), 9), (("1.0.128", "2.1.325"), 8), ((), 8)]
)
def test_only_events_every_client_here_knows_are_registered(machine, tmp_path, versions, count):
    (tmp_path / "bin" / "claude").unlink()
    for version in versions:
        (tmp_path / version).mkdir()
        (tmp_path / version / "claude").symlink_to(agent_program(version))
    path = os.pathsep.join(
        [*(str(tmp_path / version) for version in versions), str(Path(sys.executable).parent)]
    )

    init(machine | {"PATH": f"{path}:/usr/bin:/bin"}, "--yes")

    assert len(read(machine)["hooks"]) == count


def test_version_of_the_named_client_decides_the_events(machine):
    init(machine | {"FLIGHTLOG_CLAUDE": str(agent_program("2.0.76"))}, "--yes")

    assert len(read(machine)["hooks"]) == 12
    assert len(VERSIONS) == 4


def test_the_setting_for_inline_is_registered(machine):
    init(machine | {"FLIGHTLOG_HOOK_INLINE": "true"}, "--yes")

    (group,) = read(machine)["hooks"]["Stop"]
    assert "--inline" in group["hooks"][0]["command"]
    assert group["hooks"][0]["timeout"] == 10


def test_broken_settings_are_refused_with_their_place(machine):
    settings(machine).parent.mkdir()
    settings(machine).write_text('{\n  "hooks": oops\n}')

    done = init(machine, "--yes")

    assert (done.returncode, "line 2, column 12" in done.stderr) == (4, True)
    assert [path.name for path in settings(machine).parent.iterdir()] == ["settings.json"]


def test_at_a_terminal_the_person_decides(machine):
    for answers, written in ((b"n\nn\n", False), (b"y\ny\n", True)):
        terminal, other = pty.openpty()
        os.write(terminal, answers)
        init(machine, stdin=other)
        os.close(other)
        os.close(terminal)

        assert settings(machine).exists() == written
    assert read(machine)["cleanupPeriodDays"] == 3650


def test_a_project_in_git_gets_the_guard_once_and_keeps_its_own_hooks(machine, tmp_path):
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    own = project / ".git/hooks/pre-commit"
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)

    first = init(machine, "--project", "--yes", cwd=project)
    again = init(machine, "--project", "--yes", cwd=project)
    init(machine, "--project", "--yes", "--remove", cwd=project)

    assert "guard installed: pre-commit" in first.stderr
    assert "guard" not in again.stderr
    assert own.read_text() == "#!/bin/sh\nexit 0\n"
    assert not (project / ".git/hooks/pre-push").exists()


@pytest.mark.parametrize("option", ["--dataset", "--words"])
def test_a_dataset_without_project_is_refused_before_anything_is_written(machine, option):
    done = init(machine, option, "--yes")

    assert (done.returncode, settings(machine).exists()) == (2, False)
    assert "flightlog init --project --dataset" in done.stderr


def test_no_guard_is_installed_unasked(machine, tmp_path):
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)

    for options in (("--project", "--yes", "--no-guard"), ("--project", "--dry-run"), ("--yes",)):
        init(machine, *options, cwd=project)

    assert not (project / ".git/hooks/pre-push").exists()


def uninstall(machine, *arguments, **more):
    words = [*FLIGHTLOG, "uninstall", *arguments]
    return subprocess.run(words, env=machine, capture_output=True, text=True, check=False, **more)


@pytest.fixture
def project(machine, tmp_path):
    """A repository with a hook and instructions of its own, where a session was recorded."""
    top = tmp_path / "shop"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (top / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 0\n")
    (top / "CLAUDE.md").write_text("# Shop\n\nUse tabs.\n")
    settings(machine).parent.mkdir()
    settings(machine).write_text('{\n    "model": "opus"\n}\n')
    write(settings(machine).parent, "aaaa", user("hello", cwd=str(top)))
    return top


def contents(*folders):
    return {
        path: path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


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


WORDS = "track_words = true"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[dataset] # own\nremote = "x"\n', f'[dataset] # own\n{WORDS}\nremote = "x"\n'),
        ("[ dataset ]", f"[ dataset ]\n{WORDS}"),
        ("[dataset]\r\npush = false\r\n", f"[dataset]\r\n{WORDS}\r\npush = false\r\n"),
        ("# [dataset]\n", f"# [dataset]\n\n[dataset]\n{WORDS}\n"),
    ],
)
def test_answer_about_words_goes_into_the_table_that_is_there(machine, project, before, after):
    (project / "flightlog.toml").write_bytes(before.encode())

    done = init(machine, "--project", "--yes", "--dataset", "--words", cwd=project)

    assert done.returncode == 0, done.stderr
    assert (project / "flightlog.toml").read_bytes() == after.encode()


def test_settings_that_have_no_place_for_the_answer_stay(machine, project):
    before = 'dataset.remote = "x"\n'
    (project / "flightlog.toml").write_text(before)

    done = init(machine, "--project", "--yes", "--dataset", "--words", cwd=project)

    assert (done.returncode, (project / "flightlog.toml").read_text()) == (4, before)
    assert f"add by hand: dataset.{WORDS}" in done.stderr


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
