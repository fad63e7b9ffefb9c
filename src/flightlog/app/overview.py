"""Gathering the first screen from this machine's recordings, or from those that ship with the package."""

import json
import os
from datetime import UTC
from pathlib import Path

from flightlog.app import now_ms, open_archive
from flightlog.app.paths import SAMPLES, claude_config_dirs
from flightlog.archive import Archive, Progress
from flightlog.model.usage import Breakdown
from flightlog.views.overview import Overview, busiest, dearest, doomed

KEEP_DAYS_DEFAULT = 30
SOON_DAYS = 7
PROJECTS_SHOWN = 3
SEARCHED_BYTES_MAX = 32 << 20


def overview(progress: Progress | None = None) -> Overview:
    """Say what there is, on this machine or in the samples."""
    dirs = claude_config_dirs(os.environ)
    archive = open_archive()
    sample = not archive.recordings or dirs == [SAMPLES]
    if sample:
        archive = Archive([str(SAMPLES)])
    told = list(archive.sessions(progress))
    live = Archive([str(path) for path in dirs]).recordings.keys()
    archived = archive.recordings.keys() - live if not sample else set()
    report = archive.usage(Breakdown.SESSION, UTC)
    days = min(keep_days(path) for path in dirs)
    return Overview(
        sessions=len(told),
        projects=len({each.project for each in told if each.project}),
        turns=sum(each.turns for each in told),
        usage=report.total.usage,
        cost=report.total.cost,
        unrecorded_usd=sum(gap.cost_usd for gap in report.gaps),
        first_ms=min((each.started_ms for each in told if each.started_ms is not None), default=None),
        last_ms=max((each.ended_ms for each in told if each.ended_ms is not None), default=None),
        dearest=dearest(told),
        busiest=busiest(told, PROJECTS_SHOWN),
        doomed=() if sample else doomed([each for each in told if each.session in live], days, now_ms(), SOON_DAYS),
        keep_days=days,
        unknown_records=sum(each.unknown_records for each in told),
        damaged=sum(each.damaged for each in told) + len(archive.damage),
        sample=sample,
        archived=len(archived),
        damaged_sessions=tuple(each.session for each in told if each.damaged),
        holding_secrets=() if sample else _holding_secrets(),
    )


def _holding_secrets() -> tuple[str, ...]:
    """Name the sessions that hold secrets, newest first; what nobody looked at yet is looked at, within reason."""
    counts = open_archive().secrets(SEARCHED_BYTES_MAX)
    return tuple(session for session, count in counts.items() if count)


def keep_days(config_dir: Path) -> int:
    """Read after how many days Claude Code deletes transcripts; broken settings mean its default."""
    try:
        said = json.loads((config_dir / "settings.json").read_text())
    except (OSError, ValueError, RecursionError):
        return KEEP_DAYS_DEFAULT
    days = said.get("cleanupPeriodDays") if isinstance(said, dict) else None
    return days if isinstance(days, int) and not isinstance(days, bool) and days >= 0 else KEEP_DAYS_DEFAULT
