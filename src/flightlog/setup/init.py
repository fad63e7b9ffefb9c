"""What init changes here.

Writes three things, each marked so that it can be found and taken out again: the tracked directory, the
project's own answer about words in `flightlog.toml`, and a section of `CLAUDE.md` that tells agents.

The one part of `init` that reads the environment; the plan itself is made in `app.install`.
"""

import os
import shlex
import sys
import tomllib
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.driver import ClaudeCode
from flightlog.agents.claude_code.files import find_config_dirs
from flightlog.agents.claude_code.hooks import project_settings
from flightlog.dataset import service
from flightlog.dataset.layout import DatasetDirs, prepare_dataset
from flightlog.model.runtime import Runtime
from flightlog.privacy import git_guard
from flightlog.privacy.service import SETTINGS, guard_git, repository_settings
from flightlog.privacy.trust import open_trust, risky_settings
from flightlog.setup import install, json_editor
from flightlog.store import files, shared_files

BEGIN, END = "<!-- flightlog dataset: begin -->", "<!-- flightlog dataset: end -->"
SECTION = f"""{BEGIN}
## Training rows

This repository collects training rows from agent sessions in `.git-ml/tracked/` (JSON lines, tracked by git).
Shards in `.git-ml/tracked/pending/` are written by a hook after each step. Commit them together with your
work; never edit or merge them by hand.

- `flightlog dataset stats` says what there is, `flightlog dataset check` what is wrong with it.
- `flightlog dataset tracked compact --commit` folds shards into the base files, on the default branch.
{END}
"""
LONG_DAYS = 3650
_DEFAULT_DAYS = 30


def has_words_setting(folder: Path) -> bool:
    """Whether the project has said yes or no to words already."""
    return "track_words" in repository_settings(folder).get("dataset", {})


def init_dataset(runtime: Runtime, folder: Path, *, words: bool | None) -> list[str]:
    """Begin a dataset, keep the answer about words, tell agents; return what was done."""
    place = service.locate_dataset(runtime, folder)
    done = [f"made {path}" for path in prepare_dataset(place, service.make_row_redactor(runtime, place))]
    open_trust(runtime).allow_rows(place.repository.top)
    if words is not None:
        done += _write_words_setting(runtime, place, words=words)
    return done + _add_agent_instructions(
        files.ensure_contained(place.repository.top, place.repository.top / "CLAUDE.md")
    )


def _write_words_setting(runtime: Runtime, place: DatasetDirs, *, words: bool) -> list[str]:
    """Write the answer into the project's settings; who answers yes trusts what the project says from now on."""
    path = files.ensure_contained(place.repository.top, place.repository.top / SETTINGS)
    before = path.read_text("utf-8") if path.exists() else ""
    line = f"track_words = {str(words).lower()}"
    if has_words_setting(place.repository.top):
        return [f"{path} says already whether words are tracked"]
    head, found, rest = before.partition("[dataset]\n")
    after = f"{head}{found}{line}\n{rest}" if found else f"{before}{chr(10) if before else ''}[dataset]\n{line}\n"
    tomllib.loads(after)
    files.replace_file(path, after.encode(), mode=0o644)
    if words:
        open_trust(runtime).grant(
            place.repository.top, risky_settings(repository_settings(place.repository.top)), rows=True
        )
    return [f"{path}: {line}"]


def _add_agent_instructions(path: Path) -> list[str]:
    before = path.read_text("utf-8") if path.exists() else ""
    if BEGIN in before:
        return []
    gap = "\n" if before and not before.endswith("\n\n") else ""
    files.replace_file(path, (before + gap + SECTION).encode(), mode=0o644)
    return [f"{path}: a section on training rows"]


class InitRequest(Struct, frozen=True):
    """What was asked for: `user` or `project`, and where the person stands."""

    scope: str
    cwd: Path


def plan_change(  # noqa: PLR0913 - one parameter per choice of a person's
    runtime: Runtime, place: InitRequest, *, remove: bool, keep_days: int, inline: bool, statusline: bool = True
) -> install.SettingsChange:
    """Plan the change for this machine."""
    settings = settings_path(runtime, place)
    if remove:
        return install.plan_removal(settings)
    inline = inline or runtime.config["hook.inline"].value is True
    python = Path(sys.executable)
    return install.plan_install(
        settings, list_client_versions(runtime), python, keep_days=keep_days, inline=inline, statusline=statusline
    )


def change_guard(runtime: Runtime, place: InitRequest, *, remove: bool) -> list[Path]:
    """Put the guard before commits and pushes of the project here, or take it out; return the hooks that changed."""
    if not _is_repository(place):
        return []
    if remove:
        return git_guard.remove_guard(guard_git(runtime, place.cwd))
    return git_guard.install_guard(guard_git(runtime, place.cwd), command=hook_command())


def hook_command() -> str:
    """Return how git is to call us: the program beside this Python, else whatever is on the path."""
    beside = Path(sys.executable).with_name("flightlog")
    return shlex.quote(str(beside)) if beside.exists() else "flightlog"


def wants_guard(runtime: Runtime, place: InitRequest, *, remove: bool) -> bool:
    """Whether there is a guard to put in, or to take out."""
    if not _is_repository(place):
        return False
    there = len(git_guard.list_guard_hooks(guard_git(runtime, place.cwd)))
    return there > 0 if remove else there < len(git_guard.HOOKS)


def _is_repository(place: InitRequest) -> bool:
    return place.scope == "project" and any((folder / ".git").exists() for folder in (place.cwd, *place.cwd.parents))


def settings_path(runtime: Runtime, place: InitRequest) -> Path:
    """The settings file: a person's own, or a project's local one, since the hook is on this machine only."""
    if place.scope == "project":
        return files.ensure_contained(files.find_project(place.cwd), project_settings(place.cwd))
    return Path(find_config_dirs(runtime)[0]) / "settings.json"


def list_client_versions(runtime: Runtime) -> tuple[str, ...]:
    """The versions of all clients found here, empty for one that does not say."""
    return tuple(ClaudeCode(program).version(runtime.environ) for program in list_clients(runtime))


def list_clients(runtime: Runtime) -> tuple[Path, ...]:
    """Every Claude Code a person here could start: the one named, else each on the search path."""
    given = runtime.environ.get("FLIGHTLOG_CLAUDE", "")
    if given:
        return (Path(given),)
    found = [Path(folder) / "claude" for folder in runtime.program_path.split(os.pathsep)]
    real = {path.resolve(): path for path in reversed(found) if path.is_file() and os.access(path, os.X_OK)}
    return tuple(sorted(real.values()))


def current_keep_days(runtime: Runtime, place: InitRequest) -> int:
    """How long the agent keeps its transcripts now."""
    settings = settings_path(runtime, place)
    data = shared_files.read_if_exists(settings)
    if data is None or not data.strip():
        return _DEFAULT_DAYS
    days = json_editor.parse_object(data.decode("utf-8", "replace"), str(settings)).get(install.DAYS_KEY)
    return days if isinstance(days, int) else _DEFAULT_DAYS
