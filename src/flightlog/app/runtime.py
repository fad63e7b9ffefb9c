"""Runtime of this machine: the only reader of environment, home, clock and config files."""

import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.agents import REGISTRY, SAMPLES
from flightlog.agents.claude_code.files import absolute_path, normalize_path
from flightlog.app.jobs import LOCAL, make_executors
from flightlog.hooks.writer import find_data_dir, find_own_dir
from flightlog.model.runtime import Clock, ConfigValue, Runtime
from flightlog.store.files import replace_file

if TYPE_CHECKING:
    from flightlog.usage.pipeline import UsagePipeline

SETTINGS_FILE = "flightlog.toml"


def choose_samples() -> None:
    """Read the sample recordings of the package for the rest of this process.

    What is computed from them is stored in a cache directory, not with the user's own data.
    """
    cache = find_own_dir(os.environ.get("XDG_CACHE_HOME", ""), "~/.cache")
    os.environ[REGISTRY[0].variable] = str(SAMPLES)  # they are sessions of the first agent
    os.environ["FLIGHTLOG_HOME"] = f"{cache}/samples"


def data_dir(environ: Mapping[str, str]) -> str:
    """Return flightlog's data directory, as the hook finds it; refuse a bad `FLIGHTLOG_HOME`."""
    configured = environ.get("FLIGHTLOG_HOME", "")
    if configured:
        return absolute_path("FLIGHTLOG_HOME", configured)
    return normalize_path(find_data_dir(dict(environ)))


def config_dir(environ: Mapping[str, str]) -> str:
    """Return the directory of the user's flightlog settings."""
    return normalize_path(find_own_dir(environ.get("XDG_CONFIG_HOME", ""), "~/.config"))


def settings_file(environ: Mapping[str, str]) -> str:
    """Return the path of the user's settings file."""
    return environ.get("FLIGHTLOG_CONFIG", "") or f"{config_dir(environ)}/{SETTINGS_FILE}"


def open_runtime(environ: Mapping[str, str] | None = None, *, on: str = LOCAL) -> Runtime:
    """Return this machine's runtime, with `environ` in place of its own; jobs run at `on`."""
    environ = dict(os.environ if environ is None else environ)
    return Runtime(
        environ=environ,
        home=environ.get("HOME") or os.path.expanduser("~"),  # noqa: PTH111 - directories are plain text
        data_dir=data_dir(environ),
        cwd=_cwd(environ),
        clock=Clock(lambda: time.time_ns() // 1_000_000, time.monotonic, time.sleep),
        zone=local_zone(),
        new_id=_new_id,
        read_config=lambda folder: _read_config(environ, folder),
        notify=_notify,
        jobs=make_executors(on),
        settings_file=os.path.expanduser(settings_file(environ)),  # noqa: PTH111 - as above
    )


def open_usage() -> "UsagePipeline":
    """Return the usage pipeline over the recordings of this machine."""
    from flightlog.agents.recordings import (  # noqa: PLC0415 - most commands do not need it
        find_agent_dirs,
        index_path,
        list_recorded_files,
    )
    from flightlog.usage.pipeline import UsagePipeline  # noqa: PLC0415 - as above

    runtime = open_runtime()
    dirs = find_agent_dirs(runtime)
    listing = list_recorded_files(dirs, runtime.data_dir)
    return UsagePipeline(listing.files, index_path(runtime, dirs), len(listing.damage))


def _notify(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _cwd(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as above
    except FileNotFoundError:  # the directory was deleted; most commands do not need it
        return environ.get("PWD", "/")


def _new_id() -> str:
    import uuid  # noqa: PLC0415 - its import detects the platform, and most commands need no id

    return str(uuid.uuid4())


def _read_config(environ: Mapping[str, str], folder: str) -> dict[str, ConfigValue]:
    from flightlog.app.config import load_settings  # noqa: PLC0415 - a usage report reads no settings

    return load_settings(environ, Path(folder))


def local_zone() -> tzinfo:
    """Return this machine's time zone."""
    return _LocalZone()


class _LocalZone(tzinfo):
    """The machine's zone with daylight saving; today's offset is wrong half of the year."""

    def utcoffset(self, time: datetime | None) -> timedelta | None:
        return _to_local_time(time).utcoffset()

    def dst(self, time: datetime | None) -> timedelta | None:
        return _to_local_time(time).dst()

    def tzname(self, time: datetime | None) -> str | None:
        return _to_local_time(time).tzname()

    def fromutc(self, time: datetime) -> datetime:
        return time.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)

    def __str__(self) -> str:
        return str(self.tzname(None))


def _to_local_time(time: datetime | None) -> datetime:
    return time.replace(tzinfo=None).astimezone() if time else datetime.now(tz=UTC).astimezone()


class IdleTimer:
    """Waits between polls, and ends after a time without news."""

    def __init__(self, idle_s: float, look_s: float = 0.2) -> None:
        """Poll every `look_s` seconds; end after `idle_s` without news, or never if 0."""
        self._idle_s = idle_s
        self._poll_s = look_s
        self._last = time.monotonic()

    def reset_idle(self) -> None:
        """Restart the idle time."""
        self._last = time.monotonic()

    def pause(self) -> bool:
        """Wait for the next poll; return False if the idle time is over."""
        if self._idle_s and time.monotonic() - self._last > self._idle_s:
            return False
        time.sleep(self._poll_s)
        return True


def write_export(path: Path, body: str) -> None:
    """Write a file that a person requested."""
    replace_file(path, body.encode(), durable=False)
