"""Prepare the directory of a task, and turn a task and an arm into a run's configuration.

The directory holds the history up to the task's commit and nothing later, no remote, and what the
setup commands made. Setup and verifiers get a fixed part of the environment, the variables that the
person listed, and nothing else. A verifier runs in a process of its own, in the files that the
attempt left; its hidden files are copied there first.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flightlog.agents import find_memory_file
from flightlog.agents.claude_code import PROJECT_SETTINGS
from flightlog.lab.config import CommandConfig, RunConfig, VerifierConfig
from flightlog.lab.experiment.config import (
    ExperimentConfig,
    ExperimentTask,
    ExperimentVerifier,
    convert_to,
    list_variables,
    read_foreign_tasks,
    resolve_references,
    verifier_names,
)
from flightlog.lab.replay.certificate import OVERLAY
from flightlog.lab.runner.commands import run_with_timeout
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import one_line
from flightlog.privacy.trust import ConsentTarget, consent_needed, open_trust
from flightlog.store.directories import copy_tree, create_dir, remove_tree
from flightlog.store.files import create_file, ensure_dir, replace_file, resolve_inside
from flightlog.store.git.command import PersonGit, check_not_option

TASKS = "tasks"
FILES = "files"
ARMS = "arms"
_OUTPUT_SHOWN = 400  # characters of a failed setup command, in its error
# What programs need to start at all; anything else may be a secret, and has to be listed.
_PLAIN_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL")
# Settings of a run that carry what an arm says, under the run's own names.
_RUN_SETTINGS = ("effort", "args", "mcp_config")
# Not through links of the task's directory: they may lead to files of the person.
_OVERLAY_COMMAND = '(cd {0} && find .) | while read -r name; do [ ! -L "$name" ] || rm "$name"; done; cp -R {0}/. .'
# Run by Python in isolated mode (-I), so a module of the work tree cannot replace a library's. CHECK
# becomes what is checked, as JSON.
_VERIFIER = r"""
import json, os, re, shutil, subprocess, sys, tempfile
check = json.loads(CHECK)
work = os.environ["HARNESS_WORK_DIR"]
top = os.path.realpath(work)
def place(source, path):  # a link that the attempt left would lead the check elsewhere
    parent = os.path.realpath(os.path.dirname(path))
    if os.path.commonpath([top, parent]) != top:
        sys.exit(path + " leads out of the work tree")
    if os.path.lexists(path):
        os.remove(path)
    shutil.copyfile(source, path)
    shutil.copymode(source, path)
for target, source in check["files"].items():
    path = os.path.join(work, target)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(source):
        shutil.copytree(source, path, dirs_exist_ok=True, copy_function=place)
    else:
        place(source, path)
kept = {name: os.environ[name] for name in check["variables"] if name in os.environ}
def fill(match):
    return os.environ.get(match[1], "") if match[1] in check["variables"] else ""
kept |= {name: re.sub(r"\$\{(\w+)\}", fill, value) for name, value in check["env"].items()}
kept["HARNESS_WORK_DIR"] = work
if check["command"]:
    sys.exit(subprocess.run(["sh", "-c", check["command"]], cwd=work, env=kept).returncode)
answer = tempfile.TemporaryFile("w+")
if os.fork() == 0:  # code of the task may end its process, which is not a result
    os.environ.clear()
    os.environ.update(kept)
    os.chdir(work)
    path, name = check["function"].rsplit(":", 1)
    space = {"__name__": "verifier", "__file__": path}
    exec(compile(open(path, encoding="utf-8").read(), path, "exec"), space)
    result = space[name](work)
    result = result if isinstance(result, dict) else {"score": float(result)}
    passed = bool(result.get("passed", result.get("score", 0) >= check["pass_score"]))
    answer.write(json.dumps([passed, result]))
    answer.flush()
    sys.exit()
os.wait()
answer.seek(0)
passed, result = json.loads(answer.read() or "[false, {}]")
print("\n" + json.dumps(result))
sys.exit(0 if passed else 1)
"""


def task_dir(experiment: Path, task: ExperimentTask) -> Path:
    """Return the directory of a task; its last part is the name that the agent sees."""
    name = Path((task.directory or task.repo).rstrip("/")).name.removesuffix(".git")
    return experiment / TASKS / task.id / (name if name.strip(".") else "work")


def prepare_task(
    runtime: Runtime, experiment: Path, config: ExperimentConfig, task: ExperimentTask
) -> None:
    """Make the directory of a task and run its setup, once; a killed preparation begins again."""
    folder = task_dir(experiment, task)
    done = experiment / TASKS / f"{task.id}.done"
    if done.exists():
        return
    commit = check_task(task)
    remove_tree(folder.parent)
    ensure_dir(folder.parent)
    source = task.directory or task.repo
    _check_out(source, commit, folder) if commit else copy_tree(Path(source), folder)
    environ = _task_environment(runtime.environ, config, task)
    for command in task.setup_commands:
        result = run_with_timeout(
            ["sh", "-c", command], folder, environ, task.setup_timeout_seconds
        )
        if result.exit_code:
            output = result.output.strip()[-_OUTPUT_SHOWN:]
            raise Unavailable(
                f"the setup of task {task.id} failed with {result.exit_code}: {output or command}",
                hint="correct the command, then run the file again",
            )
    create_file(done, b"")


def check_task(task: ExperimentTask) -> str:
    """Return the commit of a task, "" for a directory; raise if something that it names is missing."""
    check_not_option(task.repo), check_not_option(task.commit)
    for verifier in task.verifiers:
        _check_verifier(verifier)
    path, hint = Path(task.directory or task.repo), f"correct it in task {task.id}"
    if path.is_dir():
        if task.directory or not ((path / ".git").exists() or (path / "HEAD").is_file()):
            return ""
        word = f"{task.commit}^{{commit}}"
        found = PersonGit(path).run_git("rev-parse", "--verify", "--quiet", word)
        if found.exit_code:
            raise NotFound(f"{task.repo} has no commit {task.commit[:60]}", hint=hint)
        return found.stdout.decode().strip()
    if path.is_absolute():
        raise NotFound(
            f"no such {'directory' if task.directory else 'repository'}: {path}", hint=hint
        )
    return task.commit  # an address is asked when the task is prepared


def _check_out(repo: str, commit: str, folder: Path) -> None:
    """Fetch the commit and what is before it: a later commit may hold the answer."""
    create_dir(folder)
    git = PersonGit(folder)
    git.run_git("init", "--quiet", "--initial-branch=main").require_success()
    fetched = git.run_git("fetch", "--quiet", "--no-tags", repo, commit)
    if fetched.exit_code:
        reason = one_line(fetched.stderr.strip(), 300)
        hint = "an address needs the whole hash of a commit, or a branch or tag"
        raise Unavailable(f"{repo} {commit} cannot be fetched: {reason}", hint=hint)
    git.run_git("reset", "--quiet", "--hard", "FETCH_HEAD").require_success()


def _task_environment(
    environ: Mapping[str, str], config: ExperimentConfig, task: ExperimentTask
) -> dict[str, str]:
    names = (*_PLAIN_VARIABLES, *config.variables)
    inherited = {name: environ[name] for name in names if name in environ}
    return inherited | resolve_references(task.env, config.variables, environ)


def freeze_files(experiment: Path, config: ExperimentConfig) -> ExperimentConfig:
    """Copy hidden files, functions and overlays into the experiment; return where they are now."""
    tasks = []
    for task in config.tasks:
        folder, numbered = experiment / FILES / task.id, enumerate(task.verifiers, 1)
        frozen = (_freeze_verifier(folder / str(number), item) for number, item in numbered)
        tasks.append(replace(task, verifiers=tuple(frozen)))
    for arm in config.arms:
        overlay = {find_memory_file(DEFAULT_AGENT): arm.claude_md} if arm.claude_md else {}
        overlay |= {PROJECT_SETTINGS: json.dumps(arm.settings)} if arm.settings else {}
        for name, text in overlay.items():
            replace_file(resolve_inside(experiment / ARMS / arm.name, name), text.encode())
    return replace(config, tasks=tuple(tasks))


def _freeze_verifier(folder: Path, verifier: ExperimentVerifier) -> ExperimentVerifier:
    copies = {
        target: str(_copy_file(Path(source), folder / str(number)))
        for number, (target, source) in enumerate(verifier.files.items(), 1)
    }
    path, _, name = verifier.function.rpartition(":")
    function = f"{_copy_file(Path(path), folder / 'function.py')}:{name}" if path else ""
    return replace(verifier, files=copies, function=function)


def _check_verifier(verifier: ExperimentVerifier) -> None:
    """Raise for a missing file, and for code that cannot be compiled; nothing of it runs."""
    path, _, name = verifier.function.rpartition(":")
    for source in (*verifier.files.values(), *([path] if path else ())):
        if not Path(source).exists():
            hint = "paths are relative to the experiment file"
            raise NotFound(f"no such file: {source}", hint=hint)
    for target in verifier.files:
        if target.startswith("/") or ".." in Path(target).parts:
            raise Invalid(f"a file of a verifier is outside the work tree: {target[:80]}",
                          hint="write a path relative to the work tree")  # fmt: skip
    try:
        names = compile(Path(path).read_bytes(), path, "exec").co_names if path else (name,)
    except (SyntaxError, ValueError, IsADirectoryError) as error:
        raise Invalid(f"{path} is not Python: {error}", hint="correct the file") from error
    if name not in names:
        raise Invalid(f"{path} has no function {name[:60]}", hint="correct the verifier")


def _copy_file(source: Path, target: Path) -> Path:
    if source.is_dir():
        remove_tree(target)  # left by a process that was killed here
        copy_tree(source, target)
    else:
        ensure_dir(target.parent)
        replace_file(target, source.read_bytes(), durable=False, mode=source.stat().st_mode & 0o777)
    return target


def build_run_config(
    experiment: Path, config: ExperimentConfig, names: tuple[str, str], budget_usd: float | None
) -> RunConfig:
    """Return the configuration of one attempt at a task with an arm: the only mapping of both."""
    task = next(task for task in config.tasks if task.id == names[0])
    arm = next(arm for arm in config.arms if arm.name == names[1])
    overlay = experiment / ARMS / arm.name
    settings: dict[str, Any] = {
        "model": arm.model,
        "engine": arm.engine,
        "work_dir": str(task_dir(experiment, task)),
        "sessions": [{"session_index": 1, "prompt": task.prompt}],
        "hypothesis": config.hypothesis,
        "tags": [f"experiment:{experiment.name}", f"task:{task.id}", f"arm:{arm.name}", *task.tags],
        "system_prompt": arm.system_prompt,
        "allowed_tools": arm.tools,
        "provider": arm.provider,
        "base_url": arm.base_url,
        "permission_mode": arm.permission_mode,
        "command": arm.command,
        "scenario": arm.scenario,
        "max_turns": task.max_turns,
        "max_budget_usd": budget_usd,
        "session_timeout_seconds": task.timeout_seconds,
        "memory_file": None,
        "load_project_settings": bool(arm.claude_md or arm.settings),
        "pre_run_commands": [{"command": _OVERLAY_COMMAND.format(shlex.quote(str(overlay)))}]
        if overlay.is_dir()
        else [],
        "verifiers": [
            _run_verifier(config, task, name, verifier)
            for name, verifier in zip(verifier_names(task), task.verifiers, strict=True)
        ],
    }
    settings |= {name: value for name in _RUN_SETTINGS if (value := getattr(arm, name))}
    settings["env"] = task.env | arm.env
    return convert_to(msgspec.to_builtins(settings), RunConfig)


def undo_overlay(
    experiment: Path, folder: Path, arms: tuple[str, str]
) -> tuple[CommandConfig, ...]:
    """Return the commands that put back a task's files that the first arm replaced, not the second."""
    own, other = (
        {name for name in OVERLAY if (experiment / ARMS / arm / name).is_file()} for arm in arms
    )
    pairs = ((shlex.quote(str(folder / name)), name) for name in sorted(own - other))
    undo = "rm -f {1}; cp {0} {1} 2>/dev/null || :"
    return tuple(CommandConfig(undo.format(*pair)) for pair in pairs)


def _run_verifier(
    config: ExperimentConfig, task: ExperimentTask, name: str, verifier: ExperimentVerifier
) -> VerifierConfig:
    check = msgspec.to_builtins(verifier) | {
        "variables": [*_PLAIN_VARIABLES, "HARNESS_SESSION", *config.variables],
        "env": task.env,
    }
    code = _VERIFIER.replace("CHECK", repr(json.dumps(check)))
    return VerifierConfig(python=code, name=name, timeout_seconds=verifier.timeout_seconds)


def tasks_target(runtime: Runtime, path: Path) -> ConsentTarget:
    """Return what the tasks of another file would run, and whether exactly that is allowed."""
    effects: dict[str, Any] = {}
    for task in read_foreign_tasks(path):
        effects |= describe_task(task)
    digest = hashlib.sha256(json.dumps(effects, sort_keys=True).encode()).hexdigest()
    subject = f"tasks {digest}"
    trusted = bool(open_trust(runtime).consent_for(subject).digest)
    return ConsentTarget("tasks", str(path), subject, effects, trusted)


def describe_task(task: ExperimentTask) -> dict[str, Any]:
    """Return the commands, functions and environment variables of a task, by name."""
    shown: dict[str, Any] = {f"{task.id} works in": task.directory or f"{task.repo} {task.commit}"}
    texts = [*task.setup_commands, *task.env.values()]
    for number, command in enumerate(task.setup_commands, 1):
        shown[f"{task.id} setup {number}"] = command
    for name, verifier in zip(verifier_names(task), task.verifiers, strict=True):
        path, _, function = verifier.function.rpartition(":")
        digest, code = _read_code(Path(path)) if path else ("", "")
        shown[f"{task.id} verifier {name}"] = verifier.command or f"{path}:{function} ({digest})"
        texts += [verifier.command, code]
        for target, source in verifier.files.items():
            # Commands run what is copied in, so consent is for its content.
            digest, code = _read_code(Path(source))
            shown[f"{task.id} copies {target}"] = f"{source} ({digest})"
            texts.append(code)
    shown |= {f"{task.id} prompt": task.prompt}
    variables = list_variables(*texts)
    return shown | ({f"{task.id} variables": ", ".join(variables)} if variables else {})


def _read_code(path: Path) -> tuple[str, str]:
    """Return the digest and the text of a file, or of all files of a directory."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    parts = [
        (str(file.relative_to(path.parent)), file.read_bytes()) for file in files if file.is_file()
    ]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return digest, "\n".join(data.decode("utf-8", "replace") for _, data in parts)


def check_foreign_tasks(runtime: Runtime, tasks: Sequence[ExperimentTask]) -> None:
    """Raise ConsentNeeded for tasks of another file that the person has not allowed."""
    for source in dict.fromkeys(task.source for task in tasks if task.source):
        target = tasks_target(runtime, Path(source))
        if not target.is_trusted:
            raise consent_needed(target, f"these tasks come from another file: {source}")
