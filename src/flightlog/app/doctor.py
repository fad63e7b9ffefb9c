"""Looking this machine over: what is there, what is wrong, and the one thing to do about each."""

import enum
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from flightlog.app import now_ms
from flightlog.app.overview import KEEP_DAYS_DEFAULT, keep_days
from flightlog.app.paths import claude_config_dirs, home
from flightlog.archive import Archive, Progress
from flightlog.views.prices import PRICES_FROM

YEAR_MS = 365 * 86_400_000


class Level(enum.Enum):
    """How a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    DAMAGE = "damage"


class Finding(Struct, frozen=True):
    """One thing looked at; `next` is the command or setting that helps."""

    level: Level
    about: str
    text: str
    next: str = ""


def examine(progress: Progress | None = None) -> list[Finding]:
    """Look at everything."""
    dirs = claude_config_dirs(os.environ)
    archive = Archive([str(path) for path in dirs])
    return [
        *(finding for path in dirs for finding in _config_dir(path)),
        _home(home(os.environ)),
        *_recordings(archive, progress),
        _prices(),
    ]


def _config_dir(path: Path) -> Iterator[Finding]:
    if not (path / "projects").is_dir():
        yield Finding(Level.NOTE, "sessions", f"no Claude Code sessions below {path}", "flightlog demo")
        return
    days = keep_days(path)
    if days <= KEEP_DAYS_DEFAULT:
        yield Finding(
            Level.WARNING,
            "retention",
            f"Claude Code deletes transcripts after {days} days: {path}",
            f'set "cleanupPeriodDays": 365 in {path / "settings.json"}',
        )
    else:
        yield Finding(Level.OK, "retention", f"Claude Code keeps transcripts for {days} days: {path}")


def _home(path: Path) -> Finding:
    """Whether flightlog's own directory can be used, and by nobody else."""
    if not path.exists():
        return Finding(Level.OK, "home", f"not made yet: {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(Level.WARNING, "home", f"cannot be written to: {path}", f"chmod u+rwx {path}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding(Level.WARNING, "home", f"open to other users: {path}", f"chmod 700 {path}")
    return Finding(Level.OK, "home", f"private and writable: {path}")


def _recordings(archive: Archive, progress: Progress | None) -> Iterator[Finding]:
    sessions = steps = 0
    unknown: dict[str, int] = {}
    late = ""
    damage = list(archive.damage)
    for done, session in enumerate(archive.told(progress)):
        sessions = done + 1
        steps += session.records
        damage += session.damage
        for kind, count in (*session.unknown, *session.unknown_fields):
            unknown[kind] = unknown.get(kind, 0) + count
        if (session.ended_ms or 0) > now_ms() + 86_400_000:
            late = session.id
    yield Finding(Level.OK, "recordings", f"{sessions:,} sessions, {steps:,} records read")
    for kind, count in sorted(unknown.items()):
        yield Finding(Level.NOTE, "format", f"{count:,} times unknown here: {kind}", "flightlog --version")
    if late:
        yield Finding(
            Level.WARNING, "clock", "a session ends in the future: a clock is wrong", f"flightlog session show {late}"
        )
    for span in damage:
        where = f"{span.length:,} bytes at {span.offset:,} of" if span.length else "all of"
        yield Finding(
            Level.DAMAGE, "damage", f"{span.why}: {where} {span.path}", "the sound records around it are read"
        )


def _prices() -> Finding:
    taken = datetime.fromisoformat(PRICES_FROM["date"]).replace(tzinfo=UTC)
    told = f"{PRICES_FROM['source']}, {PRICES_FROM['date']}"
    if now_ms() - taken.timestamp() * 1000 > YEAR_MS:
        return Finding(Level.WARNING, "prices", f"more than a year old: {told}", "upgrade flightlog")
    return Finding(Level.OK, "prices", told)
