"""Settings: what they are, where each came from, and a clear word when one is wrong.

`flightlog.toml` of the user, then of the project (the nearest one upwards), then
`FLIGHTLOG_<GROUP>_<NAME>` variables; the later wins. Settings a repository may not decide by
itself are marked, and count from a project file only after `flightlog trust`, or where
`FLIGHTLOG_TRUST` allows them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.app import directories
from flightlog.model.errors import Misconfigured
from flightlog.model.runtime import ConfigValue
from flightlog.model.text import suggest_name
from flightlog.privacy.trust import FILE as TRUST_FILE
from flightlog.privacy.trust import GRANTS, RISKY, TrustStore, environment_grants, risky_settings

FILE = "flightlog.toml"
DEFAULT = "default"


class ConfigOption(Struct, frozen=True):
    """One setting there is."""

    name: str
    default: bool | int | str
    help: str


SETTINGS = (
    ConfigOption("show.timezone", "", "time zone of days and times; empty is the machine's"),
    ConfigOption("statusline.template", "", "what the status line shows, as {profile} | {model} | {context} …"),
    ConfigOption("hook.inline", False, "settle inside the hook, for machines about to vanish"),
    ConfigOption("archive.seal_after_days", 30, "compress recordings that have not changed for so long; 0 is never"),
    ConfigOption("dataset.track_words", False, "write prompts and answers, redacted, into the tracked training rows"),
    ConfigOption("dataset.push", False, "push training rows to a ref of their own after each turn"),
    ConfigOption("dataset.remote", "origin", "where training rows are pushed to and pulled from"),
    ConfigOption("dataset.local_cache", False, "also write one private file for each chat, session and action"),
    ConfigOption("dataset.default_branch", "", "where shards are compacted into base files; empty asks git"),
    ConfigOption("dataset.keep_days", 730, "how long training rows are kept"),
)


def load_settings(environ: Mapping[str, str], cwd: Path) -> dict[str, ConfigValue]:
    """Read every setting; the last word wins."""
    values = {each.name: ConfigValue(each.name, each.default, DEFAULT) for each in SETTINGS}
    for path in (user_file(environ), project_file(cwd)):
        if path is not None and path.is_file():
            said = dict(_read_file_settings(path))
            refused = frozenset() if path == user_file(environ) else _untrusted_settings(environ, path, said)
            values.update(
                (name, ConfigValue(name, value, str(path))) for name, value in said.items() if name not in refused
            )
    values.update(
        (name, ConfigValue(name, value, origin)) for name, value, origin in _read_environment_settings(environ)
    )
    return values


def user_file(environ: Mapping[str, str]) -> Path:
    """Where the user's settings are: `FLIGHTLOG_CONFIG`, else the usual place."""
    said = environ.get("FLIGHTLOG_CONFIG", "")
    return Path(said).expanduser() if said else Path(directories.config_dir(environ), FILE)


def project_file(cwd: Path) -> Path | None:
    """The nearest settings file from `cwd` upwards, no further than the repository."""
    for folder in (cwd, *cwd.parents):
        if (folder / FILE).is_file():
            return folder / FILE
        if (folder / ".git").exists():
            return None
    return None


def _untrusted_settings(environ: Mapping[str, str], path: Path, said: Mapping[str, Any]) -> frozenset[str]:
    """Return the settings of a project's file that publish or run something and that no person allowed."""
    wanted = frozenset(name for name in said if name.rpartition(".")[2] in RISKY)
    if not wanted:
        return wanted
    import tomllib  # noqa: PLC0415 - as below

    if TrustStore(Path(directories.data_dir(environ), TRUST_FILE)).is_allowed(
        path.parent, risky_settings(tomllib.loads(path.read_text("utf-8")))
    ):
        return frozenset()
    return wanted - {GRANTS[word] for word in environment_grants(environ)}


def _read_file_settings(path: Path) -> Iterator[tuple[str, bool | int | str]]:
    import tomllib  # noqa: PLC0415 - read after each turn, and most people have no settings file

    try:
        groups = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Misconfigured(f"the settings cannot be read: {error}: {path}", hint=f"correct {path}") from None
    for group, members in groups.items():
        if not isinstance(members, dict):
            raise _unknown_setting_error(group, str(path))
        for name, value in members.items():
            yield f"{group}.{name}", _validate_value(f"{group}.{name}", value, str(path))


def _read_environment_settings(environ: Mapping[str, str]) -> Iterator[tuple[str, bool | int | str, str]]:
    for each in SETTINGS:
        variable = "FLIGHTLOG_" + each.name.replace(".", "_").upper()
        said = environ.get(variable)
        if said is not None:
            yield each.name, _parse_value(each, said, variable), variable


def _parse_value(setting: ConfigOption, said: str, origin: str) -> bool | int | str:
    if isinstance(setting.default, bool):
        if said.lower() not in {"1", "0", "true", "false", "yes", "no"}:
            raise Misconfigured(f"{origin} is neither true nor false: {said[:40]!r}", hint=f"export {origin}=true")
        return said.lower() in {"1", "true", "yes"}
    if isinstance(setting.default, int):
        if not said.isdecimal():
            raise Misconfigured(f"{origin} is not a number: {said[:40]!r}", hint=f"export {origin}={setting.default}")
        return int(said)
    return said


def _validate_value(name: str, value: Any, origin: str) -> bool | int | str:
    setting = next((each for each in SETTINGS if each.name == name), None)
    if setting is None:
        raise _unknown_setting_error(name, origin)
    if type(value) is not type(setting.default):
        wanted = type(setting.default).__name__
        raise Misconfigured(f"{name} must be of type {wanted}: {origin}", hint=f"{name} = {setting.default!r}")
    assert isinstance(value, bool | int | str)
    return value


def _unknown_setting_error(name: str, origin: str) -> Misconfigured:
    hint = suggest_name(name, [each.name for each in SETTINGS])
    return Misconfigured(f"unknown setting {name[:60]!r}: {origin}", hint=hint)
