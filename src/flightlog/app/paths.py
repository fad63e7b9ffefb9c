"""Where things are on this machine, as paths; `app.places` finds them."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from flightlog.app import places
from flightlog.store import files

SAMPLES = Path(__file__).parents[1] / "agents/scripted/recordings"


def choose_samples() -> None:
    """Read the recordings that ship with the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def home(environ: Mapping[str, str]) -> Path:
    """Return flightlog's own data directory."""
    return Path(places.home(environ))


def config_dir(environ: Mapping[str, str]) -> Path:
    """Return where a person's own settings of flightlog are."""
    return Path(places.config_dir(environ))


def claude_config_dirs(environ: Mapping[str, str]) -> list[Path]:
    """Return where Claude Code keeps its files: `CLAUDE_CONFIG_DIR` (a comma separates several), else home."""
    return [Path(each) for each in places.claude_config_dirs(environ)]


def hook_command() -> str:
    """Return how git is to call us: the program beside this Python, else whatever is on the path."""
    beside = Path(sys.executable).with_name("flightlog")
    return shlex.quote(str(beside)) if beside.exists() else "flightlog"


def project_settings(project: Path) -> Path:
    """The agent's settings of a project that are this machine's own."""
    return project / ".claude" / "settings.local.json"


def project_of(folder: Path) -> Path:
    """Return the top of the repository that holds `folder`, else `folder` itself."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def contained(path: Path) -> Path:
    """Return `path`, or refuse it if a symbolic link leads it out of the current project."""
    return files.contained(project_of(Path.cwd()), path)
