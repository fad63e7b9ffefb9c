import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli.machines import home, init, read, settings
from support.real_agent import VERSIONS, agent_program


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
