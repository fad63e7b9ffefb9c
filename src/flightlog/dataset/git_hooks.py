"""What `install-hooks` puts into a repository: the document's entry points, and git's.

    scripts/ml_data_collector.py            the document's own command line
    scripts/ml-session-capture-hook.sh      for whoever registers a Stop hook by hand
    .git/hooks/post-commit                  starts a sync behind git's back and returns at once
    .git/info/attributes, config            our merge driver, for this clone

Plans are values; a hook of somebody else stays and runs first.
"""

from pathlib import Path

from msgspec import Struct

from flightlog.dataset.layout import TRACKED
from flightlog.dataset.rows import BASES
from flightlog.store import files, shared_files
from flightlog.store.git.command import PersonGit, find_hooks_folder
from flightlog.store.git.repository import Repository, git_output, run_git

MARK = "# flightlog dataset"
DRIVER = "flightlog-rows"
_BEFORE = "before-flightlog-dataset"

SCRIPT = f"""#!/usr/bin/env python3
{MARK}: the entry point of the dataset in this repository; see `flightlog dataset --help`.
import os, sys
beside = os.path.join(os.path.dirname(sys.executable), "ml-data-collector")
os.execvp(beside if os.path.exists(beside) else "ml-data-collector", ["ml-data-collector", *sys.argv[1:]])
"""

CAPTURE = f"""#!/bin/sh
{MARK}: call this from a Stop hook where `flightlog init` is not used. Never fails, never waits.
cd "${{CLAUDE_PROJECT_DIR:-.}}" || exit 0
(nohup python3 scripts/ml_data_collector.py session sync-to-jsonl --hook </dev/null >/dev/null 2>&1 &)
exit 0
"""


class HookFileChange(Struct, frozen=True):
    """One file and what it is to hold; None takes it away."""

    path: Path
    body: bytes | None
    mode: int = 0o755


def plan_hooks(repository: Repository, command: str) -> list[HookFileChange]:
    """Return what would change to have the hooks."""
    top = repository.top
    wanted = [
        HookFileChange(top / "scripts" / "ml_data_collector.py", SCRIPT.encode()),
        HookFileChange(top / "scripts" / "ml-session-capture-hook.sh", CAPTURE.encode()),
        HookFileChange(_hook_path(repository), _post_commit(command).encode()),
        HookFileChange(_attributes_path(repository), _with_attributes(_attributes_path(repository)), 0o644),
    ]
    for change in wanted[:2]:
        files.ensure_contained(top, change.path)
    return [change for change in wanted if _read_hook(change.path) != change.body]


def plan_removal(repository: Repository) -> list[HookFileChange]:
    """Return what would change to have no hooks; files that are no longer ours stay."""
    ours = (
        repository.top / "scripts" / "ml_data_collector.py",
        repository.top / "scripts" / "ml-session-capture-hook.sh",
        _hook_path(repository),
    )
    gone = [HookFileChange(path, None) for path in ours if MARK.encode() in (_read_hook(path) or b"")]
    attributes = _attributes_path(repository)
    rest = _without_attributes(_read_hook(attributes) or b"")
    changed = [HookFileChange(attributes, rest or None, 0o644)] if rest != (_read_hook(attributes) or b"") else []
    return [*gone, *changed]


def apply_changes(repository: Repository, changes: list[HookFileChange], command: str) -> None:
    """Carry out a plan."""
    removing = any(change.body is None for change in changes)
    for change in changes:
        before = change.path.with_name(f"{change.path.name}.{_BEFORE}")
        if change.body is None:
            shared_files.remove_with_dir(change.path)
            if before.exists():
                files.rename_file(before, change.path.name)
            continue
        is_hook = change.path == _hook_path(repository)
        if is_hook and change.path.exists() and MARK.encode() not in change.path.read_bytes() and not before.exists():
            files.rename_file(change.path, before.name)
        files.replace_file(change.path, change.body, mode=change.mode)
    if removing:
        git_output(repository, "config", "--local", "--remove-section", f"merge.{DRIVER}")
    else:
        run_git(repository, "config", "--local", f"merge.{DRIVER}.name", "training rows, each once")
        run_git(
            repository, "config", "--local", f"merge.{DRIVER}.driver", f"{command} dataset tracked merge %O %A %B %P"
        )


def _hook_path(repository: Repository) -> Path:
    return find_hooks_folder(PersonGit(repository.top, repository.trusted)) / "post-commit"


def _attributes_path(repository: Repository) -> Path:
    return repository.common / "info" / "attributes"


def _with_attributes(path: Path) -> bytes:
    kept = _without_attributes(_read_hook(path) or b"")
    lines = [f"{MARK}", *(f"{TRACKED}/{name} merge={DRIVER}" for name in BASES.values())]
    return kept + "".join(f"{line}\n" for line in lines).encode()


def _without_attributes(held: bytes) -> bytes:
    lines = held.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    kept = [line for line in lines if MARK not in line and not line.rstrip().endswith(f"merge={DRIVER}")]
    return "".join(kept).encode("utf-8", "surrogateescape")


def _read_hook(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _post_commit(command: str) -> str:
    return f"""#!/bin/sh
{MARK}: note the commit as a training row, behind git's back. Never fails, never waits.
[ -x "$0.{_BEFORE}" ] && "$0.{_BEFORE}" "$@"
(nohup {command} dataset session sync-to-jsonl --commits </dev/null >/dev/null 2>&1 &)
exit 0
"""
