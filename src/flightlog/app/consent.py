"""Consent: the one check before foreign files make flightlog run, send or write something.

A run, a loop's plan and a repository's settings are trusted if they were made here, or allowed here
with `flightlog trust`; both are recorded in the data directory (`privacy.trust`).
"""

from pathlib import Path
from typing import Any

from flightlog.agents.claude_code.hooks import project_settings_files
from flightlog.dataset.state import find_collecting_root, row_sources
from flightlog.lab import store
from flightlog.lab.experiment.service import experiment_target
from flightlog.lab.experiment.store import CONFIG as EXPERIMENT
from flightlog.lab.experiment.tasks import tasks_target
from flightlog.lab.service import run_target
from flightlog.loop.runner.session import plan_target
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.privacy import trust
from flightlog.privacy.service import repository_settings

ROWS = "dataset.rows"
# Commands in a repository's own hooks: the collector's script, or ours from `init --project`.
OWN_HOOKS = ("ml-session-capture-hook.sh", "claude-code --project")


def find_target(runtime: Runtime, name: str) -> trust.ConsentTarget:
    """Return the target of `flightlog trust`: an address, run, loop session or directory."""
    if name.startswith(("http://", "https://")):
        return trust.address_target(runtime, name)
    path = Path(name)
    for folder in (path, Path("runs") / name, Path("ralph-loop-sessions") / name):
        # A repository may have an unrelated config.yaml at its top.
        if (folder / store.CONFIG).is_file() and not (folder / ".git").exists():
            return run_target(runtime, folder, *store.read_config(folder))
        if (folder / EXPERIMENT).is_file() and not (folder / ".git").exists():
            return experiment_target(runtime, folder)
        if (folder / "plan.yaml").is_file() and (folder / "journal.jsonl").is_file():
            return plan_target(runtime, folder)
    if path.is_file() and path.suffix in {".yaml", ".yml"}:
        return tasks_target(runtime, path.resolve())
    if not path.is_dir():
        hint = "flightlog trust DIRECTORY"
        raise NotFound(f"no such directory, run or session: {name[:100]}", hint=hint)
    return repository_target(runtime, path)


def repository_target(runtime: Runtime, path: Path) -> trust.ConsentTarget:
    """Return what a repository's files would publish, run or write, and if it is allowed."""
    risks = trust.risky_settings(repository_settings(path))
    rows = {ROWS: True} if find_collecting_root(path.absolute()) else {}
    by_variable = {trust.GRANTS[word] for word in trust.environment_grants(runtime.environ)}
    allowed = trust.open_trust(runtime).is_allowed(path, risks) or risks.keys() <= by_variable
    trusted = allowed and (not rows or bool(row_sources(runtime, path)))
    top = str(path.resolve())
    return trust.ConsentTarget("repository", top, top, risks | rows, trusted)


def describe_dataset(runtime: Runtime, top: Path) -> dict[str, Any]:
    """Return what each source of consent allows for a repository's rows, and in total."""
    paths = project_settings_files(top)
    texts = [path.read_text("utf-8", "replace") for path in paths if path.is_file()]
    own_hook = any(word in text for text in texts for word in OWN_HOOKS)
    sources = row_sources(runtime, top, own_hook=own_hook)
    risks = trust.risky_settings(repository_settings(top))
    if not trust.open_trust(runtime).is_allowed(top, risks):
        sources["trust"] = sources.get("trust", frozenset()) & {"rows"}  # not yet the settings
    listed = {name: sorted(sources.get(name, ())) for name in ("trust", "environment", "hook")}
    return {word: any(word in allowed for allowed in sources.values()) for word in trust.GRANTS} | {
        "sources": listed
    }


def grant_consent(runtime: Runtime, target: trust.ConsentTarget) -> None:
    """Allow exactly what `target` shows."""
    effects = {name: value for name, value in target.allows.items() if name != ROWS}
    trust.open_trust(runtime).grant(target.subject, effects, rows=ROWS in target.allows)


def revoke_consent(runtime: Runtime, target: trust.ConsentTarget) -> bool:
    """Withdraw consent; return whether there was any."""
    return trust.open_trust(runtime).revoke(target.subject)
