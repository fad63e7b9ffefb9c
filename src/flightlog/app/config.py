"""Settings: names, defaults, and where each value comes from.

`flightlog.toml` of the user, then of the project (the nearest one upwards), then
`FLIGHTLOG_<GROUP>_<NAME>` variables; the later wins. Settings that a repository may not decide by
itself count from a project file only after `flightlog trust`, or if `FLIGHTLOG_TRUST` allows
them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.app import runtime
from flightlog.model.errors import Misconfigured
from flightlog.model.runtime import ConfigValue
from flightlog.model.text import suggest_name
from flightlog.privacy.trust import FILE as TRUST_FILE
from flightlog.privacy.trust import GRANTS, RISKY, TrustStore, environment_grants, risky_settings

FILE = runtime.SETTINGS_FILE
DEFAULT = "default"


class ConfigOption(Struct, frozen=True):
    """One setting: name, default and help text."""

    name: str
    default: bool | int | str
    help: str


SETTINGS = (
    ConfigOption("show.timezone", "", "time zone of days and times; empty is the machine's"),
    ConfigOption(
        "statusline.template",
        "",
        "what the status line shows, as {profile} | {model} | {context} …",
    ),
    ConfigOption("hook.inline", False, "settle inside the hook, for short-lived machines"),
    ConfigOption(
        "archive.seal_after_days",
        30,
        "days without change after which recordings are compressed; 0 is never",
    ),
    ConfigOption(
        "dataset.track_words",
        False,
        "write prompts and answers, redacted, into the tracked training rows",
    ),
    ConfigOption("dataset.push", False, "push training rows to a ref of their own after each turn"),
    ConfigOption(
        "dataset.remote", "origin", "git remote that training rows are pushed to and pulled from"
    ),
    ConfigOption(
        "dataset.local_cache",
        False,
        "also write one private file for each chat, session and action",
    ),
    ConfigOption(
        "dataset.default_branch", "", "branch on which shards are compacted; empty asks git"
    ),
    ConfigOption("dataset.keep_days", 730, "days that training rows are kept"),
    ConfigOption(
        "agents.directories",
        "",
        "more directories of agents, codex=/a, gemini=/b; not from a project",
    ),
)
# A repository does not decide which files of this machine are read.
_USER_ONLY = frozenset({"agents.directories"})


def load_settings(environ: Mapping[str, str], cwd: Path) -> dict[str, ConfigValue]:
    """Return every setting; the last source wins."""
    values = {option.name: ConfigValue(option.name, option.default, DEFAULT) for option in SETTINGS}
    for path in (user_file(environ), project_file(cwd)):
        if path is not None and path.is_file():
            settings = dict(_read_file_settings(path))
            refused: frozenset[str] = frozenset()
            if path != user_file(environ):
                refused = _untrusted_settings(environ, path, settings) | _USER_ONLY
            values |= {
                name: ConfigValue(name, settings[name], str(path))
                for name in settings
                if name not in refused
            }
    return values | {value.name: value for value in _read_environment_settings(environ)}


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the user's settings file: `FLIGHTLOG_CONFIG`, or the default path."""
    return Path(runtime.settings_file(environ)).expanduser()


def project_file(cwd: Path) -> Path | None:
    """Return the nearest settings file from `cwd` upwards, within the repository."""
    for folder in (cwd, *cwd.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        if (folder / ".git").exists():
            return None
    return None


def _untrusted_settings(
    environ: Mapping[str, str], path: Path, settings: Mapping[str, Any]
) -> frozenset[str]:
    """Return the settings of a project file that publish or run something without consent."""
    risky = frozenset(name for name in settings if name.rpartition(".")[2] in RISKY)
    if not risky:
        return risky
    trust = TrustStore(Path(runtime.data_dir(environ), TRUST_FILE))
    if trust.is_allowed(path.parent, risky_settings(_parse_toml(path))):
        return frozenset()
    return risky - {GRANTS[word] for word in environment_grants(environ)}


def _parse_toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - runs after each turn, and most people have no settings file

    return tomllib.loads(path.read_text("utf-8"))


def _read_file_settings(path: Path) -> Iterator[tuple[str, bool | int | str]]:
    try:
        groups = _parse_toml(path)
    except (OSError, ValueError, RecursionError) as error:
        raise Misconfigured(f"cannot read {path}: {error}", hint=f"correct {path}") from None
    for group, members in groups.items():
        if not isinstance(members, dict):
            raise _unknown_setting_error(group, str(path))
        for name, value in members.items():
            yield f"{group}.{name}", _validate_value(f"{group}.{name}", value, str(path))


def _read_environment_settings(environ: Mapping[str, str]) -> Iterator[ConfigValue]:
    for option in SETTINGS:
        variable = "FLIGHTLOG_" + option.name.replace(".", "_").upper()
        if variable in environ:
            yield ConfigValue(
                option.name, _parse_value(option, environ[variable], variable), variable
            )


def _parse_value(setting: ConfigOption, text: str, origin: str) -> bool | int | str:
    if isinstance(setting.default, bool):
        if text.lower() not in {"1", "0", "true", "false", "yes", "no"}:
            hint = f"export {origin}=true"
            raise Misconfigured(f"{origin} is neither true nor false: {text[:40]!r}", hint=hint)
        return text.lower() in {"1", "true", "yes"}
    if isinstance(setting.default, int):
        if not text.isdecimal():
            hint = f"export {origin}={setting.default}"
            raise Misconfigured(f"{origin} is not a number: {text[:40]!r}", hint=hint)
        return int(text)
    return text


def _validate_value(name: str, value: Any, origin: str) -> bool | int | str:
    setting = next((option for option in SETTINGS if option.name == name), None)
    if setting is None:
        raise _unknown_setting_error(name, origin)
    if type(value) is not type(setting.default):
        wanted = type(setting.default).__name__
        hint = f"{name} = {setting.default!r}"
        raise Misconfigured(f"{name} must be of type {wanted}: {origin}", hint=hint)
    assert isinstance(value, bool | int | str)
    return value


def _unknown_setting_error(name: str, origin: str) -> Misconfigured:
    hint = suggest_name(name, [option.name for option in SETTINGS])
    return Misconfigured(f"unknown setting {name[:60]!r}: {origin}", hint=hint)
