"""Where things are on this machine, as plain text: a usage report does not wait for pathlib."""

from collections.abc import Mapping

from flightlog.app.hook.writing import find_data_dir, find_own_dir
from flightlog.sources.claude_code.discover import absolute_path, normalize_path


def data_dir(environ: Mapping[str, str]) -> str:
    """Return flightlog's own data directory, as the hook finds it; a wrong `FLIGHTLOG_HOME` is an error here."""
    given = environ.get("FLIGHTLOG_HOME", "")
    return absolute_path("FLIGHTLOG_HOME", given) if given else normalize_path(find_data_dir(dict(environ)))


def config_dir(environ: Mapping[str, str]) -> str:
    """Return where a person's own settings of flightlog are."""
    return normalize_path(find_own_dir(environ.get("XDG_CONFIG_HOME", ""), "~/.config"))
