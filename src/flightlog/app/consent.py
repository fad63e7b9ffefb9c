"""The one gate before anything foreign makes us run, send or write: asked by every command and page.

A run, a loop's plan and a repository's settings are the person's own if they were made here, or
allowed here with `flightlog trust`; both are recorded in the data directory (`privacy.trust`).
"""

import hashlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.app.collecting import collecting, row_sources
from flightlog.app.paths import home
from flightlog.app.privacy import repository_settings
from flightlog.lab import book as runs
from flightlog.lab.config import RunConfig
from flightlog.lab.running.asking import upstream
from flightlog.model.errors import ConsentNeeded, NotFound
from flightlog.model.exchange import is_loopback
from flightlog.privacy.trust import ADDRESS, FILE, GRANTS, Trust, environment_grants, risky

if TYPE_CHECKING:
    from flightlog.loop.plan.schema import Plan

ROWS = "dataset.rows"
# How a hook of the repository's own is known: the collector's script, or ours registered with `init --project`.
OWN_HOOKS = ("ml-session-capture-hook.sh", "claude-code --project")


class Target(Struct, frozen=True):
    """Something consent can be given for: what it would do, and whether that is allowed."""

    kind: str
    name: str
    subject: str
    allows: dict[str, Any]
    trusted: bool


def consents(environ: Mapping[str, str] | None = None) -> Trust:
    """Return the consents of this person."""
    return Trust(home(os.environ if environ is None else environ) / FILE)


def remember_run(digest: str, environ: Mapping[str, str] | None = None) -> None:
    """Record the digest of a run's `config.yaml` as the person's own."""
    consents(environ).grant(f"run {digest}", {})


def remember_plan(data: bytes, project: Path) -> None:
    """Record a plan that the person named as their own, for work in `project`."""
    consents().grant(_plan_subject(data, project), {})


def permit_run(environ: Mapping[str, str], config: RunConfig, path: Path, digest: str) -> None:
    """Raise ConsentNeeded unless the run is the person's own or allowed, and its key goes over no open network.

    Without `digest` the run is about to be created by the person.
    """
    run = _run_target(path, config, digest, environ)
    address = run.allows[ADDRESS]
    if digest and not run.trusted:
        raise _needed(run, f"this run was not begun here; its key would go to {address[:100]}: {path.name[:60]}")
    if config.scenario is None:
        upstream(config, environ)  # a key of another address is refused before anything starts
    seen = consents(environ).get(run.subject).address
    target = _address_target(address, environ)
    if address.startswith("http://") and not is_loopback(address) and seen != address and not target.trusted:
        raise _needed(target, f"the key would be sent without encryption to {address[:100]}")


def permit_plan(directory: Path) -> None:
    """Raise ConsentNeeded unless the person named the plan of the loop session in `directory`, or allowed it."""
    target = _plan_target(directory)
    if not target.trusted:
        raise _needed(target, f"the plan of this session was not named here: {directory.name[:60]}")


def find_target(written: str) -> Target:
    """Return what `flightlog trust` is asked about: an address, a run, a loop session, or a directory's settings."""
    if written.startswith(("http://", "https://")):
        return _address_target(written, os.environ)
    path = Path(written)
    for folder in (path, Path("runs") / written, Path("ralph-loop-sessions") / written):
        # A repository may well have a config.yaml of its own at its top.
        if (folder / runs.CONFIG).is_file() and not (folder / ".git").exists():
            return _run_target(folder, *runs.read_config(folder), os.environ)
        if (folder / "plan.yaml").is_file() and (folder / "journal.jsonl").is_file():
            return _plan_target(folder)
    if not path.is_dir():
        raise NotFound(f"no such directory, run or session: {written[:100]}", hint="flightlog trust DIRECTORY")
    return repository_target(path)


def repository_target(path: Path) -> Target:
    """Return what a repository's files would publish, run or write, and whether that is allowed."""
    risks = risky(repository_settings(path))
    rows = {ROWS: True} if collecting(path.absolute()) else {}
    by_variable = {GRANTS[word] for word in environment_grants(os.environ)}
    allowed = consents().allows(path, risks) or risks.keys() <= by_variable
    trusted = allowed and (not rows or bool(row_sources(path, os.environ)))
    top = str(path.resolve())
    return Target("repository", top, top, risks | rows, trusted)


def describe_dataset(top: Path) -> dict[str, Any]:
    """Return what each source of consent allows for the training rows of a repository, and what that comes to."""
    named = (top / ".claude" / name for name in ("settings.json", "settings.local.json"))
    texts = [path.read_text("utf-8", "replace") for path in named if path.is_file()]
    held = row_sources(top, os.environ, own_hook=any(word in text for text in texts for word in OWN_HOOKS))
    listed = {name: sorted(held.get(name, ())) for name in ("trust", "environment", "hook")}
    return {word: any(word in allowed for allowed in held.values()) for word in GRANTS} | {"sources": listed}


def grant(target: Target) -> None:
    """Allow exactly what `target` shows."""
    effects = {name: value for name, value in target.allows.items() if name != ROWS}
    consents().grant(target.subject, effects, rows=ROWS in target.allows)


def revoke(target: Target) -> bool:
    """Withdraw consent; return whether there was any."""
    return consents().revoke(target.subject)


def _run_target(path: Path, config: RunConfig, digest: str, environ: Mapping[str, str]) -> Target:
    subject = f"run {digest}"
    trusted = bool(consents(environ).get(subject).digest)
    return Target("run", str(path.resolve()), subject, _run_effects(config, environ), trusted)


def _address_target(written: str, environ: Mapping[str, str]) -> Target:
    address = written.rstrip("/")
    return Target("address", address, address, {ADDRESS: address}, bool(consents(environ).get(address).digest))


def _plan_target(directory: Path) -> Target:
    from flightlog.loop.look.session import look  # noqa: PLC0415 - the lab asks this module too
    from flightlog.loop.plan.load import digest  # noqa: PLC0415 - as above
    from flightlog.loop.run.session import raw_plan  # noqa: PLC0415 - as above

    plan, data = raw_plan(directory)
    state = look(directory).state
    project = (directory / state.project).resolve()
    subject = _plan_subject(data, project)
    # A plan that was changed under its session is refused by the session itself.
    trusted = bool(consents().get(subject).digest) or state.plan_digest != digest(data)
    return Target("session", str(directory.resolve()), subject, _plan_effects(plan, project), trusted)


def _plan_subject(data: bytes, project: Path) -> str:
    whole = data + b"\0" + os.fsencode(project.resolve())
    return f"plan {hashlib.sha256(whole).hexdigest()}"


def _needed(target: Target, message: str) -> ConsentNeeded:
    hint = f"if that is all right, allow exactly this: flightlog trust --yes {shlex.quote(target.name)}"
    return ConsentNeeded(message, hint=hint, subject=target.subject, effects=target.allows)


def _run_effects(config: RunConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what carrying on a run can run, send and write, by name."""
    address = config.base_url or upstream(config, environ) or config.provider
    if config.scenario is not None:
        address = "a scripted model on this machine"
    effects: dict[str, Any] = {ADDRESS: address.rstrip("/"), "works in": config.work_dir}
    agent = f"{config.engine}, {config.permission_mode}, tools {', '.join(config.allowed_tools)}"
    effects["agent"] = list(config.command) if config.engine == "command" else agent
    if config.load_project_settings:
        effects["project settings"] = "hooks and servers of the work directory are started"
    for name, commands in (("before", config.pre_run_commands), ("after", config.post_run_commands)):
        effects |= {f"{name} {number}": each.command for number, each in enumerate(commands, 1)}
    effects |= {f"verifier {number}": each.command or each.python for number, each in enumerate(config.verifiers, 1)}
    return effects | {f"prompt {each.session_index}": each.prompt for each in config.sessions}


def _plan_effects(plan: "Plan", project: Path) -> dict[str, Any]:
    """Return what carrying on a plan can run, by name."""
    effects: dict[str, Any] = {"works in": str(project)}
    for task in plan.tasks:
        runs_of = [(name, run) for name, run in (("task", task.run), ("delegate", task.delegate)) if run is not None]
        commands = {name: run.command or run.python or [run.agent, *run.arguments, run.prompt] for name, run in runs_of}
        commands |= {"verify": list(task.verify), "diagnose": task.diagnose}
        effects |= {f"{name} {task.task_id}": words for name, words in commands.items() if words}
    return effects
