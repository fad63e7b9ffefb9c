"""Capturing rows after a settle: which repository, what its project said yes to, and who this clone is.

An agent may be waiting for it, so it loads no more than a capture needs; the rest is in `app.dataset`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightlog.app.collecting import find_collecting_root, is_off, row_sources
from flightlog.app.privacy import make_redactor
from flightlog.archive.door import Archive, SessionFiles, open_archive
from flightlog.dataset.capture import ExtractContext, ExtractOptions, capture_session
from flightlog.dataset.layout import DatasetDirs
from flightlog.dataset.memory import writer_name
from flightlog.dataset.rows import NAMES
from flightlog.dataset.sync import is_inside, sync_commits
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import ConfigValue, Runtime
from flightlog.privacy.records import JsonRedactor
from flightlog.privacy.trust import is_trusted
from flightlog.sources.git import repository as repositories
from flightlog.sources.git.heads import find_common_dir
from flightlog.sources.git.repository import Repository
from flightlog.store.kept import session_dir

OWN_HOOK = "own-hook"  # as `app.hook.recorder` names it
PERSON = frozenset({"rows", "words", "push"})  # what a person's own command may write, as far as settings say so


def extract_session_rows(runtime: Runtime, archive: Archive, recording: SessionFiles, cwd: str) -> int:
    """Capture a session that was just settled, if its repository collects rows; then push, if that is on."""
    top = None if is_off(runtime) else find_collecting_root(Path(cwd))
    if top is None or not is_inside(cwd, top):
        return 0
    allowed = allowed_writes(runtime, top, own_hook=_ran_own_hook(runtime, recording, top))
    if not allowed:
        return 0
    place = DatasetDirs(Repository(top, find_common_dir(top), is_trusted(runtime, top)))
    writer_name(place.state_dir, os.urandom(4).hex())
    tools = make_extract_context(runtime, place, archive, allowed)
    rows = capture_session(tools, recording).rows + sync_commits(tools)
    if "push" in allowed:
        push_if_enabled(runtime, place)
    return rows


def allowed_writes(runtime: Runtime, top: Path, *, own_hook: bool = False) -> frozenset[str]:
    """Return what may be written into a repository without a person's own command: of rows, words and push."""
    return frozenset().union(*row_sources(runtime, top, own_hook=own_hook).values())


def _ran_own_hook(runtime: Runtime, recording: SessionFiles, top: Path) -> bool:
    """Return whether a hook of this repository's own recorded the session; the recorder leaves its directory."""
    try:
        project = (
            (session_dir(Path(runtime.data_dir), recording.agent, recording.session) / OWN_HOOK)
            .read_text("utf-8")
            .strip()
        )
    except (OSError, UnicodeDecodeError):
        return False
    return Path(project).is_absolute() and find_collecting_root(Path(project)) == top


def push_if_enabled(runtime: Runtime, place: DatasetDirs) -> FlightlogError | None:
    """Push the rows if the project said so; a network that is away costs nothing but the safety of the last ones."""
    values = load_project_settings(runtime, place)
    if values["dataset.push"].value is not True:
        return None
    from flightlog.dataset import remote  # noqa: PLC0415 - most projects do not push

    try:
        remote.push_shards(place, str(values["dataset.remote"].value), runtime.clock.now_ms())
    except FlightlogError as error:
        return error
    return None


def locate_dataset(runtime: Runtime, folder: Path | None = None) -> DatasetDirs:
    """Return the dataset of the repository that holds `folder`."""
    folder = folder or Path(runtime.cwd)
    place = DatasetDirs(repositories.open_repository(folder, trusted=is_trusted(runtime, folder)))
    writer_name(place.state_dir, os.urandom(4).hex())
    return place


def load_project_settings(runtime: Runtime, place: DatasetDirs) -> Mapping[str, ConfigValue]:
    """Return the settings in force for a repository; what it may not decide by itself needs trust."""
    return runtime.read_config(str(place.repository.top))


def load_options(runtime: Runtime, place: DatasetDirs) -> ExtractOptions:
    """Return what the project said yes to."""
    values = load_project_settings(runtime, place)
    return ExtractOptions(
        words=values["dataset.track_words"].value is True, local_cache=values["dataset.local_cache"].value is True
    )


def make_row_redactor(runtime: Runtime, place: DatasetDirs) -> JsonRedactor:
    """Return the redactor for rows of a repository; its own directory is called `.`."""
    return JsonRedactor(make_redactor(runtime, place.repository.top, {str(place.repository.top): "."}), NAMES)


def make_extract_context(
    runtime: Runtime, place: DatasetDirs, archive: Archive | None = None, allowed: frozenset[str] = PERSON
) -> ExtractContext:
    """Return what a capture works with; words are written if the settings say so and they are `allowed`."""
    wanted = load_options(runtime, place)
    wanted = msgspec.structs.replace(wanted, words=wanted.words and "words" in allowed)
    return ExtractContext(place, archive or open_archive(runtime), make_row_redactor(runtime, place), wanted)
