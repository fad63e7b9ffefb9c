"""Wiring of privacy: where its key and consents are, and which values are known to be secret.

Reads the environment and home so that nothing below has to.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from flightlog.model.errors import Misconfigured
from flightlog.privacy import key as keys
from flightlog.privacy.detect.known import dotenv_values, secret_values
from flightlog.privacy.redact import Redactor
from flightlog.privacy.trust import Trust

SETTINGS = "flightlog.toml"
_DOTENV = (".env", ".env.local", ".envrc")
_DOTENV_BYTES_MAX = 1 << 20


def home(environment: Mapping[str, str] | None = None) -> Path:
    """Return where flightlog keeps what is not part of any repository."""
    given = (os.environ if environment is None else environment).get("FLIGHTLOG_HOME", "")
    return Path(given).expanduser() if given else Path(platformdirs.user_data_dir("flightlog"))


def key_path() -> Path:
    """Return where the key for tags is."""
    return home() / "privacy.key"


def redactor(folder: Path | None = None) -> Redactor:
    """Return the redactor of this person, knowing the secrets of the environment and of `folder`'s `.env` files."""
    return Redactor(keys.load(key_path()), known=known_values(folder or Path.cwd()))


def known_values(folder: Path) -> frozenset[str]:
    """Return the values that are secret here whatever they look like."""
    values = secret_values(os.environ)
    for name in _DOTENV:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _DOTENV_BYTES_MAX:
            values |= dotenv_values(path.read_text(errors="replace"))
    return values


def trust() -> Trust:
    """Return the consents of this person."""
    return Trust(home() / "trust.json")


def repository_settings(folder: Path) -> dict[str, Any]:
    """Return the settings that a repository brings along."""
    path = folder / SETTINGS
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{SETTINGS} cannot be read: {error}", hint=f"correct {path}") from error
