"""Whether a directory's repository collects training rows: asked after each turn, so it loads and runs nothing."""

from pathlib import Path

from flightlog.model.runtime import Runtime
from flightlog.sources.git.heads import find_common_dir

MARK = "flightlog/dataset/collecting"  # this clone collects, also on branches that have no rows yet

SWITCH = "ML_COLLECTION_ENABLED"


def is_off(runtime: Runtime) -> bool:
    """Return whether the environment stops everything that writes rows. Forgetting rows still works."""
    return runtime.environ.get(SWITCH, "").strip().lower() in {"0", "false", "no", "off"}


def report_if_off(runtime: Runtime) -> bool:
    """Return whether collection is off, and say so on stderr if it is."""
    if is_off(runtime):
        runtime.notify(f"collection is off ({SWITCH}={runtime.environ[SWITCH]}): no row was written")
    return is_off(runtime)


def find_collecting_root(folder: Path) -> Path | None:
    """Return the top of the work tree that holds `folder` if it collects rows."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            on = (each / ".git-ml" / "tracked").is_dir() or (find_common_dir(each) / MARK).exists()
            return each if on else None
    return None


def row_sources(runtime: Runtime, top: Path, *, own_hook: bool = False) -> dict[str, frozenset[str]]:
    """Return each consent that holds for a repository's training rows, and what it allows of rows, words and push.

    `trust` on this machine, `environment` (FLIGHTLOG_TRUST), `hook`: the repository's own, which an agent
    runs only after its own trust dialog. Without any, nothing is written but at a person's own command.
    """
    from flightlog.privacy.trust import GRANTS, environment_grants, open_trust  # noqa: PLC0415 - few folders collect

    held = {
        "trust": frozenset(GRANTS) if open_trust(runtime).consent_for(top).rows else frozenset(),
        "environment": environment_grants(runtime.environ),
        "hook": frozenset({"rows"}) if own_hook else frozenset(),
    }
    return {name: allowed for name, allowed in held.items() if allowed}
