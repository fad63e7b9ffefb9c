"""Where things are on this machine: the one place that reads the environment for directories."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flightlog.model.errors import Misconfigured

SAMPLES = Path(__file__).parents[1] / "agents/scripted/recordings"


def choose_samples() -> None:
    """Read the recordings that ship with the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def home(environ: Mapping[str, str]) -> Path:
    """Return flightlog's own data directory."""
    said = environ.get("FLIGHTLOG_HOME", "")
    if said:
        return _absolute("FLIGHTLOG_HOME", said)
    return _linux_dir(environ, "XDG_DATA_HOME", ".local/share") or Path(_dirs().user_data_dir("flightlog"))


def config_dir(environ: Mapping[str, str]) -> Path:
    """Return where a person's own settings of flightlog are."""
    found = _linux_dir(environ, "XDG_CONFIG_HOME", ".config")
    return found or Path(_dirs().user_config_dir("flightlog", appauthor=False))


def _linux_dir(environ: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return our directory on Linux as platformdirs says it, without its 15 ms of imports."""
    said = environ.get(variable, "").strip()
    if sys.platform != "linux" or (said and not Path(said).is_absolute()):
        return None
    return (Path(said) if said else _expanded("FLIGHTLOG_HOME", "~") / usual) / "flightlog"


def _dirs() -> Any:
    import platformdirs  # noqa: PLC0415 - see above

    return platformdirs


def claude_config_dirs(environ: Mapping[str, str]) -> list[Path]:
    """Return where Claude Code keeps its files: `CLAUDE_CONFIG_DIR` (a comma separates several), else home."""
    said = [part for part in environ.get("CLAUDE_CONFIG_DIR", "").split(",") if part.strip()]
    if said:
        return [_absolute("CLAUDE_CONFIG_DIR", part.strip()) for part in said]
    usual = _expanded("CLAUDE_CONFIG_DIR", "~")
    found = [path for path in (usual / ".claude", usual / ".config" / "claude") if (path / "projects").is_dir()]
    return found or [usual / ".claude"]


def _absolute(name: str, said: str) -> Path:
    path = _expanded(name, said)
    if not path.is_absolute():
        raise Misconfigured(f"{name} is not an absolute path: {said}", hint=f'export {name}="$PWD/{said}"')
    return path


def _expanded(name: str, said: str) -> Path:
    try:
        return Path(said).expanduser()
    except RuntimeError:
        raise Misconfigured(f"no such home directory: {said}", hint=f"export {name}=/an/absolute/path") from None
