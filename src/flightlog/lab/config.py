"""Parse and check a run's configuration (docs/reference/run-config.md) before anything starts.

Takes text and returns a value, or raises Misconfigured with the field that was probably meant.
Reads no file. `dump_run_config` writes the value back with every default, so the run's own copy
keeps its meaning when defaults change.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from yaml import YAMLError

from flightlog.agents.scripted.scenario import Scenario
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Misconfigured, read_yaml
from flightlog.model.text import describe_type_error, suggest_name
from flightlog.privacy.scanner import secret_counts

_T = TypeVar("_T")
TOOLS = ("Read", "Grep", "Glob", "Bash", "Write", "Edit")
# Control characters, separators and surrogates: YAML writers fold, escape or lose them.
_ODD = re.compile(r"[^\x20-\x7e\xa0-\u1fff\u2030-\ud7ff]")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Not `MAX_OUTPUT_TOKENS` and `GIT_AUTHOR_NAME`.
_SECRET_NAME = re.compile(
    r"KEY|TOKEN(?!S)|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH(?!OR(?!IZ))", re.IGNORECASE
)
_PATH_NAME = re.compile(r"(?:FILE|PATH|DIR)$", re.IGNORECASE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_RUN = ("the run configuration", "model, work_dir and sessions")
Engine = Literal["claude_code", "command", "scripted"]
Mode = Literal["isolated", "chained", "forked"]
Provider = Literal["anthropic", "openrouter", "bedrock", "vertex"]
Permission = Literal["bypassPermissions", "acceptEdits", "default", "dontAsk", "plan", "auto"]


class SessionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One session: its prompt, and the settings that differ from the run's."""

    session_index: int
    prompt: str
    system_prompt: str = ""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    fork_from: int | None = None
    count: int = 1

    def __post_init__(self) -> None:
        _require_at_least("session_index", self.session_index, 1)
        _require_at_least("count", self.count, 1)
        _require_at_least("max_turns", self.max_turns, 1)
        _require_positive("max_budget_usd", self.max_budget_usd)
        if not self.prompt.strip():
            raise ValueError("a session needs a prompt")
        if self.fork_from is not None and not 1 <= self.fork_from < self.session_index:
            raise ValueError(
                f"fork_from of session {self.session_index} names a session before it, from 1"
            )


class AgentConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A subagent the agent may call."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: Literal["sonnet", "opus", "haiku", "inherit"] | None = None


class CommandConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A shell command before or after the sessions; with `check` its failure ends the run."""

    command: str
    cwd: str = ""
    timeout_seconds: float = 30
    check: bool = True


class VerifierConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A check of the files a session left: a shell command or Python code; exit code 0 passes."""

    command: str = ""
    python: str = ""
    name: str = ""
    timeout_seconds: float = 60

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one of command and python is set."""
        if bool(self.command) == bool(self.python):
            raise ValueError("a verifier is one of command, python")


class RunConfig(Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    work_dir: str
    sessions: tuple[SessionConfig, ...]
    run_name: str = ""
    hypothesis: str = ""
    repo_name: str = ""
    tags: tuple[str, ...] = ()
    engine: Engine = "claude_code"
    command: tuple[str, ...] = ()
    scenario: Scenario | None = None
    provider: Provider = "anthropic"
    base_url: str = ""
    session_mode: Mode = "isolated"
    system_prompt: str = ""
    allowed_tools: tuple[str, ...] = TOOLS
    permission_mode: Permission = "bypassPermissions"
    max_turns: int = 50
    max_budget_usd: float | None = None
    session_timeout_seconds: float | None = None
    max_parallel: int = 4
    memory_file: str | None = "MEMORY.md"
    memory_seed: str = "# Notes\n"
    agents: tuple[AgentConfig, ...] = ()
    env: dict[str, str] = {}
    args: tuple[str, ...] = ()
    effort: str = ""
    mcp_config: dict[str, Any] | str | None = None
    capture_subagent_trajectories: bool = True
    capture_api_requests: bool = True
    raw_dumps_max_mb: int | None = None
    track_changes: bool = True
    load_project_settings: bool = False
    in_place: bool | Literal["keep"] = False
    revert_work_dir: bool = False
    pre_run_commands: tuple[CommandConfig, ...] = ()
    post_run_commands: tuple[CommandConfig, ...] = ()
    verifiers: tuple[VerifierConfig, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for wrong session numbers or an engine without its settings."""
        if any(session.session_index != at for at, session in enumerate(self.sessions, 1)):
            raise ValueError("session_index counts from 1 without a gap, in order")
        if not self.sessions:
            raise ValueError("a run needs at least one session")
        _require_at_least("max_turns", self.max_turns, 1)
        _require_at_least("max_parallel", self.max_parallel, 1)
        _require_positive("max_budget_usd", self.max_budget_usd)
        _require_positive("session_timeout_seconds", self.session_timeout_seconds)
        if self.engine == "command" and not self.command:
            raise ValueError("engine `command` needs `command`, a list of words")
        if self.engine == "scripted" and self.scenario is None:
            raise ValueError("engine `scripted` needs a `scenario`")
        if self.in_place == "keep" and self.revert_work_dir:
            raise ValueError(
                "in_place: keep leaves the changes, revert_work_dir does not: choose one"
            )
        _require_at_least("raw_dumps_max_mb", self.raw_dumps_max_mb, 0)
        _require_references(self)
        if self.run_name and not is_safe(self.run_name):
            raise ValueError(
                "run_name is letters, digits, '.', '_' and '-', and begins with a letter or digit"
            )
        memory_file = self.memory_file or ""
        if memory_file.startswith("/") or ".." in memory_file.split("/"):
            raise ValueError("memory_file is a path inside work_dir")


_KINDS = (RunConfig, SessionConfig, AgentConfig, CommandConfig, VerifierConfig)


def parse_run_config(
    text: str,
    overrides: Mapping[str, Any] | None = None,
    scenario: Callable[[str], Scenario] | None = None,
) -> RunConfig:
    """Parse a configuration; `overrides` replace its fields, `scenario` loads a named scenario."""
    data = load_mapping(text, *_RUN) | dict(overrides or {})
    if scenario is not None and isinstance(data.get("scenario"), str):
        data["scenario"] = msgspec.to_builtins(scenario(data["scenario"]))
    return convert_config(data, RunConfig, "the run configuration", _unknown_field_hint)


def convert_config(data: Any, kind: type[_T], what: str, find_hint: Callable[[str], str]) -> _T:
    """Return `data` as a `kind`; raise Misconfigured with the hint that `find_hint` gives."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text = describe_type_error(str(error))
        raise Misconfigured(f"{what} cannot be used: {text}", hint=find_hint(text)) from error


def tags_of(text: str) -> list[Any]:
    return load_mapping(text, *_RUN).get("tags") or []


def load_mapping(text: str, what: str, needs: str) -> dict[str, Any]:
    """Return a YAML mapping that a person wrote; `what` it is and `needs` are for the errors."""
    try:
        data = read_yaml(text)
    except YAMLError as error:
        raise Misconfigured(
            f"{what} is not YAML: {error}", hint="correct the line it names"
        ) from error
    if not isinstance(data, dict):
        raise Misconfigured(f"{what} is not a mapping", hint=f"it needs {needs}")
    joined = _join_surrogates(data)
    assert isinstance(joined, dict)
    return joined


def _join_surrogates(value: Any) -> Any:
    """Join the halves of characters that JSON escapes as two, such as emoji."""
    if isinstance(value, dict):
        return {key: _join_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_join_surrogates(item) for item in value]
    if isinstance(value, str) and _SURROGATE.search(value):
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            half = ascii(_SURROGATE.search(value)[0])[1:-1]  # type: ignore[index]
            raise Misconfigured(
                f"the configuration has half a character: {half}",
                hint="write the character itself, or both halves of its escape",
            ) from None
    return value


def dump_run_config(config: RunConfig, text: str = "") -> str:
    """Return the configuration as YAML with every default written out.

    `text` is what a person wrote: its comments, order and style stay.
    """
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 120
    out = io.StringIO()
    value = _quote_odd_texts(msgspec.to_builtins(config))
    writer.dump(_fill_in(writer.load(text), value) if text else value, out)
    return out.getvalue()


def _fill_in(written: Any, value: Any) -> Any:
    """Return what a person wrote with the values that it lacks or that were replaced."""
    if isinstance(written, dict) and isinstance(value, dict):
        for name, item in value.items():
            written[name] = _fill_in(written[name], item) if name in written else item
        return written
    if isinstance(written, list) and isinstance(value, list) and len(written) == len(value):
        for at, item in enumerate(value):
            written[at] = _fill_in(written[at], item)
        return written
    return written if written == value and type(written) is not bool else value


def resolve_references(value: str, environ: Mapping[str, str]) -> str:
    """Return a value with each `${NAME}` from the environment; raise for one that is not set."""
    missing = [name for name in _REFERENCE.findall(value) if name not in environ]
    if missing:
        raise Misconfigured(f"not set in the environment: {missing[0]}", hint="export it")
    return _REFERENCE.sub(lambda match: environ[match[1]], value)


def referenced_names(*values: Any) -> tuple[str, ...]:
    """Return the variables that `${NAME}` references in texts, lists and mappings name."""
    return tuple(dict.fromkeys(_REFERENCE.findall(msgspec.json.encode(values).decode())))


def referenced_secrets(config: RunConfig, environ: Mapping[str, str]) -> list[str]:
    """Return the values of all references that hold a secret; raise if a variable is not set."""
    values = []
    for name, text in _list_settings(config):
        resolve_references(text, environ)
        names = referenced_names(text)
        values += [environ[key] for key in names if _SECRET_NAME.search(f"{name} {key}")]
    return values


def _list_settings(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield the texts of `env`, `args` and `mcp_config` with the names that say what they are."""
    for name, value in config.env.items():
        yield f"env.{name}", value
    option = ""
    for word in config.args:
        is_option = word.startswith("-")
        name, has_value, value = word.partition("=") if is_option else (option, "=", word)
        yield f"args: {name}", value if has_value else ""
        option = word if word.startswith("-") and not has_value else ""
    servers = config.mcp_config
    if isinstance(servers, str) and servers.lstrip().startswith("{"):
        with suppress(msgspec.DecodeError):
            servers = msgspec.json.decode(servers)
    yield from _list_texts("mcp_config", servers)


def _list_texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _list_texts(f"{name.partition('.')[0]}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(name, item)
    elif isinstance(value, str):
        yield name, value


def _quote_odd_texts(value: Any) -> Any:
    """Mark texts with characters that YAML would fold or lose, so they are written as escapes."""
    if isinstance(value, dict):
        return {key: _quote_odd_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_quote_odd_texts(item) for item in value]
    if isinstance(value, str) and _ODD.search(value):
        return DoubleQuotedScalarString(value)
    return value


def _unknown_field_hint(message: str) -> str:
    unknown = re.search(r"unknown field `(.+?)`", message)
    if unknown is None:
        return f"fields: {', '.join(RunConfig.__struct_fields__)}"
    section = re.search(
        r"`\$\.(sessions|agents|verifiers|pre_run_commands|post_run_commands)", message
    )
    sections = {"sessions": SessionConfig, "agents": AgentConfig, "verifiers": VerifierConfig}
    kind = RunConfig if section is None else sections.get(section[1], CommandConfig)
    fields = sorted({name for struct in _KINDS for name in struct.__struct_fields__})
    otherwise = suggest_name(unknown[1], fields, suggest_name("", kind.__struct_fields__))
    return suggest_name(unknown[1], kind.__struct_fields__, otherwise)


def _require_references(config: RunConfig) -> None:
    """Raise ValueError for a secret: the run's copy of the configuration would hold it."""
    for name, value in _list_settings(config):
        named = _SECRET_NAME.search(name) and not _PATH_NAME.search(name)
        line = msgspec.json.encode([f"{name.rpartition(' ')[2]} {value}", value]) + b"\n"
        if value and ((named and not _REFERENCE.search(value)) or secret_counts([line])):
            variable = re.sub(r"\W+", "_", re.split(r"[. ]-*", name)[-1]).upper()
            raise ValueError(f"{name} is a secret: write ${{{variable}}} and export it")


def _require_at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name} is at least {least}")


def _require_positive(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{name} is above 0")
