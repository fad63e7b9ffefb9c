"""Where things are on this machine: the one place that reads the environment for directories."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from flightlog.model.errors import Misconfigured

SAMPLES = Path(__file__).parents[1] / "agents/scripted/recordings"


def choose_samples() -> None:
    """Read the recordings that ship with the package for the rest of this process."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(SAMPLES)


def home(environ: Mapping[str, str]) -> Path:
    """Return flightlog's own data directory."""
    said = environ.get("FLIGHTLOG_HOME", "")
    return _absolute("FLIGHTLOG_HOME", said) if said else _data_dir(environ) / "flightlog"


def _data_dir(environ: Mapping[str, str]) -> Path:
    """Return where this system keeps people's data; on Linux as platformdirs says, without its 15 ms of imports."""
    said = environ.get("XDG_DATA_HOME", "").strip()
    if sys.platform == "linux" and (not said or Path(said).is_absolute()):
        return Path(said) if said else _expanded("FLIGHTLOG_HOME", "~") / ".local" / "share"
    import platformdirs  # noqa: PLC0415 - see above

    return Path(platformdirs.user_data_dir())


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
