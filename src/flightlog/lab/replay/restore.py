"""What a killed replay left: its private tree goes, and a directory it worked in is put back as it was.

Only where no process holds the branch; what it recorded stays, and it can be taken up as before. A
directory that is put back is saved first, so that what was written there since is not lost.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flightlog.agents.process import end_process_tree
from flightlog.lab import store
from flightlog.lab.runner.context import RunEnvironment
from flightlog.lab.store import LOCK, RunStore
from flightlog.model.errors import Conflict, ConsentNeeded, FlightlogError
from flightlog.store import files
from flightlog.store.directories import remove_tree
from flightlog.store.files import process_tag
from flightlog.store.git.repository import remove_stale
from flightlog.store.git.snapshots import SnapshotDirs, open_trees
from flightlog.store.locks import exclusive_lock

IN_PLACE = ".replay-in-place.lock"
MARK = ".in_place"
TREE = "tree"
SOURCE_GIT = "source_git"
_WORK = ".work-"


def restore_killed_replays(runs_dir: Path, setting: RunEnvironment) -> Iterator[str]:
    """Put right what killed replays left, and say what was done."""
    left = {runs_dir / tree.parent.name.removeprefix(_WORK) for tree in runs_dir.glob(f"{_WORK}*/{TREE}")}
    left |= {mark.parent for mark in runs_dir.glob(f"*/{MARK}")}
    for path in sorted(each for each in left if (each / store.CONFIG).is_file()):
        # What a foreign run says was left by it is not followed: putting back writes where it says.
        with suppress(Conflict, ConsentNeeded), exclusive_lock(path / LOCK, who=f"process {process_tag()}"):
            book = RunStore(path, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
            if book.state.branch is not None:
                setting.permit(book.config, path, book.config_digest)
                yield from _restore_run(book, setting)


def _restore_run(book: RunStore, setting: RunEnvironment) -> Iterator[str]:
    for attempt in book.state.in_flight:
        if attempt.process and files.is_running(attempt.process):
            end_process_tree(int(attempt.process.partition("-")[0]))
    if (book.path / MARK).exists():
        try:
            with exclusive_lock(book.path.with_name(IN_PLACE), who=f"process {process_tag()}"):
                yield restore_work_dir(book, setting)
        except FlightlogError as error:
            yield f"{book.config.work_dir} could not be put back as it was before {book.name}: {error}"
    for name in (TREE, SOURCE_GIT):
        remove_tree(book.scratch_dir / name)


def restore_work_dir(book: RunStore, setting: RunEnvironment) -> str:
    """Put the directory a branch worked in back as it was before; the lock is the caller's."""
    mark = book.path / MARK
    original = mark.read_text("utf-8")
    work_dir = Path(book.config.work_dir).resolve()
    trees = open_trees(
        SnapshotDirs(book.shadow_dir, work_dir, setting.home, setting.runtime.program_path),
        now=setting.runtime.clock.now_s,
        line="original",
    )
    found = trees.save_snapshot(f"_found_{original.removeprefix('_')}_{int(setting.runtime.clock.now_s() * 1000)}")
    trees.restore_snapshot(original)
    remove_stale(mark)
    return f"{work_dir} is as it was before {book.name}, which was killed; what stood there is {found.name} of it"
