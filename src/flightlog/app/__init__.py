"""Wiring: the only reader of environment, home directory, clock and config files."""

import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from flightlog.app import places

if TYPE_CHECKING:
    from pathlib import Path

    from flightlog.archive import Archive
    from flightlog.sources.protocol import SessionFile
    from flightlog.usage.pipeline import UsagePipeline


def open_archive() -> "Archive":
    """Open the recordings of this machine."""
    from flightlog.archive import Archive  # noqa: PLC0415 - a usage report does not wait for the decoders

    return Archive(places.claude_config_dirs(os.environ), home())


def open_usage() -> "UsagePipeline":
    """Return the usage pipeline over the recordings of this machine."""
    from flightlog.usage.pipeline import UsagePipeline  # noqa: PLC0415 - most commands do not need it

    return UsagePipeline(_files(), f"{home()}/index.db")


def _files() -> "tuple[SessionFile, ...]":
    from flightlog.sources.claude_code.kept import recorded  # noqa: PLC0415 - as above

    return recorded(places.claude_config_dirs(os.environ), home()).files


def home() -> str:
    """Return flightlog's own data directory."""
    return places.home(os.environ)


def is_trusted(folder: "Path") -> bool:
    """Return whether the person allowed what the project that holds `folder` configures (`flightlog trust`)."""
    from flightlog.app import paths  # noqa: PLC0415 - as above
    from flightlog.privacy.trust import FILE, Trust  # noqa: PLC0415 - as above

    return bool(Trust(paths.home(os.environ) / FILE).get(paths.project_of(folder)).digest)


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 1_000_000


def local_zone() -> tzinfo:
    """Return this machine's time zone."""
    return _LocalZone()


class _LocalZone(tzinfo):
    """The machine's own rules, summer time included; the offset of today is wrong half of the year."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return _here(moment).utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return _here(moment).dst()

    def tzname(self, moment: datetime | None) -> str | None:
        return _here(moment).tzname()

    def fromutc(self, moment: datetime) -> datetime:
        return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)

    def __str__(self) -> str:
        return str(self.tzname(None))


def _here(moment: datetime | None) -> datetime:
    return moment.replace(tzinfo=None).astimezone() if moment else datetime.now(tz=UTC).astimezone()


class Watch:
    """Waits between looks, and knows when there has been nothing for long enough."""

    def __init__(self, idle_s: float, look_s: float = 0.2) -> None:
        """Look every `look_s` seconds; give up after `idle_s` without news, never when that is 0."""
        self._idle_s = idle_s
        self._look_s = look_s
        self._last = time.monotonic()

    def news(self) -> None:
        """Something happened."""
        self._last = time.monotonic()

    def pause(self) -> bool:
        """Wait a little; say whether to go on."""
        if self._idle_s and time.monotonic() - self._last > self._idle_s:
            return False
        time.sleep(self._look_s)
        return True


def write_export(path: "Path", body: str) -> None:
    """Write a file a person asked for."""
    from flightlog.store.files import replace  # noqa: PLC0415 - as above

    replace(path, body.encode(), durable=False)
