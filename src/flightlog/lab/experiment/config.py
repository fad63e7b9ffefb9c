"""Parse an experiment file: tasks, arms, attempts and the outcome that decides.

Every key, with an example: `docs/reference/experiment-file.md`, `docs/how-to/run-an-experiment.md`.
Takes text and returns a value, or raises Misconfigured with the field that was probably meant.
Paths are relative to the file. A task list of another file (`- from: FILE`) is marked as foreign.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from flightlog.agents.scripted.scenario import load_scenario
from flightlog.lab.config import TOOLS, Permission, Provider, convert_config, load_mapping
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Misconfigured, NotFound
from flightlog.model.text import suggest_name

_T = TypeVar("_T")
_EXPERIMENT = ("the experiment", "tasks and arms")
CELLS_MAX = 100_000  # each is a run in a directory of its own
# Measures that every attempt has, beside its verifiers; none of them is pass or fail.
MEASURES = ("cost_usd", "tokens", "latency_s", "steps", "tool_errors")
ENGINES = ("claude_code", "scripted", "command")
_CONTAINER_KEYS = ("container", "image", "docker_image", "dockerfile", "docker", "docker_compose")
# `$NAME` and `${NAME}` of a shell, `environ["NAME"]` and `getenv("NAME")` of Python.
_VARIABLE = re.compile(
    r"\$\{?([A-Za-z_][A-Za-z0-9_]*)|(?:environ(?:\.get)?|getenv)\s*[\[(]\s*[\"'](\w+)[\"']"
)
_FUNCTION = re.compile(r"\S+\.py:\w+")  # as code, an annotation that says nothing
_HELD = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ExperimentVerifier(Struct, frozen=True, forbid_unknown_fields=True):
    """A check of the files that an attempt left: a command, or `FILE.py:FUNCTION`.

    `files` are copied into the work tree before it runs, by target path: the agent never sees them.
    """

    name: str = ""
    command: str = ""
    function: str = ""
    files: dict[str, str] = {}
    timeout_seconds: float = 300
    pass_score: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one of command and function is set."""
        if bool(self.command) == bool(self.function):
            raise ValueError("a verifier is one of command, function")
        if self.function and ":" not in self.function:
            raise ValueError("a function is written FILE.py:FUNCTION")
        if not self.timeout_seconds > 0:  # not a number, too
            raise ValueError("timeout_seconds is above 0")


class ExperimentTask(Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent is asked to do, where, and how the result is checked."""

    id: str
    prompt: str
    repo: str = ""
    commit: str = "HEAD"
    directory: str = ""
    setup: str | tuple[str, ...] = ()
    verifiers: tuple[ExperimentVerifier, ...] = ()
    timeout_seconds: float | None = None
    setup_timeout_seconds: float = 600
    max_turns: int = 50
    env: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a task without a place to work, or with an unusable name."""
        if not is_safe(self.id) or "." in self.id:
            raise ValueError(f"the id of a task is letters, digits, '_' and '-': {self.id[:60]!r}")
        if bool(self.repo) == bool(self.directory):
            raise ValueError(f"task {self.id} needs one of repo, directory")
        if "\0" in "".join((self.prompt, self.repo, self.commit, *self.setup_commands)):
            raise ValueError(f"task {self.id} has a NUL character")
        if not self.prompt.strip():
            raise ValueError(f"task {self.id} needs a prompt")
        limits = (self.setup_timeout_seconds, self.timeout_seconds)
        if not all(limit is None or limit > 0 for limit in limits):
            raise ValueError(f"the time limits of task {self.id} are above 0")

    @property
    def setup_commands(self) -> tuple[str, ...]:
        return (self.setup,) if isinstance(self.setup, str) else self.setup


class ExperimentArm(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to carry out every task; the first arm is the one that others are compared with."""

    name: str
    model: str
    agent: str = "claude_code"
    effort: str = ""
    system_prompt: str = ""
    claude_md: str = ""
    settings: dict[str, Any] = {}
    tools: tuple[str, ...] = TOOLS
    mcp_config: dict[str, Any] = {}
    env: dict[str, str] = {}
    args: tuple[str, ...] = ()
    provider: Provider = "anthropic"
    base_url: str = ""
    permission_mode: Permission = "bypassPermissions"
    command: tuple[str, ...] = ()
    scenario: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown agent or an unusable name."""
        if not is_safe(self.name) or "." in self.name:
            raise ValueError(f"an arm is letters, digits, '_' and '-': {self.name[:60]!r}")
        if self.engine not in ENGINES:
            raise ValueError(f"arm {self.name}: agent is one of: {', '.join(ENGINES)}")

    @property
    def engine(self) -> str:
        return self.agent.replace("-", "_")


class Cell(NamedTuple):
    """One attempt at one task with one arm."""

    task: str
    arm: str
    attempt: int


class ExperimentConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole experiment, with every path absolute."""

    tasks: tuple[ExperimentTask, ...]
    arms: tuple[ExperimentArm, ...]
    name: str = ""
    hypothesis: str = ""
    attempts: int = 1
    primary: str = ""
    compare: Literal["first", "all"] = "first"
    max_budget_usd: float | None = None
    max_parallel: int = 4
    variables: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for names used twice, an unknown primary outcome or a wrong number."""
        tasks, arms = [task.id for task in self.tasks], [arm.name for arm in self.arms]
        for what, names in (("task", tasks), ("arm", arms)):
            if not names:
                raise ValueError(f"an experiment needs at least one {what}")
            _require_unique(what, names)
        for task in self.tasks:
            _require_unique("verifier", [*verifier_names(task), *MEASURES])
        if len(self.tasks) * len(self.arms) * self.attempts > CELLS_MAX:
            raise ValueError(f"an experiment has at most {CELLS_MAX:,} attempts in all")
        if self.attempts < 1 or self.max_parallel < 1:
            raise ValueError("attempts and max_parallel are at least 1")
        if self.max_budget_usd is not None and not self.max_budget_usd > 0:  # not a number, too
            raise ValueError("max_budget_usd is above 0")
        if self.name and not is_safe(self.name):
            raise ValueError("name is letters, digits, '.', '_' and '-'")
        if self.primary and self.primary not in self.outcome_names:
            raise ValueError(f"primary is one of: {', '.join(self.outcome_names)}")

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The verifiers of all tasks, then the measures."""
        named = (name for task in self.tasks for name in verifier_names(task))
        return (*dict.fromkeys(named), *MEASURES)

    @property
    def primary_outcome(self) -> str:
        """The declared outcome, else the first verifier, else the cost."""
        return self.primary or self.outcome_names[0]

    def cells(self) -> list[Cell]:
        """Return every cell in the order in which it runs: an early stop leaves balanced arms."""
        numbers = range(1, self.attempts + 1)
        return [
            Cell(task.id, arm.name, n) for n in numbers for task in self.tasks for arm in self.arms
        ]

    @property
    def pass_outcome(self) -> str:
        """The verifier that says whether an attempt passed; "" without one."""
        verifiers = [name for name in self.outcome_names if name not in MEASURES]
        return self.primary if self.primary in verifiers else (*verifiers, "")[0]

    @property
    def arm_pairs(self) -> list[tuple[ExperimentArm, ExperimentArm]]:
        """The pairs that are compared: each arm with the first, or every pair."""
        bases = self.arms if self.compare == "all" else self.arms[:1]
        return [
            (base, other) for number, base in enumerate(bases) for other in self.arms[number + 1 :]
        ]


def _require_unique(what: str, names: Sequence[str]) -> None:
    if twice := next((name for name in dict.fromkeys(names) if names.count(name) > 1), ""):
        raise ValueError(f"two of the {what}s are called {twice}")


def verifier_names(task: ExperimentTask) -> list[str]:
    return [
        verifier.name or f"verifier {number}" for number, verifier in enumerate(task.verifiers, 1)
    ]


def parse_experiment(text: str, folder: Path, default_name: str) -> ExperimentConfig:
    """Parse an experiment file that is in `folder`; other files that it names are read."""
    data = load_mapping(text, *_EXPERIMENT)
    tasks: list[Any] = []
    for entry in _list_field(data, "tasks"):
        if isinstance(entry, dict) and "from" in entry:
            tasks += _read_tasks(folder, entry)
        else:
            tasks.append(_resolve_task(entry, folder))
    arms = [_resolve_arm(arm, folder) for arm in _list_field(data, "arms")]
    return convert_to(
        {"name": default_name} | data | {"tasks": tasks, "arms": arms}, ExperimentConfig
    )


def read_foreign_tasks(path: Path) -> list[ExperimentTask]:
    """Return the tasks of a task file, with every path absolute."""
    tasks = _read_tasks(path.parent, {"from": path.name})
    return [convert_to(task, ExperimentTask) for task in tasks]


def list_variables(*texts: str) -> list[str]:
    """Return the environment variables that commands and Python code name."""
    found = (match[1] or match[2] for text in texts for match in _VARIABLE.finditer(text))
    return sorted(dict.fromkeys(found))


def resolve_references(
    values: Mapping[str, str], listed: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return `values` with `${NAME}` replaced; raise Misconfigured for a variable not listed."""

    def replace_one(match: re.Match[str]) -> str:
        if match[1] not in listed:
            hint = f"if it may be used, list it in the experiment file: variables: [{match[1]}]"
            raise Misconfigured(f"an environment variable is not listed: {match[1]}", hint=hint)
        return environ.get(match[1], "")

    return {name: _HELD.sub(replace_one, value) for name, value in values.items()}


def arm_differences(arms: Sequence[ExperimentArm]) -> dict[str, list[Any]]:
    """Return the settings in which arms differ, each with its value for every arm, or None.

    A setting inside a mapping has a name with dots: `settings.env.LANG`.
    """
    listed = [msgspec.to_builtins(arm) | {"name": "", "agent": arm.engine} for arm in arms]
    rows = [dict(_iter_settings("", row)) for row in listed]
    keys = dict.fromkeys(key for row in rows for key in row)
    values = {key: [row.get(key) for row in rows] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _iter_settings(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _iter_settings(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _read_tasks(folder: Path, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    path = (folder / str(entry["from"])).resolve()
    if set(entry) != {"from"}:
        raise Misconfigured("a task list of another file has only `from`", hint="- from: FILE")
    data = load_mapping(read_text(path, "task file", "name a YAML file with tasks"), *_EXPERIMENT)
    tasks = [_resolve_task(task, path.parent) for task in _list_field(data, "tasks")]
    return [task | {"source": str(path)} for task in tasks]


def _resolve_task(data: Any, folder: Path) -> dict[str, Any]:
    """Return a task with absolute paths; raise Misconfigured if it names a container."""
    if not isinstance(data, dict):
        hint = "it needs id, prompt, and repo or directory"
        raise Misconfigured("a task is a mapping", hint=hint)
    if named := next((key for key in _CONTAINER_KEYS if key in data), ""):
        raise Misconfigured(
            f"task {str(data.get('id', '?'))[:60]} names a container (`{named}`), and flightlog starts none: "
            "agents run in a directory of this machine, and a result from another "
            "environment would not be the task's",
            hint="prepare the directory with `setup`, or run the task with Harbor and import the result: "
            "flightlog lab collect TRAJECTORY",
        )
    task: dict[str, Any] = dict(data) | {
        key: _absolute_path(folder, data[key]) for key in ("repo", "directory") if data.get(key)
    }
    task["verifiers"] = [
        _resolve_verifier(verifier, folder) for verifier in _list_field(data, "verifiers")
    ]
    return task


def _resolve_verifier(data: Any, folder: Path) -> Any:
    if isinstance(data, str):
        return {"command": data}
    if not isinstance(data, dict):
        return data
    verifier = dict(data)
    if isinstance(code := verifier.pop("python", None), str):  # code, as in a run's configuration
        is_function = _FUNCTION.fullmatch(code)
        verifier |= (
            {"function": code} if is_function else {"command": f"python3 -c {shlex.quote(code)}"}
        )
    if isinstance(function := verifier.get("function"), str):
        verifier["function"] = str(folder / function)
    files = data.get("files") or {}
    if isinstance(files, list):
        files = {Path(str(name)).name: name for name in files}
    if isinstance(files, dict):
        verifier["files"] = {
            str(target): str((folder / str(name)).resolve()) for target, name in files.items()
        }
    return verifier


def _resolve_arm(data: Any, folder: Path) -> Any:
    if not isinstance(data, dict):
        return data
    arm = dict(data)
    if isinstance(arm.get("scenario"), str):
        arm["scenario"] = msgspec.to_builtins(load_scenario(folder / arm["scenario"]))
    for key in ("claude_md", "system_prompt"):
        if str(name := arm.get(key, "")).startswith("@"):
            arm[key] = read_text(folder / str(name)[1:], "file", "write @ before its name")
    return arm


def read_text(path: Path, what: str, hint: str) -> str:
    """Return the text of a file; raise NotFound with a hint, calling it `what`, if there is none."""
    try:
        return path.read_text("utf-8", "replace")
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"no such {what}: {path}", hint=hint) from None


def _absolute_path(folder: Path, written: Any) -> str:
    text = str(written).removeprefix("file://")
    is_address = "://" in text or re.match(r"[\w.-]+@[\w.-]+:", text) is not None
    return text if is_address else str((folder / Path(text).expanduser()).resolve())


def _list_field(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name) or []
    if not isinstance(value, list):
        raise Misconfigured(f"`{name}` is not a list", hint=f"write {name} as a list")
    return value


def convert_to(data: Any, kind: type[_T]) -> _T:
    """Return `data` as a `kind`; raise Misconfigured with the field that was probably meant."""
    return convert_config(data, kind, "the experiment", _field_hint)


def _field_hint(message: str) -> str:
    unknown = re.search(r"unknown field `(.+?)`", message)
    if " field `" not in message:
        return "correct it in the file"
    kinds = {"verifiers": ExperimentVerifier, "tasks": ExperimentTask, "arms": ExperimentArm}
    kind = next((kinds[key] for key in kinds if key in message), ExperimentConfig)
    fields = [name for name in kind.__struct_fields__ if name != "source"]  # of flightlog itself
    listed = f"fields: {', '.join(fields)}"
    return suggest_name(unknown[1], fields, listed) if unknown else listed
