"""The recordings that ship with the package, in place of a person's own."""

import os
from pathlib import Path

from flightlog.agents import SAMPLES
from flightlog.model.runtime import Runtime
from flightlog.sources.claude_code.discover import find_config_dirs


def choose_samples() -> None:
    """Read the recordings that ship with the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def reads_samples(runtime: Runtime) -> bool:
    """Return whether the recordings are those that ship with the package."""
    return [Path(each) for each in find_config_dirs(runtime)] == [SAMPLES]
