"""Overview and status of recordings: what is recorded, and what the agent will delete."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents import SAMPLES, agent_label, agent_names
from flightlog.agents.claude_code.files import find_config_dirs, find_unread_files
from flightlog.agents.claude_code.hooks import keep_days
from flightlog.agents.recordings import find_agent_dirs, reads_samples
from flightlog.archive.archive import Archive, Progress, open_archive
from flightlog.dataset.state import find_collecting_root
from flightlog.live.service import find_known_config_dirs
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.usage import DAY_MS, Breakdown, Cost, CostSource, Usage, usage_fields
from flightlog.privacy.trust import is_trusted
from flightlog.sources.hook_log import count_lost_records
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import Repository, find_common_dir
from flightlog.store.recordings.adoption import list_damaged_sessions, list_recorded_sessions
from flightlog.store.recordings.manifest import META
from flightlog.views.overview import (
    AgentShare,
    Overview,
    OverviewStage,
    find_expiring_sessions,
    most_expensive_prompt,
    rank_projects,
)
from flightlog.views.session.outline import SessionSummary, sort_newest_first

SOON_DAYS = 7  # sessions that the agent deletes within it are listed
PROJECTS_SHOWN = 3
SECRETS_LIMIT_S = 3.0  # a person waits for it


def build_overview(runtime: Runtime, progress: Progress | None = None) -> Overview:
    """Return the overview of this machine, or of the samples if it has no sessions."""
    *_, (_, overview) = iter_overview(runtime, progress)
    return overview


def iter_overview(
    runtime: Runtime, progress: Progress | None = None
) -> Iterator[tuple[OverviewStage, Overview]]:
    """Yield the overview after each step of reading, with what is known by then."""
    dirs = [Path(path) for path in find_config_dirs(runtime)]
    archive = open_archive(runtime)
    sample = not archive.recordings or dirs == [SAMPLES]
    if sample:
        archive = Archive({DEFAULT_AGENT: (str(SAMPLES),)})
    overview = Overview(
        **usage_fields(Usage(), Cost(None, CostSource.UNKNOWN)),
        recordings=len(archive.recordings),
        recorded_bytes=sum(recording.size for recording in archive.recordings.values()),
        is_sample=sample,
    )
    yield OverviewStage.FILES, overview
    report = archive.usage_report(Breakdown.SESSION, UTC)
    overview = replace(
        overview,
        **usage_fields(report.total.usage, report.total.cost),
        unrecorded_cost_usd=sum(gap.cost_usd or 0.0 for gap in report.gaps),
    )
    yield OverviewStage.COST, overview
    overview = _add_sessions(overview, runtime, archive, progress)
    archive.usage_pipeline.save()
    yield OverviewStage.SESSIONS, overview
    if not sample:
        counts = archive.count_secrets(limit_s=SECRETS_LIMIT_S)
        found = tuple(session for session, count in counts.items() if count)
        missing = len(archive.recordings) - len(counts)
        overview = replace(overview, sessions_with_secrets=found, sessions_not_scanned=missing)
    yield OverviewStage.SECRETS, overview


def _add_sessions(
    overview: Overview, runtime: Runtime, archive: Archive, progress: Progress | None
) -> Overview:
    dirs = [Path(path) for path in find_config_dirs(runtime)]
    sample = overview.is_sample
    summaries = sort_newest_first(archive.iter_summaries(progress))
    listed = [summary for summary in summaries if not summary.is_empty]
    live = Archive(find_agent_dirs(runtime)).recordings.keys()
    # Only Claude Code's own clean-up is known; what other agents delete is not.
    own = [summary for summary in summaries if summary.agent == DEFAULT_AGENT]
    current = [summary for summary in own if summary.session in live]
    started = [summary.started_ms for summary in summaries if summary.started_ms is not None]
    ended = [summary.ended_ms for summary in summaries if summary.ended_ms is not None]
    days = min(keep_days(path) for path in dirs)
    expiring = find_expiring_sessions(current, days, runtime.clock.now_ms(), SOON_DAYS)
    return replace(
        overview,
        sessions=len(listed),
        projects=len({summary.project for summary in listed if summary.project}),
        turns=sum(summary.turns for summary in listed),
        first_timestamp_ms=min(started, default=None),
        last_timestamp_ms=max(ended, default=None),
        most_expensive_prompt=most_expensive_prompt(summaries),
        top_projects=rank_projects(listed, PROJECTS_SHOWN),
        expiring_sessions=() if sample else expiring,
        keep_days=days,
        unknown_records=sum(summary.unknown_records for summary in summaries),
        damage_count=sum(summary.damage_count for summary in summaries) + len(archive.damage),
        archived_sessions=0 if sample else len(archive.recordings.keys() - live),
        unread_files=0 if sample else sum(len(find_unread_files(str(path))) for path in dirs),
        damaged_sessions=tuple(summary.session for summary in summaries if summary.damage_count),
        agents=_count_by_agent(listed),
    )


def _count_by_agent(summaries: Sequence[SessionSummary]) -> tuple[AgentShare, ...]:
    """Return the agents that have sessions, the one with most of them first."""
    counts = Counter(summary.agent for summary in summaries)
    return tuple(
        AgentShare(agent, agent_label(agent), count)
        for agent, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


class DatasetSafety(Struct, frozen=True):
    """What of the training rows here is on a remote; 0 for never."""

    last_row_ms: int
    last_pushed_ms: int
    shards: int
    unpushed_shards: int


class RecordingStatus(Struct, frozen=True):
    """Counts and sizes; times in milliseconds since 1970, None if there is none."""

    source_sessions: int
    source_bytes: int
    archived_sessions: int
    archived_only_sessions: int
    unarchived_sessions: int
    archived_bytes: int
    sealed_bytes: int
    last_record_ms: int | None
    first_deletion_ms: int | None
    lost_hook_events: int
    index_bytes: int
    data_dir: str
    damaged_sessions: int
    dataset: DatasetSafety | None = None


def read_status(runtime: Runtime) -> RecordingStatus:
    """Return the status from file names and sizes alone."""
    data_dir = Path(runtime.data_dir)
    dirs = [Path(path) for path in find_known_config_dirs(runtime)]
    archive = Archive({**find_agent_dirs(runtime), DEFAULT_AGENT: tuple(map(str, dirs))})
    live = archive.recordings
    names = agent_names()
    recorded = {name for agent in names for name in list_recorded_sessions(data_dir, agent)[0]}
    sizes = dict(_iter_file_sizes(data_dir / "sessions"))
    # A session without a prompt has hook events or a status line, but nothing to copy yet.
    copied = {Path(path).parent.name for path in sizes if path.endswith(f"/{META}")}
    own = (recording for recording in live.values() if recording.agent == DEFAULT_AGENT)
    changed = [recording.changed_ms for recording in own]
    deleted_ms = min(changed, default=0) + min(keep_days(path) for path in dirs) * DAY_MS
    all_sizes, index = _iter_file_sizes(data_dir), ("index.db", "index-")
    return RecordingStatus(
        source_sessions=len(live),
        source_bytes=sum(file.size for recording in live.values() for file in recording.files),
        archived_sessions=len(copied),
        archived_only_sessions=len(copied - live.keys()),
        unarchived_sessions=0 if reads_samples(runtime) else len(live.keys() - recorded),
        archived_bytes=sum(sizes.values()),
        sealed_bytes=sum(size for path, size in sizes.items() if path.endswith(".zst")),
        last_record_ms=archive.last_record_ms(live[archive.latest_session()]) if live else None,
        # What is overdue is deleted when the agent starts next.
        first_deletion_ms=max(deleted_ms, runtime.clock.now_ms()) if changed else None,
        lost_hook_events=count_lost_records(data_dir, Path(tempfile.gettempdir())),
        index_bytes=sum(size for path, size in all_sizes if Path(path).name.startswith(index)),
        data_dir=str(data_dir),
        damaged_sessions=sum(len(list_damaged_sessions(data_dir, agent)) for agent in names),
        dataset=_dataset_safety(runtime),
    )


def _dataset_safety(runtime: Runtime) -> DatasetSafety | None:
    """Return the safety of the training rows here, or None if none are collected."""
    top = find_collecting_root(Path(runtime.cwd))
    if top is None:
        return None
    from flightlog.dataset.layout import DatasetDirs  # noqa: PLC0415 - most projects collect no rows
    from flightlog.dataset.remote import measure_safety  # noqa: PLC0415 - as above

    try:
        dirs = DatasetDirs(Repository(top, find_common_dir(top), is_trusted(runtime, top)))
        safety = measure_safety(dirs)
    except (
        GitError,
        Invalid,
    ):  # git cannot run, or a link leads out; the dataset commands report it
        return None
    return DatasetSafety(
        safety.last_row_ms, safety.last_pushed_ms, safety.shards, safety.unpushed_shards
    )


def age_ms(runtime: Runtime, status: RecordingStatus) -> int | None:
    """Return how long ago the last record was written."""
    if status.last_record_ms is None:
        return None
    return max(runtime.clock.now_ms() - status.last_record_ms, 0)


def _iter_file_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            try:
                yield str(path), path.lstat().st_size
            except OSError:
                continue
