"""Capturing rows after a settle: which repository, what its project said yes to, and who this clone is.

An agent may be waiting for it, so it loads no more than a capture needs; the rest is in `app.dataset`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightlog.app.collecting import collecting, is_off, row_sources
from flightlog.app.privacy import redactor
from flightlog.archive.door import Archive, Recording, open_archive
from flightlog.dataset.capture import Kit, Options, capture
from flightlog.dataset.layout import Place
from flightlog.dataset.memory import writer
from flightlog.dataset.rows import NAMES
from flightlog.dataset.sync import is_inside, sync_commits
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import ConfigValue, Runtime
from flightlog.privacy.records import Records
from flightlog.privacy.trust import is_trusted
from flightlog.sources.git import repository as repositories
from flightlog.sources.git.heads import find_common_dir
from flightlog.sources.git.repository import Repository
from flightlog.store.kept import session_dir

OWN_HOOK = "own-hook"  # as `app.hook.recorder` names it
PERSON = frozenset({"rows", "words", "push"})  # what a person's own command may write, as far as settings say so


def capture_settled(runtime: Runtime, archive: Archive, recording: Recording, cwd: str) -> int:
    """Capture a session that was just settled, if its repository collects rows; then push, if that is on."""
    top = None if is_off(runtime) else collecting(Path(cwd))
    if top is None or not is_inside(cwd, top):
        return 0
    allowed = allowed_in(runtime, top, own_hook=_ran_own_hook(runtime, recording, top))
    if not allowed:
        return 0
    place = Place(Repository(top, find_common_dir(top), is_trusted(runtime, top)))
    writer(place.state, os.urandom(4).hex())
    tools = kit(runtime, place, archive, allowed)
    rows = capture(tools, recording).rows + sync_commits(tools)
    if "push" in allowed:
        push_if_on(runtime, place)
    return rows


def allowed_in(runtime: Runtime, top: Path, *, own_hook: bool = False) -> frozenset[str]:
    """Return what may be written into a repository without a person's own command: of rows, words and push."""
    return frozenset().union(*row_sources(runtime, top, own_hook=own_hook).values())


def _ran_own_hook(runtime: Runtime, recording: Recording, top: Path) -> bool:
    """Return whether a hook of this repository's own recorded the session; the recorder leaves its directory."""
    try:
        project = (
            (session_dir(Path(runtime.data_dir), recording.agent, recording.session) / OWN_HOOK)
            .read_text("utf-8")
            .strip()
        )
    except (OSError, UnicodeDecodeError):
        return False
    return Path(project).is_absolute() and collecting(Path(project)) == top


def push_if_on(runtime: Runtime, place: Place) -> FlightlogError | None:
    """Push the rows if the project said so; a network that is away costs nothing but the safety of the last ones."""
    values = said(runtime, place)
    if values["dataset.push"].value is not True:
        return None
    from flightlog.dataset import remote  # noqa: PLC0415 - most projects do not push

    try:
        remote.push(place, str(values["dataset.remote"].value), runtime.clock.now_ms())
    except FlightlogError as error:
        return error
    return None


def place_here(runtime: Runtime, folder: Path | None = None) -> Place:
    """Return the dataset of the repository that holds `folder`."""
    folder = folder or Path(runtime.cwd)
    place = Place(repositories.at(folder, trusted=is_trusted(runtime, folder)))
    writer(place.state, os.urandom(4).hex())
    return place


def said(runtime: Runtime, place: Place) -> Mapping[str, ConfigValue]:
    """Return the settings in force for a repository; what it may not decide by itself needs trust."""
    return runtime.read_config(str(place.repository.top))


def options(runtime: Runtime, place: Place) -> Options:
    """Return what the project said yes to."""
    values = said(runtime, place)
    return Options(
        words=values["dataset.track_words"].value is True, local_cache=values["dataset.local_cache"].value is True
    )


def records(runtime: Runtime, place: Place) -> Records:
    """Return the redactor for rows of a repository; its own directory is called `.`."""
    return Records(redactor(runtime, place.repository.top, {str(place.repository.top): "."}), NAMES)


def kit(runtime: Runtime, place: Place, archive: Archive | None = None, allowed: frozenset[str] = PERSON) -> Kit:
    """Return what a capture works with; words are written if the settings say so and they are `allowed`."""
    wanted = options(runtime, place)
    wanted = msgspec.structs.replace(wanted, words=wanted.words and "words" in allowed)
    return Kit(place, archive or open_archive(runtime), records(runtime, place), wanted)
