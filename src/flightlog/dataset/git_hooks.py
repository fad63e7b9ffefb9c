"""What `install-hooks` adds to a repository: the source document's entry points, and git's.

    scripts/ml_data_collector.py            the source document's command line
    scripts/ml-session-capture-hook.sh      the repository's own hook, for every clone of it
    .claude/settings.json                   registers it (`setup.install`)
    .git/hooks/post-commit                  starts a sync in the background
    .git/info/attributes, config            our merge driver, for this clone

Plans are values. A hook of another tool stays and runs first.
"""

from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code import PROJECT_DIR
from flightlog.dataset.layout import TRACKED
from flightlog.dataset.rows import BASES
from flightlog.privacy.trust import GRANTS, VARIABLE
from flightlog.store import files, shared_files
from flightlog.store.git.command import PersonGit, find_hooks_folder
from flightlog.store.git.repository import Repository, git_output, run_git

MARK = "# flightlog dataset"
DRIVER = "flightlog-rows"
_BEFORE = "before-flightlog-dataset"

SCRIPT = f"""#!/usr/bin/env python3
{MARK}: entry point of the dataset in this repository; see `flightlog dataset --help`.
import os, sys
beside = os.path.join(os.path.dirname(sys.executable), "ml-data-collector")
os.execvp(beside if os.path.exists(beside) else "ml-data-collector", ["ml-data-collector", *sys.argv[1:]])
"""

MISSING = (
    "flightlog is not on the PATH, so this session adds no training rows; "
    "to install it: uv tool install flightlog"
)
MISSPELLED = f"{VARIABLE} allows nothing, because it may hold only: {', '.join(GRANTS)}"
# In the foreground where the machine may end next. A hook never installs anything: a clone may not
# run what its repository names before a person consents.
CAPTURE = f"""#!/bin/sh
{MARK}: the hook of this repository; $1 is the event. Installs nothing and always exits 0.
cd "${{{PROJECT_DIR}:-.}}" || exit 0
if ! command -v flightlog >/dev/null 2>&1; then
    [ "$1" != SessionStart ] || echo '{{"systemMessage": "{MISSING}"}}'
    exit 0
fi
for word in $(echo "${VARIABLE}" | tr , ' '); do
    case $word in {" | ".join(GRANTS)}) continue ;; esac
    unset {VARIABLE}
    [ "$1" != SessionStart ] || echo '{{"systemMessage": "{MISSPELLED}"}}'
    break
done
capture() {{ flightlog dataset session sync-to-jsonl --hook >/dev/null 2>&1; }}
case "$1" in
SessionStart) ;;
UserPromptSubmit | PostToolUse) payload=$(cat) && (printf %s "$payload" | capture &) ;;
*) capture ;;
esac
exit 0
"""


class HookFileChange(Struct, frozen=True):
    """One file and its new content; None removes it."""

    path: Path
    body: bytes | None
    mode: int = 0o755


def plan_hooks(repository: Repository, command: str) -> list[HookFileChange]:
    """Return the changes that install the hooks."""
    top = repository.top
    scripts = {"ml_data_collector.py": SCRIPT, "ml-session-capture-hook.sh": CAPTURE}
    attributes = _attributes_path(repository)
    wanted = [
        *(
            HookFileChange(files.ensure_contained(top, top / "scripts" / name), body.encode())
            for name, body in scripts.items()
        ),
        HookFileChange(_hook_path(repository), _post_commit(command).encode()),
        HookFileChange(attributes, _with_attributes(_read_hook(attributes) or b""), 0o644),
    ]
    return [change for change in wanted if _read_hook(change.path) != change.body]


def plan_removal(repository: Repository) -> list[HookFileChange]:
    """Return the changes that remove the hooks; files that are no longer ours stay."""
    ours = (
        repository.top / "scripts" / "ml_data_collector.py",
        repository.top / "scripts" / "ml-session-capture-hook.sh",
        _hook_path(repository),
    )
    changes = [
        HookFileChange(path, None) for path in ours if MARK.encode() in (_read_hook(path) or b"")
    ]
    attributes = _attributes_path(repository)
    body = _read_hook(attributes) or b""
    rest = _without_attributes(body)
    return [*changes, HookFileChange(attributes, rest or None, 0o644)] if rest != body else changes


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
        is_foreign = (
            is_hook and change.path.exists() and MARK.encode() not in change.path.read_bytes()
        )
        if is_foreign and not before.exists():
            files.rename_file(change.path, before.name)
        files.replace_file(change.path, change.body, mode=change.mode)
    if removing:
        git_output(repository, "config", "--local", "--remove-section", f"merge.{DRIVER}")
    else:
        run_git(repository, "config", "--local", f"merge.{DRIVER}.name", "training rows, each once")
        driver = f"{command} dataset tracked merge %O %A %B %P"
        run_git(repository, "config", "--local", f"merge.{DRIVER}.driver", driver)


def _hook_path(repository: Repository) -> Path:
    return find_hooks_folder(PersonGit(repository.top, repository.is_trusted)) / "post-commit"


def _attributes_path(repository: Repository) -> Path:
    return repository.common / "info" / "attributes"


def _with_attributes(body: bytes) -> bytes:
    lines = [MARK, *(f"{TRACKED}/{name} merge={DRIVER}" for name in BASES.values())]
    return _without_attributes(body) + "".join(f"{line}\n" for line in lines).encode()


def _without_attributes(body: bytes) -> bytes:
    lines = body.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    others = [
        line for line in lines if MARK not in line and not line.rstrip().endswith(f"merge={DRIVER}")
    ]
    return "".join(others).encode("utf-8", "surrogateescape")


def _read_hook(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _post_commit(command: str) -> str:
    return f"""#!/bin/sh
{MARK}: add the commit to the training rows in the background. Never fails or waits.
[ -x "$0.{_BEFORE}" ] && "$0.{_BEFORE}" "$@"
(nohup {command} dataset session sync-to-jsonl --commits </dev/null >/dev/null 2>&1 &)
exit 0
"""
