"""How the recording stands: what is found, what is kept, what is sealed, what was lost."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.app.collecting import find_collecting_root
from flightlog.app.hook_events import keep_days
from flightlog.archive import Archive
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.sources.claude_code.discover import AGENT, find_config_dirs
from flightlog.sources.git.heads import find_common_dir
from flightlog.sources.git.repository import Repository
from flightlog.sources.hook_log import count_lost_records
from flightlog.store.git.command import GitError
from flightlog.store.kept import list_damaged_sessions, list_recorded_sessions


class DatasetSafety(Struct, frozen=True):
    """What of the training rows here is safe elsewhere; 0 for never."""

    last_record_ms: int
    last_safe_ms: int
    shards: int
    shards_unsafe: int


class RecordingStatus(Struct, frozen=True):
    """The figures; times are in milliseconds since 1970, None where there is none."""

    sessions_live: int
    bytes_live: int
    sessions_kept: int
    only_kept: int
    not_kept: int
    bytes_kept: int
    bytes_sealed: int
    last_record_ms: int | None
    first_deletion_ms: int | None
    lost_events: int
    index_bytes: int
    home: str
    damaged_sessions: int
    dataset: DatasetSafety | None = None


def read_status(runtime: Runtime) -> RecordingStatus:
    """Look; nothing is read but names and sizes."""
    place = Path(runtime.data_dir)
    dirs = [Path(each) for each in find_config_dirs(runtime)]
    live = Archive([str(path) for path in dirs]).recordings
    kept, _ = list_recorded_sessions(place, AGENT)
    sizes = dict(_iter_file_sizes(place / "sessions"))
    changed = [recording.changed_ms for recording in live.values()]
    days = min(keep_days(path) for path in dirs)
    return RecordingStatus(
        sessions_live=len(live),
        bytes_live=sum(file.size for recording in live.values() for file in recording.files),
        sessions_kept=len(kept),
        only_kept=len(kept - live.keys()),
        not_kept=len(live.keys() - kept),
        bytes_kept=sum(sizes.values()),
        bytes_sealed=sum(size for path, size in sizes.items() if path.endswith(".zst")),
        last_record_ms=max(changed, default=None),
        first_deletion_ms=min(changed) + days * DAY_MS if changed else None,
        lost_events=count_lost_records(place, Path(tempfile.gettempdir())),
        index_bytes=sum(size for path, size in _iter_file_sizes(place) if Path(path).name.startswith("index.db")),
        home=str(place),
        damaged_sessions=len(list_damaged_sessions(place, AGENT)),
        dataset=_dataset_safety(runtime),
    )


def _dataset_safety(runtime: Runtime) -> DatasetSafety | None:
    """What of the training rows of the repository here is safe elsewhere; nothing where none are collected."""
    top = find_collecting_root(Path(runtime.cwd))
    if top is None:
        return None
    from flightlog.dataset.layout import DatasetDirs  # noqa: PLC0415 - where rows are collected alone
    from flightlog.dataset.remote import measure_safety  # noqa: PLC0415

    try:
        told = measure_safety(DatasetDirs(Repository(top, find_common_dir(top), is_trusted(runtime, top))))
    except (GitError, Invalid):  # no git may run here, or a link leads out; the dataset's own commands report it
        return None
    return DatasetSafety(told.last_record_ms, told.last_safe_ms, told.shards, told.shards_unsafe)


def age_ms(runtime: Runtime, status: RecordingStatus) -> int | None:
    """How long ago the last record was written."""
    return None if status.last_record_ms is None else max(runtime.clock.now_ms() - status.last_record_ms, 0)


def _iter_file_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            try:
                yield str(path), path.lstat().st_size
            except OSError:
                continue
