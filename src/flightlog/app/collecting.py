"""Whether a directory's repository collects training rows: asked after each turn, so it loads and runs nothing."""

import os
import sys
from contextlib import suppress
from pathlib import Path

MARK = "flightlog/dataset/collecting"  # this clone collects, also on branches that have no rows yet

SWITCH = "ML_COLLECTION_ENABLED"


def is_off() -> bool:
    """Return whether the environment stops everything that writes rows. Forgetting rows still works."""
    return os.environ.get(SWITCH, "").strip().lower() in {"0", "false", "no", "off"}


def say_if_off() -> bool:
    """Return whether collection is off, and say so on stderr if it is."""
    if is_off():
        sys.stderr.write(f"collection is off ({SWITCH}={os.environ[SWITCH]}): no row was written\n")
    return is_off()


def collecting(folder: Path) -> Path | None:
    """Return the top of the work tree that holds `folder` if it collects rows."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            on = (each / ".git-ml" / "tracked").is_dir() or (common(each) / MARK).exists()
            return each if on else None
    return None


def common(top: Path) -> Path:
    """Return what all work trees of a repository share, as git's own files say."""
    git = top / ".git"
    with suppress(OSError):
        if git.is_file():
            own = (top / git.read_text().removeprefix("gitdir:").strip()).resolve()
            shared = own / "commondir"
            return (own / shared.read_text().strip()).resolve() if shared.exists() else own
    return git.resolve()
