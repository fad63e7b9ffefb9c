"""Building the Runtime of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.agents.claude_code.files import find_config_dirs
from flightlog.app.runtime import open_runtime
from flightlog.model.errors import Misconfigured


def test_runtime_is_built_from_the_given_environment(tmp_path):
    runtime = open_runtime({"HOME": str(tmp_path), "FLIGHTLOG_HOME": f"{tmp_path}/x//y/"})

    assert runtime.home == str(tmp_path)
    assert runtime.data_dir == f"{tmp_path}/x/y"
    assert runtime.cwd == str(Path.cwd())
    assert runtime.jobs.is_local
    assert runtime.new_id() != runtime.new_id()


def test_agent_directories_are_those_named_else_the_usual_ones(tmp_path):
    home = {"HOME": str(tmp_path), "FLIGHTLOG_HOME": str(tmp_path)}
    named = {**home, "CLAUDE_CONFIG_DIR": f"{tmp_path}/a, {tmp_path}/b//"}

    assert find_config_dirs(open_runtime(named)) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert find_config_dirs(open_runtime(home)) == [f"{tmp_path}/.claude"]
    (tmp_path / ".config/claude/projects").mkdir(parents=True)
    assert find_config_dirs(open_runtime(home)) == [f"{tmp_path}/.config/claude"]
    with pytest.raises(Misconfigured, match="CLAUDE_CONFIG_DIR is not an absolute path"):
        find_config_dirs(open_runtime({**home, "CLAUDE_CONFIG_DIR": "here"}))


def test_broken_settings_are_an_error_only_where_settings_are_read(tmp_path, monkeypatch):
    (tmp_path / "flightlog.toml").write_text("not toml")
    monkeypatch.chdir(tmp_path)

    runtime = open_runtime()

    with pytest.raises(Misconfigured, match="cannot read"):
        _ = runtime.config


def test_a_deleted_working_directory_does_not_stop_a_command(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        f"import os; os.rmdir({str(gone)!r})\n"
        "from flightlog.app.runtime import open_runtime\n"
        "print(open_runtime().cwd)"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PWD": str(gone)}

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=gone,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(gone)
