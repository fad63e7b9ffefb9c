"""Changes that `init` makes, and that `uninstall` takes back.

For a dataset it writes three things, each marked so that it can be found and removed: the tracked
directory, the project's answer about words in `flightlog.toml`, and a section of `CLAUDE.md`.

This part reads the environment; the settings change itself is planned in `setup.install`.
"""

import re
import shlex
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents import agent_label, find_agent, find_memory_file
from flightlog.agents.claude_code import CONFIG_DIR
from flightlog.agents.claude_code.driver import list_client_versions
from flightlog.agents.protocol import HookSettings
from flightlog.agents.recordings import find_agent_dirs
from flightlog.archive.archive import open_archive
from flightlog.dataset import git_hooks, service
from flightlog.dataset.layout import prepare_dataset
from flightlog.hooks import writer
from flightlog.live.collector import FOLDER
from flightlog.live.service import find_known_config_dirs, list_noted_dirs
from flightlog.model.errors import FlightlogError, Invalid, Misconfigured, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.privacy import git_guard
from flightlog.privacy.service import SETTINGS, guard_git, repository_settings
from flightlog.privacy.trust import is_trusted, open_trust, risky_settings
from flightlog.setup import install
from flightlog.setup.hook_check import find_plugin
from flightlog.store import files, json_editor, shared_files
from flightlog.store.git.repository import open_repository

BEGIN, END = "<!-- flightlog dataset: begin -->", "<!-- flightlog dataset: end -->"
SECTION = f"""{BEGIN}
## Training rows

This repository collects training rows from agent sessions in `.git-ml/tracked/` (JSON lines, tracked by git).
Shards in `.git-ml/tracked/pending/` are written by a hook after each step. Commit them together with your
work; never edit or merge them by hand.

- `flightlog dataset stats` counts the rows, `flightlog dataset check` lists problems.
- `flightlog dataset tracked compact --commit` folds shards into the base files, on the default branch.
{END}
"""
LONG_DAYS = 3650  # ten years: in effect, transcripts are never deleted
_DEFAULT_DAYS = 30  # Claude Code's own default
_REMOVE_HOOKS = "flightlog dataset install-hooks --remove"
_REMOVE_MOVED = "flightlog uninstall --yes  # in its new place, if it was moved"
_PROJECT_DATA = {
    ".git-ml": "training rows",
    ".git/flightlog": "state of the dataset and of saved files",
    ".chat-retro-runtime": "analyses",
    "ralph-loop-sessions": "loop sessions",
    SETTINGS: "the project's settings of flightlog",
}


def has_words_setting(folder: Path) -> bool:
    """Return whether the project's settings already allow or refuse words."""
    return "track_words" in repository_settings(folder).get("dataset", {})


def init_dataset(runtime: Runtime, folder: Path, *, words: bool | None) -> list[str]:
    """Start a dataset, store the answer about words, instruct agents; return what was done."""
    dirs = service.locate_dataset(runtime, folder)
    top = dirs.repository.top
    redactor = service.make_row_redactor(runtime, dirs)
    done = [f"created {path}" for path in prepare_dataset(dirs, redactor)]
    open_trust(runtime).allow_rows(top)
    if words is not None:
        done += _write_words_setting(runtime, top, words=words)
    return done + _add_agent_instructions(
        files.ensure_contained(top, top / find_memory_file(DEFAULT_AGENT))
    )


def _write_words_setting(runtime: Runtime, top: Path, *, words: bool) -> list[str]:
    """Write the answer into the project's settings; yes also grants trust to them."""
    path = files.ensure_contained(top, top / SETTINGS)
    line = f"track_words = {str(words).lower()}"
    if has_words_setting(top):
        return [f"{path} already sets track_words"]
    before = _read_or_empty(path).decode()
    end = "\r\n" if "\r\n" in before else "\n"
    if table := re.search(r"(?m)^[ \t]*\[[ \t]*dataset[ \t]*\][^\r\n]*", before):
        after = f"{before[: table.end()]}{end}{line}{before[table.end() :]}"
    else:
        after = f"{before}{end if before else ''}[dataset]{end}{line}{end}"
    settings = tomllib.loads(before)
    settings["dataset"] = {**settings.get("dataset", {}), "track_words": words}
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(after) == settings:
            _replace_kept_mode(path, after.encode())
            if words:
                open_trust(runtime).grant(top, risky_settings(repository_settings(top)), rows=True)
            return [f"{path}: {line}"]
    raise Misconfigured(f"no place for a setting: {path}", hint=f"add by hand: dataset.{line}")


def _add_agent_instructions(path: Path) -> list[str]:
    before = _read_or_empty(path)
    if BEGIN.encode() in before:
        return []
    gap = b"\n" if path.exists() else b""  # `_remove_instructions` takes it out again
    _replace_kept_mode(path, before + gap + SECTION.encode())
    return [f"{path}: a section on training rows"]


def _remove_instructions(path: Path) -> None:
    """Remove our section with the empty line before it, and the file if it was made for it."""
    before, _, rest = path.read_bytes().partition(BEGIN.encode())
    after = re.sub(rb"\A\r?\n", b"", rest.partition(END.encode())[2])
    if before or after:
        _replace_kept_mode(path, re.sub(rb"\r?\n\Z", b"", before) + after)
    else:
        shared_files.remove_with_dir(path.resolve())


def _replace_kept_mode(path: Path, data: bytes) -> None:
    """Write a file that the project shares; its mode stays, and a link to another file."""
    path = path.resolve()  # many projects link `CLAUDE.md` to AGENTS.md
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    files.replace_file(path, data, mode=mode)


class InitRequest(Struct, frozen=True):
    """The requested scope, `user` or `project`, the current directory and the agent."""

    scope: str
    cwd: Path
    agent: str = DEFAULT_AGENT


def plan_change(
    runtime: Runtime, location: InitRequest, options: install.InstallOptions
) -> install.SettingsChange:
    """Plan the registration of the hook on this machine."""
    if runtime.config["hook.inline"].value is True:
        options = replace(options, inline=True)
    versions, python = list_client_versions(runtime), Path(sys.executable)
    if location.agent != DEFAULT_AGENT:
        events = _hook_settings(location.agent).events_for(())
        options = install.InstallOptions(0, options.inline, agent=location.agent, events=events)
    return install.plan_install(settings_path(runtime, location), versions, python, options)


def note_init(runtime: Runtime, location: InitRequest) -> None:
    """List where `init` writes, so that `uninstall` finds it from elsewhere and without sessions."""
    is_project, home = location.scope == "project", Path(runtime.data_dir)
    if not is_project and not runtime.environ.get(CONFIG_DIR):
        return
    folder = location.cwd if is_project else settings_path(runtime, location).parent
    files.ensure_dir(home)
    with files.os_errors_as_unavailable(home):
        name = writer.PROJECTS if is_project else writer.DIRECTORIES
        writer.note_directory(str(home), str(folder), name)


def plan_removal(runtime: Runtime, location: InitRequest) -> install.SettingsChange:
    """Plan the removal of the hook from this machine."""
    return install.plan_removal(settings_path(runtime, location))


def change_guard(runtime: Runtime, location: InitRequest, *, remove: bool) -> list[Path]:
    """Install or remove the git guard of the project here; return the changed hooks."""
    if not _is_repository(location):
        return []
    if remove:
        return git_guard.remove_guard(guard_git(runtime, location.cwd))
    return git_guard.install_guard(guard_git(runtime, location.cwd), command=hook_command())


def hook_command() -> str:
    """Return how git calls flightlog: the program beside this Python, or the one on the path."""
    beside = Path(sys.executable).with_name("flightlog")
    return shlex.quote(str(beside)) if beside.exists() else "flightlog"


def wants_guard(runtime: Runtime, location: InitRequest, *, remove: bool) -> bool:
    """Return whether there is a guard to install, or to remove."""
    if not _is_repository(location):
        return False
    count = len(git_guard.list_guard_hooks(guard_git(runtime, location.cwd)))
    return count > 0 if remove else count < len(git_guard.HOOKS)


def _is_repository(location: InitRequest) -> bool:
    return location.scope == "project" and any(
        (folder / ".git").exists() for folder in (location.cwd, *location.cwd.parents)
    )


def settings_path(runtime: Runtime, location: InitRequest) -> Path:
    """Return the settings file: the user's, or the project's local one.

    The hook exists on this machine only, so it must not go into settings that are committed.
    """
    hooks = _hook_settings(location.agent)
    if location.scope == "project":
        settings = hooks.project_settings(location.cwd)
        return files.ensure_contained(files.find_project(location.cwd), settings)
    dirs = find_agent_dirs(runtime).get(location.agent, ())
    if not dirs:
        label = agent_label(location.agent)
        raise NotFound(f"{label} has no directory here", hint=f"run {label} once, then repeat")
    return hooks.user_settings(Path(dirs[0]))


def find_hook_settings(agent: str) -> HookSettings | None:
    """Return the settings in which an agent's hooks are registered; None if it has no hooks."""
    return find_agent(agent).hooks()


def list_init_agents(runtime: Runtime, wanted: str) -> tuple[str, ...]:
    """Return the agents that `wanted` names; "all" are those on this machine."""
    return tuple(find_agent_dirs(runtime)) if wanted == "all" else (wanted,)


def _hook_settings(agent: str) -> HookSettings:
    hooks = find_hook_settings(agent)
    assert hooks is not None, "only agents that have hooks get here"
    return hooks


def current_keep_days(runtime: Runtime, location: InitRequest) -> int:
    """Return how many days the agent keeps its transcripts now."""
    settings = settings_path(runtime, location)
    data = shared_files.read_if_exists(settings)
    if data is None or not data.strip():
        return _DEFAULT_DAYS
    days = json_editor.parse_object(data.decode("utf-8", "replace"), str(settings)).get(
        install.DAYS_KEY
    )
    return days if isinstance(days, int) else _DEFAULT_DAYS


class Leftover(Struct, frozen=True):
    """Something that `uninstall` leaves, and the command that deletes it."""

    path: str
    content: str
    command: str


class UninstallPlan(Struct, frozen=True):
    """What `uninstall` removes: hooks and status lines, git guards, sections of `CLAUDE.md`."""

    settings: tuple[install.SettingsChange, ...]
    guards: tuple[InitRequest, ...]
    instructions: tuple[Path, ...]
    leftovers: tuple[Leftover, ...]

    @property
    def is_needed(self) -> bool:
        """Return whether there is something to remove."""
        return bool(self.settings or self.guards or self.instructions)


def plan_uninstall(runtime: Runtime) -> UninstallPlan:
    """Plan to undo every `init` of this user: here, where it wrote, and where sessions ran."""
    projects = [InitRequest(scope="project", cwd=folder) for folder in _list_projects(runtime)]
    paths = [Path(config_dir) / "settings.json" for config_dir in find_known_config_dirs(runtime)]
    agents = [name for name in list_init_agents(runtime, "all") if find_hook_settings(name)]
    for agent in agents:
        hooks, dirs = _hook_settings(agent), find_agent_dirs(runtime)[agent]
        paths += [hooks.user_settings(Path(path)) for path in dirs]
    texts, memory_file = list[Path](), find_memory_file(DEFAULT_AGENT)
    for project in projects:
        with suppress(Invalid):  # a link that leads out of the project: `init` refused it, too
            paths += [settings_path(runtime, replace(project, agent=agent)) for agent in agents]
            texts.append(files.ensure_contained(project.cwd, project.cwd / memory_file))
    changes, edits = [], []
    for path in dict.fromkeys(paths):
        try:
            changes.append(install.plan_removal(path))
        except (FlightlogError, OSError) as error:  # one damaged file must not keep the others
            edits.append(_describe_edit(path, error))
    tails = {path: _read_or_empty(path).partition(BEGIN.encode())[2] for path in texts}
    whole = [path for path, tail in tails.items() if END.encode() in tail]
    endless = "a section on training rows without its end marker"
    edits += [_describe_edit(path, endless) for path in tails if tails[path] and path not in whole]
    gone = {str(copy) for change in changes for copy in change.superseded_scripts}
    stays = [one for one in _list_leftovers(runtime, paths, projects) if one.path not in gone]
    for change in changes:
        if change.kept_days:
            days = f"{install.DAYS_KEY}: {change.kept_days}"
            edits.append(_describe_edit(change.settings, days))
    return UninstallPlan(
        tuple(change for change in changes if change.is_needed),
        tuple(project for project in projects if _has_guard(runtime, project)),
        tuple(whole),
        (*edits, *stays),
    )


def _has_guard(runtime: Runtime, project: InitRequest) -> bool:
    """Return whether git runs our guard in the project; False where git finds no repository."""
    try:
        return wants_guard(runtime, project, remove=True)
    except (FlightlogError, OSError):  # such as a work tree whose repository is gone
        return False


def _read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _describe_edit(path: Path, content: FlightlogError | OSError | str) -> Leftover:
    """Return the file as something that stays, for a person to edit."""
    message = getattr(content, "message", str(content)).removesuffix(": ")
    return Leftover(str(path), message, f"edit {shlex.quote(str(path))}")


def apply_uninstall(runtime: Runtime, plan: UninstallPlan) -> list[Leftover]:
    """Carry out the plan; return what could not be removed, which does not keep the others."""
    steps: list[tuple[Path, Callable[[], object]]] = [
        *((change.settings, partial(install.apply_change, change)) for change in plan.settings),
        *((guard.cwd, partial(change_guard, runtime, guard, remove=True)) for guard in plan.guards),
        *((path, partial(_remove_instructions, path)) for path in plan.instructions),
    ]
    failed = []
    for path, remove in steps:
        try:
            remove()
        except (FlightlogError, OSError) as error:
            failed.append(_describe_edit(path, error))
    return failed


def _list_projects(runtime: Runtime) -> list[Path]:
    """Return this directory and those of `init` and all sessions, with the projects around them."""
    archive = open_archive(runtime)
    cwds = [runtime.cwd, *list_noted_dirs(runtime, writer.PROJECTS)]
    cwds += map(archive.first_cwd, archive.recordings.values())
    found = [path for path in map(Path, cwds) if path.is_absolute() and path.is_dir()]
    return list(dict.fromkeys([*found, *map(files.find_project, found)]))


def _list_leftovers(
    runtime: Runtime, settings: Sequence[Path], projects: Sequence[InitRequest]
) -> Iterator[Leftover]:
    paths = {Path(runtime.data_dir): "archived sessions, index, settings"}
    for config_dir in find_known_config_dirs(runtime):
        paths[Path(config_dir) / FOLDER] = "state of running sessions"
    for path in settings:
        paths |= dict.fromkeys(shared_files.list_backups(path), "backup of the agent's settings")
    for project in projects:
        paths |= {project.cwd / name: content for name, content in _PROJECT_DATA.items()}
    for agent, dirs in find_agent_dirs(runtime).items():
        if command := find_plugin(runtime, agent):
            yield Leftover(dirs[0], "flightlog's plugin", command)
    for project in projects:
        if _has_dataset_hooks(runtime, project.cwd):
            command = f"cd {shlex.quote(str(project.cwd))} && {_REMOVE_HOOKS}"
            yield Leftover(str(project.cwd), "hooks and scripts of the dataset", command)
    yield from _list_moved_projects(runtime)
    for path, content in paths.items():
        if path.exists():
            yield Leftover(str(path), content, f"rm -r {shlex.quote(str(path))}")
    yield Leftover(sys.prefix, "the program", _removal_command(sys.executable))


def _list_moved_projects(runtime: Runtime) -> list[Leftover]:
    noted = list_noted_dirs(runtime, writer.PROJECTS)
    gone = [folder for folder in noted if not Path(folder).is_dir()]
    return [Leftover(path, "a project that is no longer there", _REMOVE_MOVED) for path in gone]


def _has_dataset_hooks(runtime: Runtime, top: Path) -> bool:
    """Return whether `top` is a repository with something of `dataset install-hooks`."""
    if not (top / ".git").exists():
        return False
    try:
        repository = open_repository(top, trusted=is_trusted(runtime, top))
        settings = install.plan_capture_hook(top, remove=True)
        return settings.is_needed or bool(git_hooks.plan_removal(repository))
    except (FlightlogError, OSError):  # such as a work tree whose repository is gone
        return False


def _removal_command(python: str) -> str:
    if "/uv/archive-v" in python:
        return "uv cache clean flightlog"  # `uvx` runs from uv's cache
    tools = {"/uv/tools/": "uv tool", "/pipx/venvs/": "pipx", "": f"{shlex.quote(python)} -m pip"}
    return f"{next(tools[part] for part in tools if part in python)} uninstall flightlog"
