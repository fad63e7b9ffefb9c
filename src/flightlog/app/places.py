# ruff: noqa: PTH111, PTH117 - plain text on purpose
"""Where things are on this machine, as plain text: a usage report does not wait for pathlib.

The one place that reads the environment for directories; `app.paths` says the same as paths.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from flightlog.app.hook.writing import find_data_dir
from flightlog.model.errors import Misconfigured


def home(environ: Mapping[str, str]) -> str:
    """Return flightlog's own data directory, as the hook finds it; a wrong `FLIGHTLOG_HOME` is an error here."""
    said = environ.get("FLIGHTLOG_HOME", "")
    return _absolute("FLIGHTLOG_HOME", said) if said else _plain(find_data_dir(dict(environ)))


def config_dir(environ: Mapping[str, str]) -> str:
    """Return where a person's own settings of flightlog are."""
    found = _linux_dir(environ, "XDG_CONFIG_HOME", ".config")
    return found or str(_dirs().user_config_dir("flightlog", appauthor=False))


def _linux_dir(environ: Mapping[str, str], variable: str, usual: str) -> str:
    """Return our directory on Linux as platformdirs says it, without its 15 ms of imports."""
    said = environ.get(variable, "").strip()
    if sys.platform != "linux" or (said and not os.path.isabs(said)):
        return ""
    return _plain((said or f"{_expanded('FLIGHTLOG_HOME', '~')}/{usual}") + "/flightlog")


def _dirs() -> Any:
    import platformdirs  # noqa: PLC0415 - see above

    return platformdirs


def _absolute(name: str, said: str) -> str:
    path = _expanded(name, said)
    if not os.path.isabs(path):
        raise Misconfigured(f"{name} is not an absolute path: {said}", hint=f'export {name}="$PWD/{said}"')
    return path


def _expanded(name: str, said: str) -> str:
    path = os.path.expanduser(said)
    if path.startswith("~"):
        raise Misconfigured(f"no such home directory: {said}", hint=f"export {name}=/an/absolute/path")
    return _plain(path)


def _plain(path: str) -> str:
    """Without doubled slashes and dots, as pathlib writes it; two dots may lead through a link and stay."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return ("/" if path.startswith("/") else "") + "/".join(parts) or "."
