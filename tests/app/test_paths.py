"""Places as paths."""

from pathlib import Path

from flightlog.app import paths


def test_paths_are_the_places(tmp_path):
    (tmp_path / ".config/claude/projects").mkdir(parents=True)
    environ = {"FLIGHTLOG_HOME": f"{tmp_path}/x//y/", "CLAUDE_CONFIG_DIR": f"{tmp_path}/a, {tmp_path}/b/"}

    assert paths.home(environ) == tmp_path / "x/y"
    assert paths.claude_config_dirs(environ) == [tmp_path / "a", tmp_path / "b"]
    assert isinstance(paths.config_dir(environ), Path)
