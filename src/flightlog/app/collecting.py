"""Whether a directory's repository collects training rows: asked after each turn, so it loads and runs nothing."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flightlog.app.paths import home

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


def row_sources(top: Path, environ: Mapping[str, str], *, own_hook: bool = False) -> dict[str, frozenset[str]]:
    """Return each consent that holds for a repository's training rows, and what it allows of rows, words and push.

    `trust` on this machine, `environment` (FLIGHTLOG_TRUST), `hook`: the repository's own, which an agent
    runs only after its own trust dialog. Without any, nothing is written but at a person's own command.
    """
    from flightlog.privacy.trust import FILE, GRANTS, Trust, environment_grants  # noqa: PLC0415 - few folders collect

    held = {
        "trust": frozenset(GRANTS) if Trust(home(environ) / FILE).get(top).rows else frozenset(),
        "environment": environment_grants(environ),
        "hook": frozenset({"rows"}) if own_hook else frozenset(),
    }
    return {name: allowed for name, allowed in held.items() if allowed}
