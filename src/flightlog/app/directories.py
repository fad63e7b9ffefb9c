"""Data, config and agent directories."""

import os
from collections.abc import Mapping
from pathlib import Path

from flightlog.agents import SAMPLES
from flightlog.agents.claude_code.files import absolute_path, find_config_dirs, normalize_path
from flightlog.hooks.writer import find_data_dir, find_own_dir
from flightlog.model.runtime import Runtime


def choose_samples() -> None:
    """Read the sample recordings of the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def reads_samples(runtime: Runtime) -> bool:
    """Return whether the recordings are the package's samples."""
    return [Path(path) for path in find_config_dirs(runtime)] == [SAMPLES]


def data_dir(environ: Mapping[str, str]) -> str:
    """Return flightlog's data directory, as the hook finds it; refuse a bad `FLIGHTLOG_HOME`."""
    configured = environ.get("FLIGHTLOG_HOME", "")
    return absolute_path("FLIGHTLOG_HOME", configured) if configured else normalize_path(find_data_dir(dict(environ)))


def config_dir(environ: Mapping[str, str]) -> str:
    """Return the directory of the user's flightlog settings."""
    return normalize_path(find_own_dir(environ.get("XDG_CONFIG_HOME", ""), "~/.config"))
