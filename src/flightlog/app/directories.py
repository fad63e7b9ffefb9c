"""Data, config and agent directories."""

import os
from collections.abc import Mapping
from pathlib import Path

from flightlog.agents import SAMPLES
from flightlog.agents.claude_code.files import absolute_path, find_config_dirs, normalize_path
from flightlog.hooks.writer import find_data_dir, find_own_dir
from flightlog.model.runtime import Runtime


def choose_samples() -> None:
    """Read the recordings that ship with the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def reads_samples(runtime: Runtime) -> bool:
    """Return whether the recordings are those that ship with the package."""
    return [Path(each) for each in find_config_dirs(runtime)] == [SAMPLES]


def data_dir(environ: Mapping[str, str]) -> str:
    """Return flightlog's own data directory, as the hook finds it; a wrong `FLIGHTLOG_HOME` is an error here."""
    given = environ.get("FLIGHTLOG_HOME", "")
    return absolute_path("FLIGHTLOG_HOME", given) if given else normalize_path(find_data_dir(dict(environ)))


def config_dir(environ: Mapping[str, str]) -> str:
    """Return where a person's own settings of flightlog are."""
    return normalize_path(find_own_dir(environ.get("XDG_CONFIG_HOME", ""), "~/.config"))
