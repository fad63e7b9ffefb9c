"""Gathering the first screen from this machine's recordings, or from those that ship with the package."""

from datetime import UTC
from pathlib import Path

from flightlog.agents import SAMPLES
from flightlog.app.hook_events import keep_days
from flightlog.archive.door import Archive, Progress, open_archive
from flightlog.model.runtime import Runtime
from flightlog.model.usage import Breakdown
from flightlog.sources.claude_code.discover import find_config_dirs
from flightlog.views.overview import Overview, find_expiring_sessions, most_expensive_prompt, rank_projects

SOON_DAYS = 7
PROJECTS_SHOWN = 3
SEARCHED_BYTES_MAX = 32 << 20


def build_overview(runtime: Runtime, progress: Progress | None = None) -> Overview:
    """Say what there is, on this machine or in the samples."""
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    archive = open_archive(runtime)
    sample = not archive.recordings or dirs == [SAMPLES]
    if sample:
        archive = Archive([str(SAMPLES)])
    told = list(archive.iter_summaries(progress))
    live = Archive([str(path) for path in dirs]).recordings.keys()
    archived = archive.recordings.keys() - live if not sample else set()
    kept = [each for each in told if each.session in live]
    report = archive.usage_report(Breakdown.SESSION, UTC)
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
        dearest=most_expensive_prompt(told),
        busiest=rank_projects(told, PROJECTS_SHOWN),
        doomed=() if sample else find_expiring_sessions(kept, days, runtime.clock.now_ms(), SOON_DAYS),
        keep_days=days,
        unknown_records=sum(each.unknown_records for each in told),
        damaged=sum(each.damaged for each in told) + len(archive.damage),
        sample=sample,
        archived=len(archived),
        damaged_sessions=tuple(each.session for each in told if each.damaged),
        holding_secrets=() if sample else _sessions_with_secrets(runtime),
    )


def _sessions_with_secrets(runtime: Runtime) -> tuple[str, ...]:
    """Name the sessions that hold secrets, newest first; what nobody looked at yet is looked at, within reason."""
    counts = open_archive(runtime).count_secrets(SEARCHED_BYTES_MAX)
    return tuple(session for session, count in counts.items() if count)
